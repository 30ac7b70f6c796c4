"""What a client is sent and keeps: who has which part, and which new states nobody may keep."""

import dataclasses
import itertools

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.algorithms import (
    ALGORITHMS,
    Algorithm,
    Coefficient,
    FedAvg,
    FedKL,
    FedKLAnchored,
    Scaffold,
)
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import (
    PARTS,
    Kind,
    Model,
    Task,
    first_coefficients,
    first_states,
    problem_with_state,
)
from fedkl.learning.policy import whole as whole_policy
from fedkl.learning.settings import PERSONAL, CriticSettings, Sharing
from fedkl.worlds import Chain, PointTarget

KEY = jax.random.key(0)


def a_task(algorithm=None, **learner):
    settings = PolicyOptimisation(hidden=(3,), **learner)
    return Task(PointTarget(), algorithm or FedAvg(), settings, CriticSettings(hidden=(2,)))


def test_the_table_of_parts_names_every_field_of_the_model():
    assert list(PARTS) == [field.name for field in dataclasses.fields(Model)]
    assert set(PARTS.values()) == set(Kind)


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ("critic", "federated"),
        ("critic", "local"),
        *itertools.product(("observations", "rewards"), ("federated", "local", "none")),
    ],
)
def test_a_part_is_where_it_is_placed_and_nowhere_else(part, place):
    model, client = first_states(a_task(), Sharing(**{part: place}), KEY)
    assert (getattr(model, part) is None) == (place != "federated")
    assert (getattr(client, part) is None) == (place != "local")
    for other in {"critic", "observations", "rewards"} - {part}:
        assert getattr(model, other) is not None
        assert getattr(client, other) is None


def test_what_is_fresh_is_of_numpy_and_knows_nothing():
    sharing = Sharing("local", "local", "federated")
    model, client = first_states(a_task(), sharing, KEY)
    assert all(isinstance(x, np.ndarray | np.generic) for x in jax.tree.leaves((model, client)))
    assert float(client.step_scale) == 1
    assert int(client.iterations) == 0
    assert client.iterations.dtype == np.int32
    for moments in (model.rewards, client.observations):
        assert not any(np.any(x) for x in jax.tree.leaves(moments))
    assert not any(np.any(x) for x in jax.tree.leaves(client.critic.optimiser))


@pytest.mark.parametrize(
    ("personal", "kept", "left"),
    [("none", [], 3 + 3 + 3 + 1 + 1), ("action-bias", [1], 10), ("last-layer", [3, 1], 7)],
)
def test_a_personal_part_is_the_clients_and_not_the_models(personal, kept, left):
    """Networks of 1 - 3 - 1 numbers (3, 3, 3, 1), and a log deviation."""
    model, client = first_states(a_task(Keeper()), Sharing(personal=personal), KEY)
    whole, _ = first_states(a_task(Keeper()), Sharing(), KEY)
    assert (client.personal is None) == (personal == "none")
    assert [x.size for x in jax.tree.leaves(client.personal)] == kept
    assert sum(x.size for x in jax.tree.leaves(model.policy)) == left
    together = whole_policy(model.policy, client.personal)
    jax.tree.map(np.testing.assert_array_equal, together, whole.policy)


@pytest.mark.parametrize("personal", PERSONAL)
def test_what_an_algorithm_shares_and_keeps_is_of_what_is_sent(personal):
    model, client = first_states(a_task(Scaffold()), Sharing(personal=personal), KEY)
    for control in (model.shared, client.own):
        assert jax.tree.structure(control) == jax.tree.structure(model.policy)


def test_products_of_features_are_kept_only_for_who_asks():
    tasks = {
        name: Task(Chain(), algorithm, PolicyOptimisation(hidden=(2,)), CriticSettings(hidden=(2,)))
        for name, algorithm in {
            "fedkl": FedKL(),
            "normal": FedKLAnchored(),
            "diagonal": FedKLAnchored(anchors="diagonal"),
        }.items()
    }
    products = {
        name: first_states(task, Sharing(), KEY)[0].observations.products
        for name, task in tasks.items()
    }
    assert products["fedkl"] is products["diagonal"] is None
    assert products["normal"].tolist() == [0] * 10


def test_networks_have_the_shapes_of_their_world():
    learner, critic = PolicyOptimisation(hidden=(3,)), CriticSettings(hidden=(2,))
    model, _ = first_states(Task(Chain(), FedAvg(), learner, critic), Sharing(), KEY)
    assert [w.shape for w in model.policy.network.weights] == [(5, 3), (3, 2)]
    assert [w.shape for w in model.critic.weights] == [(5, 2), (2, 1)]
    assert model.observations.mean.shape == (5,)
    assert model.rewards.mean.shape == ()


def test_a_key_repeats_what_is_fresh_and_another_changes_it():
    one, again = (first_states(a_task(), Sharing(), KEY)[0] for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    other, _ = first_states(a_task(), Sharing(), jax.random.key(1))
    assert (one.policy.network.weights[0] != other.policy.network.weights[0]).all()
    assert (one.critic.weights[0] != other.critic.weights[0]).all()


class Keeper(Algorithm):
    """Keeps, shares and adapts something."""

    name = "keeper"
    summary = "for this test"

    def coefficients(self):
        return {
            "a": Coefficient(1.0, (0.0, 2.0), "kept"),
            "b": Coefficient(2.0, (0.0, 2.0), "averaged"),
            "c": Coefficient(3.0, (0.0, 3.0), "reset"),
        }

    def client_state(self, policy):
        return {"a copy": policy.log_std}

    def server_state(self, policy):
        return (policy.log_std + 1,)


def test_an_algorithm_says_what_else_is_kept_and_shared():
    model, client = first_states(a_task(Keeper(), initial_log_std=-2.0), Sharing(), KEY)
    assert client.own["a copy"].tolist() == [-2]
    assert model.shared[0].tolist() == [-1]


def test_the_server_has_the_coefficients_that_it_averages_and_a_client_has_all():
    model, client = first_states(a_task(Keeper(), c2=0.5), Sharing(), KEY)
    assert model.coefficients == {"b": 2}
    assert client.coefficients == {"c2": 0.5, "a": 1, "b": 2, "c": 3}
    averaged, _ = first_states(a_task(Keeper(), c2_across_rounds="averaged"), Sharing(), KEY)
    assert set(averaged.coefficients) == {"c2", "b"}


def test_every_coefficient_has_a_rule_a_range_and_a_first_value():
    fedkl = FedKL(c1=0.25, c1_bounds=(0.125, 8.0), c1_across_rounds="averaged")
    task = a_task(fedkl, c2=0.5, c2_bounds=(0.25, 4.0), c2_across_rounds="reset")
    assert task.coefficients() == {
        "c2": Coefficient(0.5, (0.25, 4.0), "reset"),
        "c1": Coefficient(0.25, (0.125, 8.0), "averaged"),
    }
    first = first_coefficients(task)
    assert {name: float(value) for name, value in first.items()} == {"c2": 0.5, "c1": 0.25}
    assert {n: c.across_rounds for n, c in a_task().coefficients().items()} == {"c2": "kept"}


# What a client may keep.


@pytest.fixture(scope="module")
def state():
    return first_states(a_task(FedKL()), Sharing("local", "local", "local"), KEY)[1]


def with_another(state, where, value):
    return eqx.tree_at(where, state, value)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_state_may_stay_as_it_is(name):
    _, state = first_states(a_task(ALGORITHMS[name]()), Sharing("local", "local", "none"), KEY)
    assert problem_with_state(state, state) is None


def test_other_numbers_are_no_problem(state):
    other = jax.tree.map(lambda x: x + np.ones_like(x), state)
    assert problem_with_state(state, other) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("where", "name"),
    [
        (lambda s: s.step_scale, "step_scale"),
        (lambda s: s.coefficients["c1"], "coefficients.c1"),
        (lambda s: s.observations.mean, "observations.mean"),
        (lambda s: s.critic.critic.biases[0], "critic.critic.biases.0"),
    ],
)
def test_a_number_that_is_not_finite_is_named(state, where, name, value):
    spoilt = where(state) * np.float32(0) + np.float32(value)
    after = with_another(state, where, spoilt)
    assert problem_with_state(state, after) == f"state.{name} is not finite"


def test_one_number_of_many_is_enough(state):
    weights = state.critic.critic.weights[0].copy()
    weights[0, 1] = np.nan
    after = with_another(state, lambda s: s.critic.critic.weights[0], weights)
    assert problem_with_state(state, after) == "state.critic.critic.weights.0 is not finite"


def test_another_shape_is_named(state):
    after = with_another(state, lambda s: s.observations.mean, np.zeros(2, np.float32))
    assert problem_with_state(state, after) == (
        "state.observations.mean is float32 of shape (2,), not float32 of shape (1,)"
    )


def test_another_dtype_is_named(state):
    after = with_another(state, lambda s: s.iterations, np.float32(1))
    assert problem_with_state(state, after) == (
        "state.iterations is float32 of shape (), not int32 of shape ()"
    )


def test_a_part_that_is_gone_or_new_is_named(state):
    less = dataclasses.replace(state, coefficients={"c2": np.float32(1)})
    assert problem_with_state(state, less) == "state.coefficients.c1 is missing"
    assert problem_with_state(less, state) == "state.coefficients.c1 is not expected"
