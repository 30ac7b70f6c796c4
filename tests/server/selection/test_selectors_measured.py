"""Candidates with the largest measured values come first, and nobody twice on one measurement."""

import jax
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.heterogeneity import Level
from fedkl.server.selection import Alignment, Pool, Potential

POOL = Pool(clients=10, clients_per_round=2, key=jax.random.key(0))


def levels(**values):
    """By client, its G and the opposite as its alignment."""
    return {
        int(name[1:]): Level(1, 1, 1, 1, 1, learning_potential=g, alignment=-g)
        for name, g in values.items()
    }


def measured(selector, **values):
    return selector.measured(selector.init(10), levels(**values))


@pytest.mark.parametrize(("selector", "best"), [(Potential, [3, 7]), (Alignment, [1, 9])])
def test_the_largest_values_are_selected(selector, best):
    chosen = selector(candidates=4)
    state = measured(chosen, c1=-2.0, c3=5.0, c7=4.0, c9=0.5)
    assert chosen(state, 0, POOL) == best


def test_nobody_is_selected_twice_on_one_measurement():
    selector = Potential(candidates=4, measured_every=2)
    state = measured(selector, c1=-2.0, c3=5.0, c7=4.0, c9=0.5)
    state = selector.observe(state, 0, [3, 7], {})
    assert selector(state, 1, POOL) == [1, 9]


def test_candidates_are_drawn_anew_when_they_are_measured():
    selector = Potential(candidates=4, measured_every=2)
    state = selector.init(10)
    asked = [selector.to_measure(state, t, POOL) for t in range(20)]
    assert all(a == [] for a in asked[1::2])
    assert all(len(set(a)) == 4 for a in asked[::2])
    assert set(np.concatenate(asked[::2])) == set(range(10))
    assert selector.to_measure(state, 4, POOL) == asked[4]


def test_if_candidates_do_not_answer_others_take_their_place():
    selector = Alignment(candidates=4)
    state = measured(selector, c5=1.0)
    chosen = [selector(state, t, POOL) for t in range(20)]
    assert all(5 in c and len(c) == 2 for c in chosen)
    assert len({tuple(c) for c in chosen}) > 3


def test_a_measurement_replaces_the_one_before():
    selector = Potential(candidates=4)
    before = measured(selector, c1=9.0, c2=8.0)
    state = selector.measured(before, levels(c3=1.0, c4=2.0))
    assert selector(state, 1, POOL) == [3, 4]
    assert selector(before, 1, POOL) == [1, 2]


@pytest.mark.parametrize("candidates", [5, 11])
def test_candidates_must_last_until_the_next_measurement_and_exist(candidates):
    with pytest.raises(UserError, match=r"selection.candidates must be from 6 .* to 10 .*not"):
        Potential(candidates=candidates, measured_every=3).check(10, 2)


@pytest.mark.parametrize("candidates", [0, 6])
def test_there_must_be_clients_enough_until_the_next_measurement(candidates):
    with pytest.raises(UserError, match=r"^selection.measured_every must be at most 3, not 4: .*6"):
        Potential(candidates=candidates, measured_every=4).check(6, 2)


def test_four_times_as_many_as_are_needed_are_measured_or_all_there_are():
    for clients, every, number in ((60, 1, 8), (60, 2, 16), (5, 1, 5)):
        selector = Alignment(measured_every=every)
        selector.check(clients, 2)
        pool = POOL._replace(clients=clients)
        assert len(selector.to_measure(selector.init(clients), 0, pool)) == number
