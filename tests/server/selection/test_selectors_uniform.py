"""Uniform selection is a function of the seed and the round alone."""

from collections import Counter

import pytest

from fedkl.learning.randomness import Purpose, key_for
from fedkl.server.selection import Pool, Uniform


def select(seed, round, clients, k):
    return Uniform()((), round, Pool(clients, k, key_for(seed, Purpose.SELECTION)))


@pytest.mark.parametrize(
    ("seed", "round", "clients", "k", "expected"),
    [
        (0, 0, 10, 3, [1, 2, 5]),
        (0, 1, 10, 3, [6, 8, 9]),
        (0, 2, 10, 3, [2, 4, 7]),
        (1, 0, 10, 3, [0, 6, 8]),
        (1, 7, 20, 5, [6, 9, 11, 12, 19]),
        (42, 100, 64, 8, [0, 16, 18, 23, 26, 32, 38, 56]),
        (12345, 0, 7, 1, [3]),
    ],
)
def test_it_selects_whom_it_always_has(seed, round, clients, k, expected):
    """Numbers of version 0.1.0: runs of then can go on."""
    assert select(seed, round, clients, k) == expected


def test_another_round_or_seed_selects_others():
    draws = {tuple(select(s, t, 60, 3)) for s in range(3) for t in range(5)}
    assert len(draws) == 15


def test_clients_are_distinct_ascending_and_in_range():
    for t in range(20):
        chosen = select(0, t, 10, 4)
        assert chosen == sorted(set(chosen))
        assert set(chosen) <= set(range(10))


def test_selecting_everybody_selects_everybody():
    assert select(0, 0, 5, 5) == [0, 1, 2, 3, 4]


def test_every_client_is_selected_about_equally_often():
    counts = Counter(c for t in range(400) for c in select(0, t, 8, 2))
    # 100 expected, standard deviation 8.7
    assert all(65 < counts[c] < 135 for c in range(8))
