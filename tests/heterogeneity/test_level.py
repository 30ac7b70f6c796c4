import tracemalloc

import numpy as np
import pytest

from fedkl.heterogeneity import Measurement, level, problem_with_measurement


def measurement(weighted, expected=None, advantage=None):
    """Of two halves; what is not said is like `weighted`."""
    arrays = (weighted, expected, advantage)
    return Measurement(*(np.array(weighted if x is None else x, float) for x in arrays))


def random(seed, size=5):
    return measurement(*np.random.default_rng(seed).normal(size=(3, 2, size)))


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-9, equal_nan=True)


def test_numbers_by_hand():
    """D_1 A_1 = (3, 4), D_2 A_2 = (-3, 4), without noise: M = (0, 4), D_n B_n = (-+3, 0)."""
    found = level({0: measurement([[3, 4]] * 2), 1: measurement([[-3, 4]] * 2)})
    for one in found.values():
        assert one.advantage_squared == 25
        assert one.heterogeneity_squared == 9
        assert one.advantage == 5
        assert one.heterogeneity == 3
        assert one.ratio == 0.6
        assert one.learning_potential == 2
        assert one.alignment == 16  # (25 + 7) / 2


def test_weights_say_who_makes_up_the_average():
    """q = (3/4, 1/4): M = (1.5, 4), so D_1 B_1 = (-1.5, 0) and D_2 B_2 = (4.5, 0)."""
    both = {0: measurement([[3, 4]] * 2), 1: measurement([[-3, 4]] * 2)}
    found = level(both, {0: 3, 1: 1})
    assert found[0].heterogeneity == 1.5
    assert found[1].heterogeneity == 4.5
    assert found[1].alignment == 0.75 * 7 + 0.25 * 25


def test_the_noise_of_a_half_meets_only_that_of_the_other_half():
    """(1, 2) and (1, -2) are 1 and a noise of 2: its square is not in the product."""
    one = level({0: measurement([[1, 2], [1, -2]])})[0]
    assert one.advantage_squared == -3  # 1 - 4: unbiased, not positive
    assert one.advantage == -np.sqrt(3)
    assert np.isnan(one.ratio)
    assert one.heterogeneity_squared == 0  # alone, nobody differs


def test_products_of_clients_take_both_halves():
    """Means (2, 0) and (0, 2); squares within a client are 3 = 1 * 3, not 4."""
    found = level({0: measurement([[1, 0], [3, 0]]), 1: measurement([[0, 1], [0, 3]])})
    assert found[0].advantage_squared == 3
    # D_1 B_1 = (-1/2, 1/2) of both: (3 + 3) / 4, less no product of the two.
    assert found[0].heterogeneity_squared == 1.5


def test_the_alignment_takes_fits_of_one_half_and_expectations_of_the_other():
    nothing = np.zeros((2, 1))
    alone = measurement(nothing, [[1.0], [10.0]], [[100.0], [3.0]])
    assert level({4: alone})[4].alignment == (100 * 10 + 3 * 1) / 2
    other = measurement(nothing, [[2.0], [4.0]], [[0.0], [0.0]])
    both = level({4: alone, 5: other})
    assert both[4].alignment == (501.5 + 51.5 * 3) / 2
    assert both[5].alignment == 0


def test_numbers_are_sums_over_all_pairs_of_clients():
    some, q = {n: random(n) for n in range(5)}, np.array([0.1, 0.3, 0.2, 0.0, 0.4])

    def product(a, b, n, k):
        x, y = getattr(some[n], a), getattr(some[k], b)
        return (x[0] @ y[1] + x[1] @ y[0]) / 2 if n == k else x.mean(axis=0) @ y.mean(axis=0)

    w = np.array([[product("weighted", "weighted", n, k) for k in some] for n in some])
    for n, one in level(some, dict(enumerate(q))).items():
        difference = q - np.eye(5)[n]
        close(one.heterogeneity_squared, difference @ w @ difference)
        close(one.alignment, sum(q[k] * product("advantage", "expected", n, k) for k in some))


def test_memory_grows_with_clients_and_not_with_their_square():
    some = {n: random(n, size=4) for n in range(2000)}
    tracemalloc.start()
    level(some)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6  # a number for each pair would be 32 MB


def test_order_and_names_of_clients_mean_nothing():
    some = {n: random(n) for n in range(4)}
    weights = {0: 1.0, 1: 2.0, 2: 0.5, 3: 1.0}
    names = {0: 17, 1: 3, 2: 99, 3: 0}
    found = level(some, weights)
    renamed = level(
        {names[n]: some[n] for n in (2, 0, 3, 1)}, {names[n]: q for n, q in weights.items()}
    )
    for n, name in names.items():
        close(found[n], renamed[name])


def test_only_those_who_answered_count_and_their_weights_are_shared_out_among_them():
    some = {n: random(n) for n in (1, 2)}
    close(level(some, {1: 0.1, 2: 0.3})[2], level(some, {0: 5.0, 1: 1.0, 2: 3.0})[2])


def test_a_client_without_weight_is_measured_and_moves_nobody():
    some = {n: random(n) for n in range(3)}
    found = level(some, {0: 1.0, 1: 1.0, 2: 0.0})
    without = level({n: some[n] for n in (0, 1)})
    for n in (0, 1):
        close(found[n], without[n])
    mean = (some[0].weighted + some[1].weighted).mean(axis=0) / 2
    noise = sum(np.sum((some[n].weighted[0] - some[n].weighted[1]) ** 2) for n in (0, 1)) / 16
    # Those with weight meet in M with both halves, but each with itself in different halves.
    both = np.sum((mean - some[2].weighted.mean(axis=0)) ** 2)
    own = np.sum((some[2].weighted[0] - some[2].weighted[1]) ** 2) / 4
    assert found[2].heterogeneity_squared == pytest.approx(both - own - noise)


def test_scaled_rewards_scale_norms_and_the_square_of_it_the_alignment():
    some = {n: random(n) for n in range(3)}
    scaled = {n: Measurement(*(-3 * x for x in m)) for n, m in some.items()}
    for n, one in level(some).items():
        other = level(scaled)[n]
        close(other.advantage, 3 * one.advantage)
        close(other.heterogeneity, 3 * one.heterogeneity)
        close(other.ratio, one.ratio)
        close(other.alignment, 9 * one.alignment)


def test_nobody_answered():
    assert level({}) == {}


@pytest.mark.parametrize("weights", [{0: 0.0, 1: 0.0}, {0: 1.0, 1: -1.0}, {0: np.nan, 1: 1.0}])
def test_weights_that_are_none(weights):
    with pytest.raises(ValueError, match="weights must be at least 0 and not all 0"):
        level({0: random(0), 1: random(1)}, weights)


def test_what_must_not_be_used_is_named():
    good = random(0)
    assert problem_with_measurement(good, 5) is None
    assert problem_with_measurement(good, 6) == "weighted has the shape (2, 5), not (2, 6)"
    bad = good.expected.copy()
    bad[1, 2] = np.inf
    assert problem_with_measurement(good._replace(expected=bad), 5) == "expected is not finite"
