"""What is usual among clients and rounds, and who is too far from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.clients.records import Model, Trained, Update
from fedkl.learning.policy import MLP, Policy
from fedkl.learning.settings import LearnerSettings
from fedkl.learning.statistics import Moments
from fedkl.server.outliers import (
    REMEMBERED,
    Usual,
    judge,
    no_history,
    traits_of,
    unconfirmed,
    usual_before,
    without_statistics,
)
from fedkl.server.validation import Limits
from fedkl.worlds import PointTarget

F32 = np.float32
KEY = jax.random.key(0)
LIMITS = Limits(
    max_weight=64.0,
    iterations=1,
    max_relative_norm=10.0,
    max_statistics_factor=20.0,
    max_move_factor=5.0,
    max_magnitude=1e6,
    max_message_norm=20.0,
    coefficients={"c2": (0.01, 1000.0)},
    growth={"c2": np.inf},
    message=(),
)
OFF = LIMITS._replace(max_statistics_factor=np.inf, max_move_factor=np.inf)


def policy() -> Policy:
    blank = Policy(PointTarget(), LearnerSettings(hidden=(), initial_log_std=0.0), KEY)
    return jax.tree.map(np.zeros_like, jax.device_get(blank))


def critic(weight: float) -> MLP:
    net = jax.tree.map(np.zeros_like, jax.device_get(MLP((1, 1), KEY)))
    return jax.tree.map(lambda x: np.full_like(x, weight) if x.ndim == 2 else x, net)


def moments(count: float, mean: Any, squares: Any, products: Any = None) -> Moments:
    least = (np.asarray(x, F32) for x in (count, mean, squares))
    return Moments(*least, None if products is None else np.asarray(products, F32))


def data(samples: np.ndarray) -> Moments:
    """The moments of samples, as a client reports them."""
    mean = samples.mean(axis=0)
    return moments(len(samples), mean, np.square(samples - mean).sum(axis=0))


NOTHING = moments(0, [0, 0], [0, 0])


def model(seen: Moments | None = NOTHING, weight: float = 0.0, c2: float = 1.0) -> Model:
    """A critic of one weight, whose move from 0 has that length (a norm below 1 counts as 1)."""
    return Model(policy(), critic(weight), seen, None, {"c2": F32(c2)}, ())


def said(
    *seen: Moments | None,
    weights: Sequence[float] = (),
    c2: Sequence[float] = (),
    history: Usual | None = None,
    limits: Limits = LIMITS,
    known: Moments | None = None,
) -> tuple[dict[int, str], Usual]:
    """Who is an outlier among clients with these data, moves and coefficients."""
    number = len(seen) or len(weights) or len(c2)
    seen = seen or (NOTHING,) * number
    weights, c2 = weights or (0.1,) * number, c2 or (1.0,) * number
    if known is None and seen[0] is not None:
        known = jax.tree.map(np.zeros_like, seen[0])
    start = model(known)
    answers = {
        client: Trained(Update(model(*its), F32(64), ()), {})
        for client, its in enumerate(zip(seen, weights, c2, strict=True))
    }
    history = no_history(start) if history is None else history
    return judge(answers, dict.fromkeys(answers, start), history, limits)


# Moves: the median of 0.1, 0.2, 0.3 is 0.2, so one of 1 is as long as it may be.


def test_a_move_is_as_long_as_it_may_be_among_clients_and_no_longer():
    assert said(weights=[0.1, 0.2, 0.2, 0.3, 1.0])[0] == {}
    assert said(weights=[0.1, 0.2, 0.2, 0.3, 1.01])[0] == {
        4: "the move of critic is 5.05 times the median over clients, more than 5"
    }


def test_a_lie_in_the_first_round_is_found_if_there_are_three_clients():
    # 9.9 norms: what one of two says neither is outvoted by.
    assert [*said(weights=[0.1, 9.9, 0.1])[0]] == [1]
    assert said(weights=[0.1, 9.9])[0] == {}


def test_moves_that_all_clients_make_are_no_outliers_whatever_was_before():
    history = None
    for length in 0.01, 0.01, 0.01, 1.0, 1.0:
        found, history = said(weights=[length] * 3, history=history)
        assert found == {}


def test_of_one_client_in_a_round_the_rounds_before_are_the_judge():
    _, history = said(weights=[0.1])
    found, after = said(weights=[9.9], history=history)
    assert found == {0: "the move of critic is 99 times the median over clients, more than 5"}
    # What all who answer say again and again is how it is: the majority of the last rounds.
    found, after = said(weights=[9.9], history=after)
    assert found == {}


def test_where_nobody_moved_there_is_nothing_to_compare_with():
    assert said(weights=[0.0, 0.0, 0.0, 0.5])[0] == {}


# The first statistics.


def waiting(*seen: Moments, history: Usual | None = None, limits: Limits = LIMITS) -> list[int]:
    """Whose statistics wait, of clients with these data."""
    start = model()
    answers = {c: Trained(Update(model(its), F32(64), ()), {}) for c, its in enumerate(seen)}
    history = no_history(start) if history is None else history
    return [*unconfirmed(answers, dict.fromkeys(answers, start), history, limits)]


def test_of_two_clients_the_one_that_sees_far_beyond_the_other_is_not_believed_at_once():
    near, far = moments(48, [3, 2], [48, 0]), moments(48, [3, 2], [48 * 1e8, 0])
    assert waiting(near, near) == []
    assert waiting(near, far) == [1]
    assert waiting(far, near) == [0]
    assert waiting(moments(48, [1e5, 2], [48, 0]), near) == [0]
    # Both are far from what the other has seen.
    assert waiting(moments(48, [-1e5, 2], [48, 0]), moments(48, [1, 2], [48, 0])) == [0]
    # Others are for the medians, and one client has nobody to be compared with.
    assert waiting(near, near, far) == waiting(far) == []
    assert waiting(near, far, limits=OFF) == []


def test_only_the_first_statistics_wait():
    _, history = said(NOTHING, NOTHING)
    near, far = moments(48, [3, 2], [48, 0]), moments(48, [3, 2], [48 * 1e8, 0])
    assert waiting(near, far, history=history) == []


def test_an_answer_without_its_statistics_is_otherwise_the_same():
    answer = Trained(Update(model(USUAL, weight=0.5), F32(64), ()), {"a": 1})
    left = without_statistics(answer)
    assert float(left.update.model.observations.count) == 0
    assert left.update.model.rewards is None
    assert left.update.model.critic is answer.update.model.critic
    assert left.metrics == answer.metrics


# Coefficients.


def test_a_coefficient_is_compared_with_the_median():
    assert said(c2=[1.0, 1.0, 20.0])[0] == {}
    assert said(c2=[1.0, 1.0, 20.5])[0] == {
        2: "the growth of coefficients.c2 is 20.5 times the median over clients, more than 20"
    }
    assert said(c2=[1.0, 1.0, 0.01])[0] == {}  # a small one takes hardly anything from a mean
    # That of a client whose iterations were all rolled back stays what was broadcast, 1.
    assert said(c2=[0.01, 0.01, 1.0])[0] == {}


# Data: three clients of mean 3 and deviation 1, so that usual is 3, give or take 3 + 1.

USUAL = moments(48, [3, 2], [48, 0])


def test_a_mean_lies_within_the_factor_of_what_is_usual_among_clients():
    for mean in -77, 83:
        assert said(USUAL, USUAL, USUAL, moments(48, [mean, 2], [48, 0]))[0] == {}
    for mean in -77.1, 83.1:
        assert said(USUAL, USUAL, USUAL, moments(48, [mean, 2], [48, 0]))[0] == {
            3: "observations.mean is 20 times too far from other clients', over 20"
        }


def test_a_deviation_is_within_the_factor_of_what_is_usual_among_clients():
    # As much as 20 (3 + 1) = 80; the sum of 48 squares is then 48 * 6400 = 307,200.
    assert said(USUAL, USUAL, USUAL, moments(48, [3, 2], [307_200, 0]))[0] == {}
    assert said(USUAL, USUAL, USUAL, moments(48, [3, 2], [308_000, 0]))[0] == {
        3: "observations deviate 20 times as much as other clients', over 20"
    }


def test_data_that_cannot_widen_the_models_statistics_are_no_outliers():
    """Near an optimum everybody sees nearly the same, and who explores a little 100 times as much.

    The model has a mean of 0 and a deviation of 1: data 0.6 away may have a deviation of
    0.8.
    """
    known = moments(480, [0, 0], [480, 480])
    calm = [moments(48, [0.001 * k, 0], [48e-6, 48e-6]) for k in range(3)]
    wide = moments(48, [0.6, 0], [48 * 0.639, 0])
    assert [*said(*calm, wide)[0]] == [3]
    assert said(*calm, wide, known=known)[0] == {}
    wider = moments(48, [0.6, 0], [48 * 0.641, 0])
    assert said(*calm, wider, known=known)[0] == said(*calm, wider)[0]
    # Each feature by itself: the second one is as far as the first one is not.
    other = moments(48, [0.6, 0.6], [48 * 0.639, 48 * 0.641])
    assert "observations.mean" in said(*calm, other, known=known)[0][3]


def test_what_did_not_vary_so_far_may_become_anything():
    # The second feature is 2 everywhere; and rewards may be 0 until the first success.
    assert said(USUAL, USUAL, USUAL, moments(48, [3, -1e6], [48, 1e6]))[0] == {}


def test_without_factors_everybody_is_believed():
    far = moments(48, [1e6, 2], [1e12, 0])
    lies = {"weights": [0.1, 0.1, 0.1, 9.9], "c2": [1, 1, 1, 500]}
    assert said(USUAL, USUAL, USUAL, far, **lies)[0].keys() == {3}
    assert said(USUAL, USUAL, USUAL, far, **lies, limits=OFF)[0] == {}


def test_a_round_is_remembered_as_if_outliers_had_not_answered():
    far = moments(48, [1e6, 2], [48, 0])
    _, with_it = said(USUAL, USUAL, far, USUAL)
    _, without = said(USUAL, USUAL, USUAL)
    assert jax.tree.all(jax.tree.map(np.array_equal, with_it, without))


def test_who_has_no_data_neither_is_nor_makes_an_outlier():
    assert said(USUAL, NOTHING, NOTHING, NOTHING)[0] == {}
    _, history = said(NOTHING, NOTHING, NOTHING)
    assert said(USUAL, history=history)[0] == {}


def test_only_the_last_rounds_count():
    history = None
    for round_ in range(REMEMBERED + 3):
        _, history = said(moments(48, [round_, 2], [48, 0]), history=history)
    before = usual_before(history)
    # Of rounds 3 to 7 the median is 5; all but the farthest third: |4 - 5| + 1 + 4, and 6 likewise.
    assert before.answers == REMEMBERED
    np.testing.assert_allclose(before.centres["observations"], [5, 2])
    assert before.scales["observations"][1] == 0
    assert before.scales["observations"][0] == pytest.approx(8)


def test_a_model_that_a_lie_has_spoilt_does_not_lock_out_the_honest():
    """Rewards of everybody are 166 times as far as they were: that is how it is now."""
    history = None
    for centre, rounds in (1.0, 3), (166.0, 3), (1.0, 3):
        for _ in range(rounds):
            fresh = [moments(48, [centre + 0.1 * k, 2], [48, 0]) for k in range(3)]
            found, history = said(*fresh, history=history)
            assert found == {}


@pytest.mark.parametrize("clients", [3, 5])
def test_a_liar_that_goes_to_the_limit_walks_nowhere(clients):
    """What it may say next depends on the others, not on what it said before."""
    rng, history = np.random.default_rng(0), None
    for _ in range(20):
        honest = [data(rng.normal(1, 1, (48, 2)).astype(F32)) for _ in range(clients - 1)]
        reach = 1e6
        while True:
            lie = moments(48, [reach, 0], [48 * reach**2, 0])
            found, after = said(*honest, lie, history=history)
            assert found.keys() <= {clients - 1}
            if not found:
                break
            reach /= 2
        history = after
        assert reach < 20 * 3


# Products: features that are independent, and a lie in which all go together.


def test_a_covariance_of_rank_one_is_unlike_that_of_others():
    squares = np.full(4, 48.0)
    honest = [moments(48, np.zeros(4), squares, 48 * np.array(p)) for p in np.eye(6)[:4] * 0.3]
    # Three of six correlations are 0.5 with others at 0: root of 0.25 / 2 = 0.35.
    half = moments(48, np.zeros(4), squares, 24.0 * np.array([1, 1, 1, 0, 0, 0]))
    assert said(*honest, half)[0] == {}
    one = moments(48, np.zeros(4), squares, np.full(6, 48.0))
    assert said(*honest, one)[0] == {
        4: "observations.products are unlike other clients': 1 apart, over 0.6"
    }
    assert said(*honest, one, limits=OFF)[0] == {}
    # If most clients see the world so, it is so.
    assert said(honest[0], one, one, one)[0].keys() == {0}


# Honest clients.

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def heterogeneous_worlds(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """The mean and deviation of a feature in the worlds of 15 clients: of any scale, and up to
    three times as different from client to client as within a client; or the same throughout."""
    scale = 10.0 ** draw(st.integers(-3, 4))
    centre = draw(st.floats(-10, 10))
    between = draw(st.sampled_from([0.0, 0.1, 1.0, 3.0]))
    within = draw(st.sampled_from([0.0, 1.0]))
    shifts = np.random.default_rng(draw(SEEDS)).uniform(-1, 1, 15)
    return scale * (centre + between * shifts), np.full(15, scale * within)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(worlds=heterogeneous_worlds(), seed=SEEDS, together=st.sampled_from([3, 5]))
def test_honest_clients_are_believed_whatever_others_have_seen(worlds, seed, together):
    rng, history = np.random.default_rng(seed), None
    clients = [*zip(*worlds, strict=True)]
    for first in range(0, len(clients), together):
        news = [
            data(rng.normal(mean, deviation, (48, 2)).astype(F32))
            for mean, deviation in clients[first : first + together]
        ]
        found, history = said(*news, history=history)
        assert found == {}


def test_a_world_whose_scale_grows_as_the_policy_learns_is_believed():
    # Speeds that double in every round, as those of a runner might; also with one client a round.
    for together in 1, 3:
        rng, history = np.random.default_rng(0), None
        for round_ in range(18):
            new = (2.0**round_ * rng.normal(1, 1, (together, 48, 2))).astype(F32)
            found, history = said(*map(data, new), history=history)
            assert found == {}


def test_two_kinds_of_client_are_believed_if_each_is_more_than_a_third():
    here, there = moments(48, [0, 0], [0.01, 0]), moments(48, [500, 0], [0.01, 0])
    assert said(here, here, here, there, there)[0] == {}
    assert said(here, here, here, here, there)[0].keys() == {4}


def test_a_coefficient_that_was_0_may_grow_to_anything_within_its_bounds():
    start, answer = model(c2=0.0), model(c2=7.0)
    trained = Trained(Update(answer, F32(64), ()), {})
    assert traits_of(trained, start).sizes["coefficients.c2"] == 1.0
