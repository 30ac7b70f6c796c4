"""Selection is a function of the seed and the round alone."""

from collections import Counter

from fedkl.federation.selection import uniform


def test_the_same_seed_and_round_select_the_same_clients():
    assert uniform(7, 3, 60, 3) == uniform(7, 3, 60, 3)


def test_another_round_or_seed_selects_others():
    draws = {tuple(uniform(s, t, 60, 3)) for s in range(3) for t in range(5)}
    assert len(draws) == 15


def test_clients_are_distinct_ascending_and_in_range():
    for t in range(20):
        chosen = uniform(0, t, 10, 4)
        assert chosen == sorted(set(chosen))
        assert set(chosen) <= set(range(10))


def test_selecting_everybody_selects_everybody():
    assert uniform(0, 0, 5, 5) == [0, 1, 2, 3, 4]


def test_every_client_is_selected_about_equally_often():
    counts = Counter(c for t in range(400) for c in uniform(0, t, 8, 2))
    # 100 expected, standard deviation 8.7
    assert all(65 < counts[c] < 135 for c in range(8))
