"""Checks of a plugin's algorithm before the first round, with a sentence that names the hook.

A penalty without a finite slope where every round begins would otherwise be rolled back by the
guard, iteration by iteration, in a training that goes nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from fedkl.algorithms.base import Algorithm
from fedkl.clients.records import Start, Task
from fedkl.clients.round import PolicyOptimisation, observation_stats, policy_of
from fedkl.core.errors import UserError
from fedkl.io.arrays import mismatch, to_arrays
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import HookInput, PolicyBatch, at_step, measure
from fedkl.learning.randomness import Purpose, key_for
from fedkl.worlds.base import Continuous

if TYPE_CHECKING:
    from fedkl.config.config import Config

_SAMPLES = 8
_AT_START = "where the local policy is the global one, as at the start of every round"
_ROOT = "the root of a divergence has an infinite slope at 0: fedkl.algorithms.safe_sqrt has not"


def require_sound_hooks(config: Config) -> None:
    """Call the hooks of a plugin's algorithm once, on a few random samples.

    Raises:
        UserError: one gives something else than a round can use.
    """
    algorithm, learner = config.algorithm, config.learner
    ours = type(algorithm).__module__.startswith("fedkl.")
    if ours or not isinstance(learner, PolicyOptimisation):
        return
    key = key_for(config.seed, Purpose.TRAINING)
    begun = _begun(config, learner, key)
    begun = begun._replace(prepared=algorithm.prepare(begun, key))
    moved = jax.tree.map(lambda x: x * 1.01 + 0.01, begun.policy)
    for policy, where in ((begun.policy, _AT_START), (moved, "for a policy that has moved")):
        at = at_step(begun, policy, begun.batch, 0)
        _require_number(algorithm, "penalty", algorithm.penalty(at), where)
        slope = jax.grad(lambda p, at=at: _penalty(algorithm, at, p))(policy)
        if not _finite(slope):
            hint = f" ({_ROOT})" if where == _AT_START else ""
            raise UserError(
                f"the algorithm {algorithm.name} cannot be trained: the gradient of `penalty` is "
                f"not finite {where}{hint}"
            )
        _require_alike(algorithm, "gradient", slope, algorithm.gradient(slope, at), where)
        measured = measure(algorithm, at)
        _require_number(algorithm, "distance_to_global", measured.distance_global, where)
        adapted = algorithm.adapt(at, measured)
        _require_alike(algorithm, "adapt", at.coefficients, adapted, where)


def _begun(config: Config, learner: PolicyOptimisation, key: PRNGKeyArray) -> HookInput:
    """The start of a client's first iteration, on random samples."""
    model, client = jax.tree.map(jnp.asarray, config.first_states)
    start = Start(model, client, key)
    policy = policy_of(start.model, start.client)
    batch, seen = _batch(config.task, policy, key), observation_stats(start.model, start.client)
    coefficients = start.client.coefficients
    return learner.hook_input(start, coefficients, policy, batch, seen, jnp.int32(0), key)


def _batch(task: Task, policy: Policy, key: PRNGKeyArray) -> PolicyBatch:
    seen_key, act_key, gain_key = jax.random.split(key, 3)
    observation = jax.random.normal(seen_key, (_SAMPLES, task.world.observation_size))
    actions = task.world.actions
    if isinstance(actions, Continuous):
        action = jax.random.normal(act_key, (_SAMPLES, actions.size))
    else:
        action = jax.random.randint(act_key, (_SAMPLES,), 0, actions.number)
    output = policy.network(observation)
    return PolicyBatch(
        observation=observation,
        action=action,
        advantage=jax.random.normal(gain_key, (_SAMPLES,)),
        log_prob=policy.distribution(output).log_prob(action),
        previous=output,
        broadcast=output,
        weight=jnp.ones(_SAMPLES),
    )


def _penalty(algorithm: Algorithm, at: HookInput, policy: Policy) -> Any:
    return jnp.asarray(algorithm.penalty(at_step(at, policy, at.batch, 0)), jnp.float32)


def _require_number(algorithm: Algorithm, hook: str, found: Any, where: str) -> None:
    said = f"the algorithm {algorithm.name} cannot be trained: `{hook}` must give a finite number"
    try:
        number = np.asarray(found, np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"{said}, not {type(found).__name__}") from error
    if number.shape:
        raise UserError(f"{said}, not an array of shape {number.shape} (a mean over states, say)")
    if not np.isfinite(number):
        raise UserError(f"{said}, not {number:g} {where}")


def _require_alike(
    algorithm: Algorithm, hook: str, given: PyTree, found: PyTree, where: str
) -> None:
    said = f"the algorithm {algorithm.name} cannot be trained: what `{hook}` gives"
    # Numbers of Python's are as good as arrays.
    wanted, got = (to_arrays({hook: jax.tree.map(np.asarray, x)}) for x in (given, found))
    got = {n: np.asarray(a, wanted[n].dtype) if n in wanted else a for n, a in got.items()}
    if problem := mismatch(wanted, got):
        raise UserError(f"{said} has not the structure of what it was given: {problem}")
    if not _finite(found):
        raise UserError(f"{said} is not finite {where}")


def _finite(tree: PyTree) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))
