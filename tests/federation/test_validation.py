"""No update reaches the average unchecked."""

import equinox as eqx
import numpy as np
import pytest

from fedkl.federation.validation import problem_with
from fedkl.learning.state import Model, Update


def model(policy: np.ndarray) -> Model:
    return Model({"w": policy}, {"v": np.ones(4, np.float32)}, None, None, {})


GLOBAL = model(np.array([3.0, 4.0], np.float32))


STATE = {"critic": np.zeros(2, np.float32)}


def problem(sent: Update, limit: float, state: object = STATE) -> str | None:
    return problem_with(sent, state, GLOBAL, limit)


def update(policy: np.ndarray, weight: float = 10.0) -> Update:
    return Update(model(policy), np.float32(weight))


def test_a_sound_update_has_no_problem():
    assert problem(update(np.array([3.1, 4.0], np.float32)), 10.0) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_named(bad):
    sent = update(np.array([bad, 4.0], np.float32))
    assert problem(sent, 10.0) == "policy.w is not finite"


def test_a_wrong_shape_is_named_even_if_it_would_broadcast():
    found = problem(update(np.array([3.0], np.float32)), 10.0)
    assert found == "policy.w is float32 of shape (1,), not float32 of shape (2,)"


def test_a_wrong_dtype_is_named():
    found = problem(update(np.array([3.0, 4.0])), 10.0)
    assert found == "policy.w is float64 of shape (2,), not float32 of shape (2,)"


def test_a_missing_part_is_named():
    sent = eqx.tree_at(lambda u: u.model.critic, update(GLOBAL.policy["w"]), {})
    assert problem(sent, 10.0) == "critic.v is missing"


def test_a_superfluous_part_is_named():
    sent = eqx.tree_at(
        lambda u: u.model.coefficients, update(GLOBAL.policy["w"]), {"c1": np.float32(1)}
    )
    assert problem(sent, 10.0) == "coefficients.c1 is not expected"


def test_a_move_beyond_the_limit_is_named():
    # The policy's norm is 5, so with a factor of 2 it may move by 10.
    near, far = np.array([13.0, 4.0], np.float32), np.array([13.1, 4.0], np.float32)
    assert problem(update(near), 2.0) is None
    assert problem(update(far), 2.0) == "policy moved by 10.1, more than 10"


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan])
def test_a_weight_that_is_no_number_of_samples_is_refused(weight):
    assert "weight" in problem(update(GLOBAL.policy["w"], weight), 10.0)


def test_a_state_that_is_not_finite_is_named():
    broken = {"critic": np.array([0.0, np.nan], np.float32)}
    assert problem(update(GLOBAL.policy["w"]), 10.0, broken) == "state.critic is not finite"
