"""Everybody once before anybody twice."""

import io

import jax
import numpy as np
import pytest

from fedkl.server.selection import Pool, RoundRobin


def pool(clients, k, seed=0):
    return Pool(clients, k, jax.random.key(seed))


def play(among, rounds, state=None, first=0):
    """What is selected in each round, and the state after each."""
    selector = RoundRobin()
    state = selector.init(among.clients) if state is None else state
    for t in range(first, first + rounds):
        selected = selector(state, t, among)
        state = selector.observe(state, t, selected, {})
        yield selected, state


@pytest.mark.parametrize(("clients", "k"), [(10, 3), (7, 4), (5, 4), (5, 5), (4, 1), (1, 1)])
def test_turns_are_dealt_evenly_whether_k_divides_n_or_not(clients, k):
    turns = np.zeros(clients, int)
    for selected, _ in play(pool(clients, k), 4 * clients):
        assert selected == sorted(set(selected))
        assert len(selected) == k
        before = turns.copy()
        turns[selected] += 1
        assert turns.max() - turns.min() <= 1
        # Who gets a turn ahead of others does so only when all others get theirs in this round.
        if any(before[c] > before.min() for c in selected):
            assert turns.min() > before.min()
    assert turns.tolist() == [4 * k] * clients


def test_each_pass_has_an_order_of_its_own():
    order = [selected[0] for selected, _ in play(pool(20, 1), 40)]
    assert sorted(order[:20]) == sorted(order[20:]) == list(range(20))
    assert order[:20] != order[20:]
    assert order[:20] != list(range(20))


def test_another_seed_has_other_orders():
    first, second = ([s for s, _ in play(pool(20, 3, seed), 5)] for seed in (0, 1))
    assert first != second
    assert first == [s for s, _ in play(pool(20, 3, 0), 5)]


def test_a_round_that_was_not_observed_is_selected_again():
    among = pool(10, 3)
    *_, (_, state) = play(among, 5)
    assert RoundRobin()(state, 5, among) == RoundRobin()(state, 6, among)


def test_a_state_saved_in_the_middle_of_a_pass_is_resumed_the_same_way():
    among = pool(10, 4)
    whole = [selected for selected, _ in play(among, 12)]
    *_, (_, state) = play(among, 4)
    file = io.BytesIO()
    np.save(file, state)
    file.seek(0)
    assert [s for s, _ in play(among, 8, np.load(file), first=4)] == whole[4:]


def test_observing_leaves_the_old_state_alone():
    before = RoundRobin().init(3)
    after = RoundRobin().observe(before, 0, [0, 2], {})
    assert before.tolist() == [0, 0, 0]
    assert after.tolist() == [1, 0, 1]
    assert after.dtype == np.int64


def test_a_client_that_was_rejected_has_had_its_turn():
    assert RoundRobin().observe(np.zeros(3, np.int64), 0, [0, 2], {2: {}}).tolist() == [1, 0, 1]
