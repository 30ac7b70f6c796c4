"""Products of features that a client may have found, and such that no data have."""

from __future__ import annotations

from functools import reduce
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedkl.algorithms import FedAvg
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Model, Task, Trained, Update, first_states
from fedkl.learning.settings import ALL, PERSONAL, CriticSettings, Sharing
from fedkl.learning.statistics import Moments, empty, merge, of_batch
from fedkl.server.validation import Limits, problem_with
from fedkl.worlds import PointTarget

F32 = np.float32
LIMITS = Limits(
    max_weight=64.0,
    iterations=1,
    max_relative_norm=2.0,
    max_statistics_factor=20.0,
    max_move_factor=5.0,
    max_magnitude=1e9,
    max_message_norm=2.0,
    coefficients={"c2": (0.5, 4.0)},
    growth={"c2": np.inf},
    message=(),
)


def moments(count: float, mean: Any, squares: Any, products: Any) -> Moments:
    return Moments(*(np.asarray(x, F32) for x in (count, mean, squares, products)))


# Three features of deviation 1, of which the first two go half together.
KNOWN = moments(640, [0, 0, 0], [640, 640, 640], [320, 0, 0])


def a_model(**places: str) -> tuple[Model, Any]:
    learner, critic = PolicyOptimisation(hidden=(2,)), CriticSettings(hidden=())
    task = Task(PointTarget(), FedAvg(), learner, critic)
    return first_states(task, Sharing(rewards="none", **places), jax.random.key(0))


MODEL = eqx.tree_at(lambda m: m.observations, a_model()[0], KNOWN)


def answer(model: Model, new: Moments) -> Trained:
    each = np.zeros(1, F32)
    metrics = {
        "kl_local": each,
        "distance_global": each,
        "guarded": np.array([False]),
        "steps": np.array([64], F32),
        "train_return": each,
        "outliers": each,
        "coefficients": {"c2": F32(1)},
        "step_scale": F32(1),
    }
    sent = eqx.tree_at(lambda m: m.observations, model, new)
    return Trained(Update(sent, F32(64), ()), metrics)


def said(new: Moments, model: Model = MODEL) -> str | None:
    return problem_with(answer(model, new), model, LIMITS)


def products(*numbers: float) -> Moments:
    """Of three features whose squares are 64, 16 and 4: products may be 32, 16 and 8."""
    return moments(64, [0, 0, 0], [64, 16, 4], numbers)


TOO_LARGE = "observations.products are larger than the squares allow"
IMPOSSIBLE = "observations.products are of no possible data"


@pytest.mark.parametrize(
    "numbers", [(0, 0, 0), (32, 0, 0), (-32, 0, 0), (32, 16, 8), (-32, 16, -8), (16, -8, -2)]
)
def test_products_that_data_can_have_are_believed(numbers):
    assert said(products(*numbers)) is None


@pytest.mark.parametrize(
    "numbers", [(32.1, 0, 0), (0, -16.1, 0), (0, 0, 8.1), (1e30, 0, 0), (-33, 16, -8)]
)
def test_no_product_is_larger_than_the_squares_allow(numbers):
    assert said(products(*numbers)) == TOO_LARGE


@pytest.mark.parametrize("numbers", [(-32, -16, -8), (32, 16, -8), (32, 0, 8), (-20, -10, -5)])
def test_three_features_cannot_all_go_apart(numbers):
    """Each pair may; but who goes apart from two goes not apart from both of a pair that does."""
    assert said(products(*numbers)) == IMPOSSIBLE


def test_what_never_varied_goes_with_nothing():
    assert said(moments(64, [0, 0, 0], [64, 16, 0], [32, 0, 0])) is None
    assert said(moments(64, [0, 0, 0], [64, 16, 0], [0, 1, 0])) == TOO_LARGE


def test_nothing_has_no_products():
    assert said(moments(0, [0, 0, 0], [0, 0, 0], [0, 0, 0])) is None
    assert said(moments(0, [0, 0, 0], [0, 0, 0], [0, 1, 0])) == TOO_LARGE


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_products_are_numbers(value):
    assert said(products(0, value, 0)) == "observations.products is not finite"


def test_products_are_one_for_each_pair():
    """A matrix would be three by three, and could be asymmetric: there is no room for one."""
    for wrong in (np.zeros(2, F32), np.zeros(9, F32), np.zeros((3, 3), F32)):
        sent = object.__new__(Moments)
        for name, value in vars(products(0, 0, 0)).items():
            object.__setattr__(sent, name, wrong if name == "products" else value)
        shape = f"float32 of shape {wrong.shape}, not float32 of shape (3,)"
        assert said(sent) == f"observations.products is {shape}"


def test_products_are_sent_where_they_are_wanted_and_only_there():
    plain = Moments(*(np.asarray(x, F32) for x in (64, [0, 0, 0], [64, 16, 4])))
    assert said(plain) == "observations.products is missing"
    unasked = eqx.tree_at(
        lambda m: m.observations,
        MODEL,
        Moments(*(np.asarray(x, F32) for x in (640, [0, 0, 0], [640, 640, 640]))),
    )
    assert said(plain, unasked) is None
    assert said(products(0, 0, 0), unasked) == (
        "observations.products is of another type than expected"
    )


def test_one_feature_has_no_pairs():
    model = eqx.tree_at(lambda m: m.observations, MODEL, moments(640, [0], [640], np.zeros(0, F32)))
    assert said(moments(64, [0], [64], np.zeros(0, F32)), model) is None


scales = st.sampled_from([1e-25, 1e-15, 1e-6, 1.0, 1e3])
batches = hnp.arrays(F32, st.just((16, 3)), elements=st.floats(-1, 1, width=32))


@given(
    st.lists(batches, min_size=1, max_size=4),
    st.tuples(scales, scales, scales),
    st.floats(-10, 10, width=32),
    st.booleans(),
)
@example([np.ones((16, 3), F32) * np.arange(16, dtype=F32)[:, None]], (1e-25, 1e3, 1.0), 0.0, False)
@example([np.linspace(0, 1, 48, dtype=F32).reshape(16, 3)] * 4, (1.0, 1.0, 1.0), 10.0, True)
@settings(max_examples=40, deadline=None)
def test_an_honest_client_is_believed_whatever_it_observes(parts, scale, centre, same):
    """As it adds up in float32: features that hardly vary, that go together, or that are alike."""
    weights = np.ones(16, bool)
    found = empty(3, products=True)
    for part in parts:
        observed = (part[:, :1] if same else part) * np.asarray(scale, F32) + F32(centre)
        found = merge(found, of_batch(observed.astype(F32), weights, products=True))
    new = jax.tree.map(lambda x: np.asarray(x, F32), found)
    unknown = eqx.tree_at(lambda m: m.observations, MODEL, jax.tree.map(np.zeros_like, KNOWN))
    assert said(new, unknown) is None


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_what_data_made_in_any_number_of_parts_is_believed(seed):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(3, 3)) * rng.choice([0, 1], size=(3, 3))
    parts = [rng.normal(size=(21, 3)) @ mixing for _ in range(3)]
    found = [of_batch(p.astype(F32), np.ones(21, bool), products=True) for p in parts]
    assert said(jax.tree.map(lambda x: np.asarray(x, F32), reduce(merge, found))) is None


# Personal parts of the policy.


def test_of_a_client_that_learns_alone_no_policy_is_taken():
    model, _ = a_model(personal=ALL)
    whole, _ = a_model()
    honest = answer(model, jax.tree.map(np.zeros_like, model.observations))
    assert problem_with(honest, model, LIMITS) is None
    curious = eqx.tree_at(lambda t: t.update.model.policy, honest, whole.policy)
    assert problem_with(curious, model, LIMITS).endswith("is of another type than expected")


@pytest.mark.parametrize("personal", [one for one in PERSONAL[1:] if one != ALL])
def test_a_personal_part_that_is_sent_anyway_is_refused(personal):
    model, client = a_model(personal=personal)
    whole, _ = a_model()
    honest = answer(model, jax.tree.map(np.zeros_like, model.observations))
    assert problem_with(honest, model, LIMITS) is None
    curious = eqx.tree_at(lambda t: t.update.model.policy, honest, whole.policy)
    assert problem_with(curious, model, LIMITS) == (
        "policy.network.biases.1 is of another type than expected"
    )
    # And a part that is not personal must come.
    silent = eqx.tree_at(lambda t: t.update.model.policy, honest, client.personal)
    assert "missing" in problem_with(silent, model, LIMITS)
    assert problem_with(honest, whole, LIMITS) == "policy.network.biases.1 is missing"
