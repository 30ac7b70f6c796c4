"""The first state, and what is kept where."""

import jax
import numpy as np
import pytest

from fedkl.federation.loop import Federation
from fedkl.federation.state import broadcast, with_rows


def test_the_first_state_depends_on_the_seed_alone(tiny):
    a, b, other = (Federation(tiny(seed=s)).state for s in (0, 0, 1))
    same = jax.tree.map(np.array_equal, a, b)
    assert all(jax.tree.leaves(same))
    weights = [s.model.policy.network.weights[0] for s in (a, other)]
    assert not np.array_equal(*weights)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fmarl"])
def test_all_algorithms_start_from_the_same_policy(tiny, algorithm):
    theirs, ours = (Federation(tiny(a)).state.model.policy for a in (algorithm, "fedkl"))
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, theirs, ours)))


@pytest.mark.parametrize("part", ["critic", "observation_statistics", "reward_statistics"])
def test_what_is_shared_is_not_kept_by_clients_and_the_other_way_round(tiny, part):
    field = {"observation_statistics": "observations", "reward_statistics": "rewards"}
    name = field.get(part, part)
    for where, shared in (("federated", True), ("local", False)):
        state = Federation(tiny(**{f"federation__{part}": where})).state
        assert (getattr(state.model, name) is not None) == shared
        assert (getattr(state.clients, name) is None) == shared


def test_averaged_coefficients_travel_with_the_model(tiny):
    state = Federation(tiny(learner__c2_across_rounds="averaged")).state
    assert set(state.model.coefficients) == {"c2"}
    assert set(state.clients.coefficients) == {"c1", "c2"}


def test_the_server_counts_in_float64_and_sends_float32(tiny):
    model = Federation(tiny()).state.model
    assert model.observations.count.dtype == np.float64
    assert broadcast(model).observations.count.dtype == np.float32


def test_new_rows_leave_the_old_state_as_it_was(tiny):
    clients = Federation(tiny()).state.clients
    rows = jax.tree.map(lambda x: x[[1]] + 1, clients)
    after = with_rows(clients, [1], rows)
    assert clients.step_scale.tolist() == [1, 1, 1, 1]
    assert after.step_scale.tolist() == [1, 2, 1, 1]
