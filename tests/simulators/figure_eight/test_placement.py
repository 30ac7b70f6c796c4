"""Who drives, and what is not a placement."""

import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.figure_eight.placement import ALTERNATING, MIXED, autonomous, check


def test_the_papers_placements_have_seven_autonomous_vehicles_each():
    assert autonomous(ALTERNATING) == [1, 3, 5, 7, 9, 11, 13]
    assert autonomous(MIXED) == [1, 4, 5, 7, 11, 12, 13]


@pytest.mark.parametrize("placement", [ALTERNATING, MIXED, "r" * 14, "h" * 13 + "r"])
def test_any_placement_with_an_autonomous_vehicle_is_one(placement):
    check(placement)


@pytest.mark.parametrize(
    ("placement", "sentence"),
    [
        ("", "must have 14 letters, one for each vehicle, not 0"),
        ("hr" * 8, "must have 14 letters, one for each vehicle, not 16"),
        ("hr" * 6 + "hx", "made of h (human) and r (autonomous vehicle), and 'x' is neither"),
        ("HR" * 7, "and 'H' is neither"),
        ("h" * 14, "has no autonomous vehicle (r)"),
    ],
)
def test_what_is_no_placement_is_answered_with_a_sentence(placement, sentence):
    with pytest.raises(UserError) as caught:
        check(placement)
    assert str(caught.value).startswith("world.placement ")
    assert sentence in str(caught.value)
