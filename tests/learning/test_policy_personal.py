"""A policy taken apart and put together again."""

import jax
import numpy as np
import pytest

from fedkl.learning.policy import Policy, only, personal_part, whole, without
from fedkl.learning.settings import NONE, PERSONAL, LearnerSettings
from fedkl.worlds import Chain, PointTarget

WORLDS = {"gaussian": PointTarget(), "categorical": Chain()}


@pytest.fixture(scope="module", params=WORLDS)
def policy(request):
    made = Policy(WORLDS[request.param], LearnerSettings(hidden=(3,)), jax.random.key(0))
    return jax.tree.map(lambda x: x + 1.0, made)


def other(policy):
    return jax.tree.map(lambda x: 10 * x, policy)


def test_nothing_is_personal_unless_it_is_said(policy):
    assert personal_part(policy, NONE) is None
    assert without(policy, None) is policy
    assert whole(policy, None) is policy
    assert only(policy, None) is None


def test_an_action_bias_is_the_last_bias_alone(policy):
    part = personal_part(policy, "action-bias")
    np.testing.assert_array_equal(part.network.biases[-1], policy.network.biases[-1])
    assert part.network.biases[:-1] == (None,)
    assert part.network.weights == (None, None)
    assert part.log_std is None


def test_a_last_layer_is_the_last_weights_and_biases(policy):
    part = personal_part(policy, "last-layer")
    np.testing.assert_array_equal(part.network.biases[-1], policy.network.biases[-1])
    np.testing.assert_array_equal(part.network.weights[-1], policy.network.weights[-1])
    assert part.network.weights[:-1] == part.network.biases[:-1] == (None,)
    assert part.log_std is None


@pytest.mark.parametrize("which", PERSONAL[1:])
def test_what_is_taken_out_and_what_is_left_are_the_policy_again(policy, which):
    part = personal_part(policy, which)
    left = without(policy, part)
    counts = [len(jax.tree.leaves(x)) for x in (part, left, policy)]
    assert counts[0] + counts[1] == counts[2]
    assert jax.tree.structure(whole(left, part)) == jax.tree.structure(policy)
    jax.tree.map(np.testing.assert_array_equal, whole(left, part), policy)
    jax.tree.map(np.testing.assert_array_equal, only(policy, part), part)


@pytest.mark.parametrize("which", PERSONAL[1:])
def test_a_part_says_where_not_what(policy, which):
    """What is taken out of another policy is the other's."""
    part = personal_part(policy, which)
    jax.tree.map(
        np.testing.assert_array_equal,
        only(other(policy), part),
        personal_part(other(policy), which),
    )
    jax.tree.map(
        np.testing.assert_array_equal, without(other(policy), part), other(without(policy, part))
    )


def test_all_of_a_policy_leaves_nothing_to_share(policy):
    part = personal_part(policy, "all")
    jax.tree.map(np.testing.assert_array_equal, part, policy)
    assert jax.tree.leaves(without(policy, part)) == []


def test_a_policy_without_hidden_layers_has_a_last_one(policy):
    linear = Policy(PointTarget(), LearnerSettings(hidden=()), jax.random.key(0))
    part = personal_part(linear, "last-layer")
    left = without(linear, part)
    assert [x.shape for x in jax.tree.leaves(left)] == [(1,)]  # the log deviation
    jax.tree.map(np.testing.assert_array_equal, whole(left, part), linear)
