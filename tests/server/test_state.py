"""The server's first state, and what is kept where."""

import jax
import numpy as np
import pytest

from fedkl.server.loop import Federation
from fedkl.server.state import at_the_server, broadcast

pytestmark = pytest.mark.usefixtures("quick_compilation")


def client_of(config):
    """Every client's state before its first round."""
    return config.first_states[1]


def test_the_first_state_depends_on_the_seed_alone(tiny):
    a, b, other = (Federation(tiny(seed=s)).state for s in (0, 0, 1))
    same = jax.tree.map(np.array_equal, a, b)
    assert all(jax.tree.leaves(same))
    weights = [s.model.policy.network.weights[0] for s in (a, other)]
    assert not np.array_equal(*weights)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fmarl", "scaffold"])
def test_all_algorithms_start_from_the_same_policy(tiny, algorithm):
    theirs, ours = (Federation(tiny(a)).state.model.policy for a in (algorithm, "fedkl"))
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, theirs, ours)))


@pytest.mark.parametrize("part", ["critic", "observation_statistics", "reward_statistics"])
def test_what_is_shared_is_not_kept_by_clients_and_the_other_way_round(tiny, part):
    field = {"observation_statistics": "observations", "reward_statistics": "rewards"}
    name = field.get(part, part)
    for where, shared in (("federated", True), ("local", False)):
        config = tiny(**{f"federation__{part}": where})
        assert (getattr(Federation(config).state.model, name) is not None) == shared
        assert (getattr(client_of(config), name) is None) == shared


def test_averaged_coefficients_travel_with_the_model(tiny):
    config = tiny(learner__c2_across_rounds="averaged")
    assert set(Federation(config).state.model.coefficients) == {"c2"}
    assert set(client_of(config).coefficients) == {"c1", "c2"}


def test_the_server_counts_in_float64_and_sends_float32(tiny):
    model = Federation(tiny()).state.model
    assert model.observations.count.dtype == np.float64
    assert broadcast(model).observations.count.dtype == np.float32


def test_only_moments_are_kept_in_float64(tiny):
    model = at_the_server(broadcast(Federation(tiny("scaffold")).state.model))
    assert {x.dtype for x in jax.tree.leaves((model.observations, model.rewards))} == {
        np.dtype(np.float64)
    }
    rest = jax.tree.leaves((model.policy, model.critic, model.coefficients, model.shared))
    assert {x.dtype for x in rest} == {np.dtype(np.float32)}


def test_a_part_that_clients_keep_stays_away_from_the_server(tiny):
    config = tiny(federation__observation_statistics="local", federation__critic="local")
    model = Federation(config).state.model
    assert model.observations is None
    assert model.critic is None
    assert broadcast(model).observations is None


def test_what_the_links_remember_is_part_of_the_state(tiny):
    plain = Federation(tiny()).state
    assert (plain.selector, plain.aggregation) == ((), {})
    state = Federation(tiny(selection__name="round-robin", aggregation__step="adam")).state
    assert state.selector.tolist() == [0, 0, 0, 0]
    assert set(state.aggregation) == {"policy", "critic"}
    leaves = jax.tree.leaves(state)
    assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)
