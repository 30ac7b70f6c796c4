"""Parameters, and the named tuples that hold their nominal values."""

from typing import NamedTuple

import pytest

from fedkl.worlds.parameters import LONGEST_DELAY, About, Parameter, distortions, parameters_from


class Params(NamedTuple):
    mass: float = 2.0
    corner: tuple[float, float] = (0.0, 1.0)


def test_the_words_of_a_named_tuple_come_in_its_order_with_its_values():
    parameters = parameters_from(Params(), corner=About("where"), mass=About("how heavy", 0.1, 5.0))
    assert parameters == (
        Parameter("mass", 2.0, 0.1, 5.0, "how heavy"),
        Parameter("corner", (0.0, 1.0), help="where"),
    )
    assert [parameter.shape for parameter in parameters] == [(), (2,)]


@pytest.mark.parametrize("about", [{}, {"mass": About("a")}, {"mass": About("a"), "x": About("b")}])
def test_something_must_be_said_of_every_field_and_of_nothing_else(about):
    with pytest.raises(TypeError, match="Params and what is said of it have different parameters"):
        parameters_from(Params(), **about)


def test_nothing_can_be_added_to_discrete_actions():
    assert [parameter.name for parameter in distortions(None)] == [
        "observation_noise",
        "action_delay",
    ]
    offset = next(parameter for parameter in distortions(3) if parameter.name == "action_offset")
    assert offset.shape == (3,)
    delay = distortions(None)[-1]
    assert (delay.whole, delay.low, delay.high) == (True, 0, LONGEST_DELAY)
