"""Seeds and recipes."""

import numpy as np

from fedkl.simulators.base import Recipe, Seed, step_each


def draws(seed):
    return seed.generator().standard_normal(1000)


def test_a_seed_always_gives_the_same_numbers():
    assert np.array_equal(draws(Seed((1, 2), (3,))), draws(Seed((1, 2)).fold(3)))


def test_seeds_that_differ_anywhere_share_nothing():
    seeds = [
        Seed((1,)),
        Seed((2,)),
        Seed((1, 2)),
        Seed((1,), (0,)),
        Seed((1,), (1,)),
        Seed((1,), (1, 2)),
        Seed((1,), (12,)),
        Seed((1,)).fold(2, 1),
    ]
    correlations = np.corrcoef([draws(seed) for seed in seeds])
    assert np.abs(correlations - np.eye(len(seeds))).max() < 0.15


def test_a_recipe_makes_what_it_names(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    simulator = Recipe("toy_simulators:Walk", {"agents": 5}).make()
    assert simulator.reset(Seed((0,))).shape == (5, 2)


def test_of_a_step_in_several_columns_only_those_that_end_are_listed(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    several = [Recipe("toy_simulators:Walk", {"ends": ends}).make() for ends in (2, 1, 0)]
    first = [walk.reset(Seed((0,), (c,))) for c, walk in enumerate(several)]
    following = np.stack(first, axis=1)
    rewards, ended = step_each(several, [0, 1], np.zeros((2, 3, 1), np.float32), following)
    assert ended == [(1, True, False)]
    for c, reward in enumerate(rewards):
        # The toy's reward is the sum of what is observed.
        np.testing.assert_allclose(following[:, c].sum(axis=-1), reward, rtol=1e-6)
    assert np.array_equal(following[:, 2], first[2])


def test_a_seed_is_a_number_for_those_who_want_one():
    seeds = [Seed((1, 2), (3, k)) for k in range(2000)]
    numbers = [seed.number() for seed in seeds]
    assert len(set(numbers)) == 2000
    assert min(numbers) >= 0
    assert max(numbers) < 2**31
    assert Seed((1, 2), (3, 5)).number() == numbers[5]
    # Where words end and numbers begin matters.
    assert Seed((1,), (2,)).number() != Seed((1, 2)).number()
