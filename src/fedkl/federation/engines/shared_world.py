"""The engine for worlds that clients share: one simulation on the host, every client in it.

An iteration runs the simulation once, with every selected client acting by its own policy, and then
trains the clients, a thread for each core (on an accelerator, all in one vmapped call). A client's
critic is needed only when the next episode is over, so it is fitted while the simulator runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from fedkl.federation.engines.base import Outcome, Record, clients_at_once
from fedkl.federation.settings import FederationSettings
from fedkl.learning import local_training as local
from fedkl.learning.critic import CriticBatch
from fedkl.learning.local_training import Base, Carry, Task
from fedkl.learning.on_host import Acting, acting, minds, seeds_of, trajectories
from fedkl.learning.policy import Policy
from fedkl.learning.rollout import Recording, Trajectories, episodes_for
from fedkl.learning.state import ClientState, Metrics, Model
from fedkl.processes import cores
from fedkl.simulators.actors import Mind
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import Episode, Job
from fedkl.simulators.pool import Workers
from fedkl.worlds.base import SharedWorld

T = TypeVar("T")

EPISODES_AT_ONCE = 100
"""Kept in memory until their returns are known."""


class _Common(NamedTuple):
    """What every client acts with that follows the global policy, stacked."""

    acting: Acting
    iterations: Int[np.ndarray, " n"]


class _Start(NamedTuple):
    """What a client starts its round with."""

    base: Base
    carry: Carry
    acting: Acting
    run_words: UInt32[Array, "i w"]
    """The words of every iteration's key for acting."""


class _Step(NamedTuple):
    """What the policy's part of an iteration leaves."""

    carry: Carry
    batch: CriticBatch
    metrics: Metrics
    acting: Acting


def _begin(task: Task, model: Model, client: ClientState, key: PRNGKeyArray) -> _Start:
    base, carry = local.base_of(model, client), local.begin(task, model, client)
    indices = jnp.arange(task.learner.iterations)
    words = jax.vmap(lambda i: jax.random.key_data(local.keys_of(key, i).run))(indices)
    return _Start(base, carry, acting(task, carry.policy, local.seen_with(base, carry)), words)


def _improve(
    task: Task,
    global_policy: Policy,
    base: Base,
    carry: Carry,
    data: Trajectories,
    index: Array,
    key: PRNGKeyArray,
) -> _Step:
    policy_key = local.keys_of(key, index).policy
    out = local.improve(task, global_policy, base, carry, data, index, policy_key)
    return _Step(*out, acting(task, out[0].policy, local.seen_with(base, out[0])))


def _fit_critic(
    task: Task, carry: Carry, batch: CriticBatch, index: Array, key: PRNGKeyArray
) -> Carry:
    return local.fit_critic(task, carry, batch, local.keys_of(key, index).critic)


def _global(task: Task, model: Model, client: ClientState) -> Acting:
    return acting(task, model.policy, local.base_of(model, client).observations)


# One call for each part: while other threads keep the cores busy, every call waits its turn.
_begin_all = jax.jit(jax.vmap(_begin, in_axes=(None, None, 0, 0)))
_improve_all = jax.jit(jax.vmap(_improve, in_axes=(None, None, 0, 0, 0, None, 0)))
_fit_all = jax.jit(jax.vmap(_fit_critic, in_axes=(None, 0, 0, None, 0)))
_finish_all = jax.jit(jax.vmap(local.finish, in_axes=(None, 0, 0, 0)))
_global_all = jax.jit(jax.vmap(_global, in_axes=(None, None, 0)))


class InSharedWorld:
    """Trains the selected clients side by side in their common simulation.

    Clients that are not selected act with the global policy.
    """

    def __init__(self, task: Task, settings: FederationSettings) -> None:
        """Args:
        task: world, algorithm and settings of local training.
        settings: for `clients_at_once`.

        Raises:
            UserError: the simulator cannot run here.
        """
        assert isinstance(task.world, SharedWorld)
        self._task = task
        self._agents = range(task.world.agents)
        self._horizon = task.world.horizon
        self._workers = Workers(task.world.simulator(), task.world.patience)
        self._at_once = clients_at_once(settings)
        self._improving = ThreadPoolExecutor(len(cores()))
        # A core is left to the simulator, which is what the next iteration waits for.
        self._fitting = ThreadPoolExecutor(max(1, len(cores()) - 1))

    def train(
        self,
        model: Model,
        clients: Sequence[int],
        states: ClientState,
        keys: Sequence[PRNGKeyArray],
        shared_key: PRNGKeyArray,
    ) -> list[Outcome]:
        """One local round for each of `clients`, all in the same episodes."""
        numbers = [
            list(clients[i : i + self._at_once]) for i in range(0, len(clients), self._at_once)
        ]
        key_of = dict(zip(clients, keys, strict=True))
        groups = [
            _Group(
                self._task, model, part, _rows(states, part), jnp.stack([key_of[c] for c in part])
            )
            for part in numbers
        ]
        (seed,) = seeds_of(jax.random.key_data(shared_key))
        common = self._common(model, states)
        fitted: list[Future[None]] = []
        for i in range(self._task.learner.iterations):
            jobs = []
            for e in range(episodes_for(self._task.world, self._task.learner.steps)):
                own = {c: mind for group in groups for c, mind in group.minds(i, e).items()}
                jobs.append(self._job(common, seed.fold(i, e), own))
            episodes = self._workers.run(jobs)
            improved = [
                self._improving.submit(group.improve, i, episodes, before)
                for group, before in zip_longest(groups, fitted)
            ]
            for future in improved:
                future.result()
            fitted = [self._fitting.submit(group.fit_critic, i) for group in groups]
        for future in fitted:
            future.result()
        return [outcome for group in groups for outcome in group.finish()]

    def evaluate(
        self,
        model: Model,
        states: ClientState,
        key: PRNGKeyArray,
        episodes: int,
        deterministic: bool,
    ) -> Float[np.ndarray, "n e"]:
        """Returns of the global policy, driven by all clients at once; changes nothing."""
        (seed,) = seeds_of(jax.random.key_data(key))
        common = self._common(model, states)
        returns = []
        for start in range(0, episodes, EPISODES_AT_ONCE):
            numbers = range(start, min(start + EPISODES_AT_ONCE, episodes))
            jobs = [self._job(common, seed.fold(e), {}, deterministic) for e in numbers]
            returns += [episode.returns() for episode in self._workers.run(jobs)]
        return np.stack(returns, axis=1)

    def record(
        self,
        model: Model,
        states: ClientState,
        key: PRNGKeyArray,
        client: int,
        deterministic: bool,
    ) -> Recording:
        """One episode, in which all clients drive; rewards are those of the given one."""
        (seed,) = seeds_of(jax.random.key_data(key))
        job = self._job(self._common(model, states), seed, {}, deterministic)
        (episode,) = self._workers.run([job._replace(pictures=True)])
        length = int(episode.mask.sum())
        return Recording(episode.pictures, episode.reward[:length, client], None)

    def report(self) -> Record:
        """How many simulators were replaced so far, because they died, hung or lost vehicles."""
        return {"simulators_replaced": self._workers.replaced}

    def _common(self, model: Model, states: ClientState) -> _Common:
        """What clients act with that follow the global policy."""
        return _Common(
            jax.device_get(_global_all(self._task, model, states)), np.asarray(states.iterations)
        )

    def _job(
        self, common: _Common, seed: Seed, own: dict[int, Mind], deterministic: bool = False
    ) -> Job:
        """An episode in which those with a mind of their own follow it, and the others pi^t."""
        if len(own) < len(self._agents):
            noise = [seed.fold(1 + c) for c in self._agents]
            found = minds(self._task, common.acting, common.iterations, noise, deterministic)
            own = dict(zip(self._agents, found, strict=True)) | own
        return Job(seed, [own[c] for c in self._agents], self._horizon)


class _Group:
    """The local rounds of some clients, a piece at a time; everything is stacked by client."""

    def __init__(
        self,
        task: Task,
        model: Model,
        numbers: list[int],
        clients: ClientState,
        keys: PRNGKeyArray,
    ) -> None:
        self._task = task
        self._model = model
        self._numbers = numbers
        self._clients = clients
        self._keys = keys
        start: _Start = _begin_all(task, model, clients, keys)
        self._base = start.base
        self._carry = start.carry
        self._acting = start.acting
        self._run_words = np.asarray(start.run_words)
        self._batch: CriticBatch | None = None
        self._metrics: list[Metrics] = []

    def minds(self, i: int, e: int) -> dict[int, Mind]:
        """How the clients act in an episode of an iteration."""
        seeds = [seed.fold(e) for seed in seeds_of(self._run_words[:, i])]
        iterations = self._clients.iterations + i
        return dict(
            zip(
                self._numbers,
                minds(self._task, self._acting, iterations, seeds),
                strict=True,
            )
        )

    def improve(self, i: int, episodes: list[Episode], after: Future[None] | None) -> None:
        """The policies' part of an iteration, after the critics' part of the one before."""
        if after is not None:
            after.result()
        data = trajectories(episodes, self._numbers)
        args = (self._model.policy, self._base, self._carry, data, np.int32(i), self._keys)
        step: _Step = _finished(_improve_all(self._task, *args))
        self._carry, self._batch, self._acting = step.carry, step.batch, step.acting
        self._metrics.append(step.metrics)

    def fit_critic(self, i: int) -> None:
        """The critics' part of an iteration, after the policies'."""
        args = (self._carry, self._batch, np.int32(i), self._keys)
        self._carry = _finished(_fit_all(self._task, *args))

    def finish(self) -> list[Outcome]:
        """What each client sends and keeps."""
        metrics = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *self._metrics)
        update, state = _finish_all(self._model, self._clients, self._carry, metrics)
        metrics |= local.last_metrics(self._carry)
        stacked = jax.device_get((update, state, metrics))
        return [jax.tree.map(lambda x, n=n: x[n], stacked) for n in range(len(self._numbers))]


def _rows(states: ClientState, numbers: list[int]) -> ClientState:
    return jax.tree.map(lambda x: x[numbers], states)


def _finished(tree: T) -> T:
    """The same, computed: a thread is to do its work before it takes the next."""
    jax.block_until_ready(tree)  # type: ignore[no-untyped-call]  # JAX's own is unannotated
    return tree
