"""GAE against a plain loop over each episode by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.learning.advantage import advantages

H, N = 7, 4
jitted = jax.jit(advantages)


def one_episode(reward, value, after, discount, lam):
    """GAE of one episode as its definition has it: a double sum, not a recursion."""
    following = np.append(value[1:], after)
    delta = reward + discount * following - value
    return np.array(
        [sum((discount * lam) ** k * d for k, d in enumerate(delta[t:])) for t in range(len(delta))]
    )


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(1, H + 1), min_size=N, max_size=N),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_agrees_with_a_loop_over_single_episodes(seed, ends, discount, lam):
    """An end of H + 1 stands for an episode that the time limit cut off after H steps."""
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=(2, H, N))
    last = rng.normal(size=N)
    step = np.arange(1, H + 1)[:, None]
    terminated, mask = step == np.array(ends), step <= np.array(ends)
    next_value = np.where(terminated, 0.0, np.concatenate([value[1:], last[None]]))
    steps = (reward, value, next_value, ~terminated, mask)
    result = np.asarray(jitted(*steps, discount, lam))
    for i, end in enumerate(ends):
        length, after = (H, last[i]) if end > H else (end, 0.0)
        expected = one_episode(reward[:length, i], value[:length, i], after, discount, lam)
        np.testing.assert_allclose(result[:length, i], expected, rtol=1e-4, atol=1e-5)
        assert not result[length:, i].any()


@pytest.mark.parametrize(("last_value", "first_return"), [(0.0, 2.75), (8.0, 3.75)])
def test_with_lambda_one_advantage_plus_value_is_the_discounted_return(last_value, first_return):
    """Rewards 1, 2, 3 at discount 1/2: 1 + 2/2 + 3/4, and last_value / 8 after a time limit."""
    reward = jnp.array([[1.0], [2.0], [3.0]])
    value = jnp.array([[5.0], [-7.0], [0.5]])
    yes = jnp.ones((3, 1), bool)
    steps = (reward, value, jnp.array([[-7.0], [0.5], [last_value]]), yes, yes)
    gain = advantages(*steps, 0.5, 1.0)
    assert float((gain + value)[0, 0]) == pytest.approx(first_return)


def test_what_follows_an_end_has_no_influence_even_if_it_is_not_a_number():
    mask, continues = jnp.array([[True], [True], [False]]), jnp.array([[True], [False], [True]])
    reward, value = jnp.array([[1.0], [2.0], [jnp.nan]]), jnp.array([[0.0], [4.0], [jnp.nan]])
    steps = (reward, value, jnp.array([[4.0], [0.0], [jnp.nan]]), continues, mask)
    gain = advantages(*steps, 0.5, 0.5)
    # delta = (1 + 4/2 - 0, 2 - 4)
    np.testing.assert_allclose(gain[:, 0], [3 - 2 / 4, -2, 0])


def test_nothing_flows_back_over_a_boundary():
    """Two episodes in a column, of two steps and one; each is as it would be alone."""
    reward = jnp.array([[1.0], [2.0], [100.0]])
    zero = jnp.zeros((3, 1))
    steps = (reward, zero, zero, jnp.array([[True], [False], [False]]), jnp.ones((3, 1), bool))
    assert advantages(*steps, 0.5, 1.0)[:, 0].tolist() == [1 + 2 / 2, 2, 100]


def test_rows_of_who_waits_have_no_advantage():
    """An episode of one step, two rows that do not count, and an episode of two steps."""
    reward = jnp.array([[1.0], [7.0], [7.0], [2.0], [4.0]])
    zero = jnp.zeros((5, 1))
    continues = jnp.array([[False], [True], [True], [True], [False]])
    mask = jnp.array([[True], [False], [False], [True], [True]])
    steps = (reward, zero, zero, continues, mask)
    assert advantages(*steps, 0.5, 1.0)[:, 0].tolist() == [1, 0, 0, 2 + 4 / 2, 4]
