"""Clients are drawn in proportion to their weights."""

from collections import Counter
from itertools import combinations

import jax
import pytest
from scipy.stats import chisquare

from fedkl.core.errors import UserError
from fedkl.core.settings import build
from fedkl.server.selection import Pool, Weighted

WEIGHTS = (1.0, 2.0, 3.0, 4.0)


def select(weights, round, k, seed=0):
    return Weighted(weights=weights)((), round, Pool(len(weights), k, jax.random.key(seed)))


def test_one_of_n_is_drawn_as_often_as_its_weight_says():
    counts = Counter(select(WEIGHTS, t, 1)[0] for t in range(1000))
    assert chisquare([counts[c] for c in range(4)], [100, 200, 300, 400]).pvalue > 0.01


def test_pairs_are_drawn_one_after_the_other_without_replacement():
    """P{i, j} = p_i p_j / (1 - p_i) + p_j p_i / (1 - p_j)."""
    counts = Counter(tuple(select(WEIGHTS, t, 2)) for t in range(1000))
    p = [w / 10 for w in WEIGHTS]
    pairs = list(combinations(range(4), 2))
    expected = [1000 * p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j])) for i, j in pairs]
    assert sum(expected) == pytest.approx(1000)
    assert chisquare([counts[pair] for pair in pairs], expected).pvalue > 0.01


def test_the_scale_of_the_weights_does_not_matter():
    huge = tuple(1e200 * w for w in WEIGHTS)
    assert [select(huge, t, 2) for t in range(20)] == [select(WEIGHTS, t, 2) for t in range(20)]


def test_a_client_of_weight_zero_never_takes_part():
    assert {tuple(select((0.0, 1.0, 0.0, 5.0), t, 2)) for t in range(20)} == {(1, 3)}


def test_the_seed_and_the_round_alone_decide():
    assert select(WEIGHTS, 3, 2) == select(WEIGHTS, 3, 2)
    assert len({tuple(select((1.0,) * 60, t, 3, s)) for t in range(5) for s in range(3)}) == 15


def test_clients_are_distinct_and_ascending():
    for t in range(20):
        chosen = select((1.0, 100.0, 1.0, 100.0, 5.0), t, 4)
        assert chosen == sorted(set(chosen))
        assert len(chosen) == 4


def test_there_is_a_weight_for_each_client():
    with pytest.raises(
        UserError, match=r"^selection\.weights must have 5 numbers, one for each client, not 4$"
    ):
        Weighted(weights=WEIGHTS).check(5, 2)
    with pytest.raises(UserError, match=r"^selection\.weights must have 5 .* not 0$"):
        Weighted().check(5, 2)


def test_enough_weights_are_positive():
    selector = build(Weighted, {"weights": [0, 1, 0, 2]}, "selection")
    selector.check(4, 2)
    with pytest.raises(UserError, match=r"^selection\.weights must have at least 3 .* not 2$"):
        selector.check(4, 3)


def test_no_weight_is_negative():
    with pytest.raises(UserError, match=r"^selection\.weights must be at least 0, not -1\.0$"):
        build(Weighted, {"weights": [1.0, -1.0]}, "selection")
