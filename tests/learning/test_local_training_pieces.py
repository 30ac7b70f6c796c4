"""What `local_round` is made of gives, a piece at a time, what `local_round` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.learning import local_training as pieces
from fedkl.learning.rollout import rollout

KEY = jax.random.key(5)


@pytest.mark.parametrize("critic", ["federated", "local"])
def test_a_round_taken_piece_by_piece_is_the_same_round(point, start, train, critic):
    """What an engine for shared worlds does: begin, improve and fit_critic by turns, finish."""
    task = point()
    model, client = start(task, critic=critic)
    params = jax.tree.map(lambda x: x[0], task.world.clients(1, KEY))
    whole = train(task, model, client, params, KEY)

    base, carry, rows = pieces.base_of(model, client), pieces.begin(task, model, client), []
    for i in range(task.learner.iterations):
        keys = pieces.keys_of(KEY, i)
        seen = pieces.seen_with(base, carry)
        act = pieces.behaviour(task, carry.policy, seen, carry.iterations)
        data = rollout(task.world, params, act, 64, keys.run)
        args = (task, model.policy, base, carry, data, jnp.asarray(i), keys.policy)
        carry, batch, metrics = jax.jit(pieces.improve)(*args)
        carry = jax.jit(pieces.fit_critic)(task, carry, batch, keys.critic)
        rows.append(metrics)
    metrics = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    update, after = pieces.finish(model, client, carry, metrics)
    metrics |= pieces.last_metrics(carry)
    for one, other in zip(
        jax.tree.leaves(whole), jax.tree.leaves((update, after, metrics)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
