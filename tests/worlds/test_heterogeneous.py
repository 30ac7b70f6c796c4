"""Worlds of which each client has its own: what follows from their parameters."""

from typing import ClassVar

import jax
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.base import Recipe
from fedkl.worlds import Continuous, Differences, Parameter, SoloWorld, Transition, World
from fedkl.worlds.parameters import INITIAL_STATE

KEY = jax.random.key(0)
PARAMETERS = (
    Parameter("mass", 0.1),
    Parameter("initial_low", (0.0, -1.0)),
    Parameter("initial_high", (1.0, 1.0)),
    Parameter("teeth", 3, 0, 9, whole=True),
    INITIAL_STATE,
)


class Host(SoloWorld):
    """A simulator that nobody starts."""

    name: ClassVar[str] = "test-host"
    summary: ClassVar[str] = "for tests"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[Continuous] = Continuous(1)
    horizon: ClassVar[int] = 1
    patience: ClassVar[float] = 1.0
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS

    def simulator(self):
        return Recipe("nowhere:Nothing", {})


class Traced(World):
    """The same parameters, in JAX."""

    name: ClassVar[str] = "test-traced"
    summary: ClassVar[str] = "for tests"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[Continuous] = Continuous(1)
    horizon: ClassVar[int] = 1
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS

    def reset(self, params, key):
        return (), params["mass"][None]

    def step(self, params, state, action, key):
        return Transition((), params["mass"][None], params["mass"], jax.numpy.asarray(False))


def clients(cls, n=3, **table):
    return cls(differences=Differences.from_table(table)).clients(n, KEY)


def test_a_simulator_is_given_the_words_that_are_named_in_double_precision():
    assert clients(Host) == {}
    rows = clients(Host, mass=[0.1, 0.3], teeth=[1, 2])
    assert rows.keys() == {"mass", "teeth"}
    assert rows["mass"].dtype == np.float64
    assert rows["mass"].tolist() == [0.1, 0.3, 0.1]
    assert rows["teeth"].tolist() == [1, 2, 1]
    assert rows["teeth"].dtype == np.int32
    assert all(isinstance(row, np.ndarray) for row in rows.values())


def test_a_world_in_jax_is_given_all_its_words_by_name():
    rows = clients(Traced, teeth=5)
    assert rows.keys() == {"mass", "initial_low", "initial_high", "teeth"}
    np.testing.assert_array_equal(rows["mass"], np.float32([0.1] * 3))
    np.testing.assert_array_equal(rows["initial_low"], [[0, -1]] * 3)
    assert rows["teeth"].tolist() == [5, 5, 5]


def test_both_draw_the_same():
    table = {"mass": {"uniform": [1, 2]}, "initial_low": {"normal": [-3, 1], "clip": 1}}
    host, traced = clients(Host, **table), clients(Traced, **table)
    for parameter, rows in host.items():
        np.testing.assert_allclose(rows, traced[parameter], rtol=1e-6)


@pytest.mark.parametrize("cls", [Host, Traced])
def test_boxes_cut_the_range_of_every_entry(cls):
    rows = clients(cls, 2, initial_state={"boxes": 2})
    np.testing.assert_allclose(rows["initial_low"], [[0, -1], [0.5, 0]])
    np.testing.assert_allclose(rows["initial_high"], [[0.5, 0], [1, 1]])


def test_a_simulator_has_no_words_but_its_own():
    with pytest.raises(
        UserError, match=r"action_noise is not a parameter of test-host; available: init"
    ):
        clients(Host, action_noise=0.1)
    assert [parameter.name for parameter in Host().all_parameters] == [
        parameter.name for parameter in PARAMETERS
    ]


@pytest.mark.parametrize("cls", [Host, Traced])
def test_an_entry_whose_range_is_turned_round_is_refused(cls):
    with pytest.raises(UserError, match="client 0 would have initial_low = 2, above its initial"):
        clients(cls, initial_low=[[0.5, 2.0]])


def test_former_names_still_work():
    with pytest.warns(DeprecationWarning, match=r"`words` of .*Former is called `parameters` now"):

        class Former(Host):
            words: ClassVar = (Parameter("mass", 2.0),)

    assert [parameter.name for parameter in Former().parameters] == ["mass"]
    with pytest.warns(DeprecationWarning, match="`artist` of .* is called `renderer` now"):

        class Drawn(Host):
            def artist(self, params):
                return lambda moment, step, total: np.zeros((1, 1, 3), np.uint8)

    assert Drawn().renderer(None)(None, 0, 0.0).shape == (1, 1, 3)
