"""Who takes part in a round."""

import numpy as np
import pytest

from fedkl.tabular import Family, families
from fedkl.tabular.selection import draw_participants


def test_as_many_take_part_as_asked_with_their_weights():
    family = families.chain(agents=4)
    uneven = Family(family.initial, family.transitions, family.rewards, 0.9, [0.1, 0.2, 0.3, 0.4])
    weights = draw_participants(uneven, 2, seed=0)
    for index in range(20):
        w = weights(index)
        taking = w > 0
        assert taking.sum() == 2
        np.testing.assert_allclose(w[taking], uneven.weights[taking] / uneven.weights[taking].sum())


def test_a_round_depends_on_its_number_and_the_seed_alone():
    family = families.chain(agents=6)
    first, again = (draw_participants(family, 3, seed=5) for _ in range(2))
    forwards = [first(index) for index in range(10)]
    backwards = [again(index) for index in reversed(range(10))][::-1]
    np.testing.assert_array_equal(forwards, backwards)
    assert len({tuple(w) for w in forwards}) > 1


def test_agents_without_weight_may_be_the_only_ones_drawn():
    family = families.chain(agents=2)
    one_sided = Family(family.initial, family.transitions, family.rewards, 0.9, [1.0, 0.0])
    weights = draw_participants(one_sided, 1, seed=0)
    assert {tuple(weights(index)) for index in range(20)} == {(1.0, 0.0), (0.0, 1.0)}


@pytest.mark.parametrize("count", [0, 4])
def test_nobody_and_more_than_there_are_cannot_take_part(count):
    with pytest.raises(ValueError, match=f"from 1 to the number of agents, 3, not {count}"):
        draw_participants(families.chain(agents=3), count, seed=0)
