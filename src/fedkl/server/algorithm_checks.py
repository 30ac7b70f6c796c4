"""Checks of a plugin's algorithm before the first round, with a sentence that names the hook.

A penalty without a finite slope where every round begins would otherwise be rolled back by the
guard, iteration by iteration, in a training that goes nowhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from fedkl.algorithms.base import Algorithm
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Start, Task
from fedkl.clients.round import observation_stats, policy_of
from fedkl.core.errors import UserError
from fedkl.io.arrays import mismatch, to_arrays
from fedkl.learning.penalty import Coefficient
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import HookInput, PolicyBatch, at_step, measure
from fedkl.learning.randomness import Purpose, key_for
from fedkl.server.world_checks import written_in_jax
from fedkl.worlds.base import Continuous

if TYPE_CHECKING:
    from fedkl.config.config import Config

_SAMPLES = 8
_A_STEP = 1e-3
"""The distance by which each parameter is moved, to look near where a round begins."""
_AT_START = "where the local policy is the global one, as at the start of every round"
_ROOT = "the root of a divergence has an infinite slope at 0: fedkl.algorithms.safe_sqrt has not"


def require_sound_hooks(config: Config) -> None:
    """Call the hooks of a plugin's algorithm once, on a few random samples.

    Raises:
        UserError: one gives something else than a round can use.
    """
    algorithm, learner = config.algorithm, config.learner
    if type(algorithm).__module__.startswith("fedkl."):
        return
    _require_coefficients(algorithm)
    with _written_in_jax(algorithm, "client_state` or `server_state"):
        model, client = config.first_states
    for hook, first in (("client_state", client.own), ("server_state", model.shared)):
        _require_finite(algorithm, hook, first)
    if not isinstance(learner, PolicyOptimisation):
        return
    key = key_for(config.seed, Purpose.TRAINING)
    model, client = jax.tree.map(jnp.asarray, (model, client))
    start = Start(model, client, key)
    begun = _begun(config, learner, start)
    with _written_in_jax(algorithm, "prepare"):
        begun = begun._replace(prepared=algorithm.prepare(begun, key))
        jax.eval_shape(lambda a, now: a.prepare(now, key), algorithm, begun)
    moved = jax.tree.map(lambda x: x * 1.01 + 0.01, begun.policy)
    for policy, where in ((begun.policy, _AT_START), (moved, "for a policy that has moved")):
        _require_sound_steps(algorithm, at_step(begun, policy, begun.batch, 0), where)
    _require_slope(algorithm, begun, (moved, jax.tree.map(lambda x: x * 1.5 + 0.2, begun.policy)))
    _require_sound_ends(config, learner, start, moved)


def _require_sound_steps(algorithm: Algorithm, at: HookInput, where: str) -> None:
    """Check the hooks of an iteration, for one policy."""
    with _written_in_jax(algorithm, "penalty"):
        _require_number(algorithm, "penalty", _twice(algorithm, "penalty", at), where)
        slope = jax.grad(lambda p: _penalty(algorithm, at, p))(at.policy)
        jax.eval_shape(lambda a, at: a.penalty(at), algorithm, at)
    if not _finite(slope):
        hint = f" ({_ROOT})" if where == _AT_START else ""
        raise UserError(
            f"the algorithm {algorithm.name} cannot be trained: the gradient of `penalty` is "
            f"not finite {where}{hint}"
        )
    with _written_in_jax(algorithm, "gradient"):
        _require_alike(
            algorithm, "gradient", slope, _twice(algorithm, "gradient", slope, at), where
        )
        jax.eval_shape(lambda a, g, at: a.gradient(g, at), algorithm, slope, at)
    with _written_in_jax(algorithm, "distance_to_global"):
        _twice(algorithm, "distance_to_global", at)
        measured = measure(algorithm, at)
        _require_number(algorithm, "distance_to_global", measured.distance_global, where)
        jax.eval_shape(lambda a, at: a.distance_to_global(at), algorithm, at)
    with _written_in_jax(algorithm, "adapt"):
        _require_alike(
            algorithm, "adapt", at.coefficients, _twice(algorithm, "adapt", at, measured), where
        )
        jax.eval_shape(lambda a, at, m: a.adapt(at, m), algorithm, at, measured)


def _twice(algorithm: Algorithm, hook: str, *given: Any) -> Any:
    """Call a hook twice with the same input, and return what it gives.

    Raises:
        UserError: it gives something else the second time.
    """
    first, second = (getattr(algorithm, hook)(*given) for _ in range(2))
    if _bits(first) != _bits(second):
        raise UserError(
            f"the algorithm {algorithm.name} cannot be trained: `{hook}` gives something else when "
            "it is called again with the same input. What Python remembers (a list, a counter) is "
            "looked at when a hook is compiled and not when it runs: keep it in `client_state`, or "
            "in a coefficient"
        )
    return first


def _bits(tree: PyTree) -> tuple[Any, list[bytes]]:
    return jax.tree.structure(tree), [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def _require_slope(algorithm: Algorithm, begun: HookInput, others: Sequence[Policy]) -> None:
    """Check that a penalty which depends on the policy has a gradient somewhere.

    Raises:
        UserError: it changes in steps.
    """

    def number(policy: Policy) -> Any:
        return _penalty(algorithm, begun, policy)

    at_start = number(begun.policy)
    # As far as a step goes: a penalty may have a cap, which the others are beyond.
    near = jax.tree.map(lambda x: x + _A_STEP, begun.policy)
    changed = [policy for policy in (near, *others) if number(policy) != at_start]
    slopes = [jax.grad(number)(policy) for policy in changed]
    if slopes and not any(np.any(leaf) for slope in slopes for leaf in jax.tree.leaves(slope)):
        raise UserError(
            f"the algorithm {algorithm.name} cannot be trained: `penalty` depends on the policy, "
            "but its gradient is 0 wherever it was tried, so it would change nothing. What rounds "
            "or compares (jnp.round, jnp.floor, astype(int), >) has no slope"
        )


def _require_sound_ends(
    config: Config, learner: PolicyOptimisation, start: Start, moved: Policy
) -> None:
    """Check the hooks of a round's end, on a client and on the server."""
    algorithm, task, where = config.algorithm, config.task, "after a round"
    none = jnp.zeros(learner.iterations)
    metrics = {"guarded": none > 0, "distance_global": none}
    end = learner.begin(task, start)._replace(policy=moved, step_size_sum=jnp.ones(()))
    result = learner.round_result(task, start, end, metrics)
    with _written_in_jax(algorithm, "adapt_after_round"):
        settled = jax.jit(lambda a, r: a.adapt_after_round(r))(algorithm, result)
    _require_alike(algorithm, "adapt_after_round", result.coefficients, settled, where)
    with _written_in_jax(algorithm, "finish"):
        found = jax.jit(lambda a, r: a.finish(r))(algorithm, result)
    said = f"the algorithm {algorithm.name} cannot be trained: "
    if not isinstance(found, tuple) or len(found) != 2:
        raise UserError(
            f"{said}`finish` must give two things, what the client keeps and its message, not "
            f"{type(found).__name__}"
        )
    kept, message = jax.device_get(found)
    own, shared = start.client.own, jax.device_get(start.model.shared)
    if problem := mismatch(to_arrays({"client_state": own}), to_arrays({"client_state": kept})):
        raise UserError(
            f"{said}what `finish` has the client keep is not what `client_state` gives: {problem}"
        )
    _require_finite(algorithm, "finish", (kept, message))
    clients = config.federation.clients
    gathered = algorithm.gather(shared, [message] * min(2, clients), clients)
    _require_alike(algorithm, "gather", shared, gathered, where, "`server_state` gives")


def _written_in_jax(algorithm: Algorithm, hook: str) -> contextlib.AbstractContextManager[None]:
    return written_in_jax(f"the algorithm {algorithm.name} cannot be trained", hook)


def _require_coefficients(algorithm: Algorithm) -> None:
    found = algorithm.coefficients()
    if not isinstance(found, dict) or any(not isinstance(c, Coefficient) for c in found.values()):
        raise UserError(
            f"the algorithm {algorithm.name} cannot be trained: `coefficients` must give a dict of "
            f"Coefficient (of fedkl.algorithms) by name, not {found!r}"
        )


def _require_finite(algorithm: Algorithm, hook: str, found: PyTree) -> None:
    if not _finite(found):
        raise UserError(
            f"the algorithm {algorithm.name} cannot be trained: what `{hook}` gives is not finite"
        )


def _begun(config: Config, learner: PolicyOptimisation, start: Start) -> HookInput:
    """The start of a client's first iteration, on random samples."""
    model, client, key = start
    policy = policy_of(model, client)
    batch, known = _batch(config.task, policy, key), observation_stats(model, client)
    coefficients, first = client.coefficients, jnp.int32(0)
    # Nothing has been seen yet; `known` has the shape of what would have been.
    return learner.hook_input(start, coefficients, policy, batch, known, known, first, key)


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
    algorithm: Algorithm,
    hook: str,
    given: PyTree,
    found: PyTree,
    where: str,
    whose: str = "it was given",
) -> None:
    said = f"the algorithm {algorithm.name} cannot be trained: what `{hook}` gives"
    # Numbers of Python's are as good as arrays.
    wanted, got = (to_arrays({hook: jax.tree.map(np.asarray, x)}) for x in (given, found))
    got = {n: np.asarray(a, wanted[n].dtype) if n in wanted else a for n, a in got.items()}
    if problem := mismatch(wanted, got):
        raise UserError(f"{said} has not the structure of what {whose}: {problem}")
    if not _finite(found):
        raise UserError(f"{said} is not finite {where}")


def _finite(tree: PyTree) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))
