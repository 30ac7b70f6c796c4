"""The engine for worlds that clients share: one simulation on the host, every client in it.

An iteration runs the simulation, with every selected client acting by its own policy, and then
trains the clients, a thread for each core (on an accelerator, all in one vmapped call). A client's
critic is needed only when the next data are there, so it is fitted while the simulator runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree, UInt32

from fedkl.clients.behaviour import actors, seeds_of
from fedkl.clients.records import ClientState, Metrics, Model, Start, Task, Trained
from fedkl.clients.round import finish, global_behaviour, iteration_keys, learner_part
from fedkl.clients.sources import Recording, lengths_for, recording, trajectories
from fedkl.clients.work import Evaluate, RecordEpisode, Train, Work
from fedkl.core.processes import cores
from fedkl.engines.base import Failure, Job, KeyData, Report, Rows, parts_of
from fedkl.heterogeneity import Measure, Measurement
from fedkl.io.arrays import Array
from fedkl.learning.trajectories import Trajectories, columns_for
from fedkl.simulators.actors import Actor
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import Columns, EpisodeJob
from fedkl.simulators.pool import Workers
from fedkl.worlds.base import SharedWorld

R = TypeVar("R")
T = TypeVar("T")

EPISODES_IN_MEMORY = 100
"""Until their returns are known."""


class _Begun(NamedTuple):
    """A client's round after it began."""

    carry: PyTree
    actor: Actor
    run_keys: UInt32[Array, "i w"]
    """Every iteration's key for acting, as plain numbers."""


class _Improved(NamedTuple):
    """The result of an iteration's policy optimisation."""

    carry: PyTree
    batch: Any
    metrics: Metrics
    actor: Actor


def _begin(task: Task, start: Start) -> _Begun:
    carry = task.learner.begin(task, start)
    indices = jnp.arange(task.learner.iterations)
    words = jax.vmap(lambda i: jax.random.key_data(iteration_keys(start.key, i)[0]))(indices)
    return _Begun(carry, task.learner.behaviour(task, start, carry).actor(), words)


def _improve(
    task: Task,
    start: Start,
    carry: PyTree,
    data: Trajectories,
    cleaned: Any,
    index: Int[Array, ""],
) -> _Improved:
    after, batch, metrics = task.learner.improve(task, start, carry, data, cleaned, index)
    return _Improved(after, batch, metrics, task.learner.behaviour(task, start, after).actor())


def _follow(task: Task, model: Model, client: ClientState, deterministic: bool) -> Actor:
    return global_behaviour(task, model, client, deterministic).actor()


def _jitted(function: Callable[..., T], *axes: int | Start | None) -> Callable[..., T]:
    """The function for stacked clients: vmapped for several, and as it is for one.

    A matrix product with a batch of one client takes a third longer than one without a batch.

    Args:
        function: of one client.
        axes: of each argument, which axis is the clients', as for `jax.vmap`.
    """

    def one(argument: Any, axis: Any) -> Any:
        if isinstance(axis, Start):
            return Start(*map(one, argument, axis))
        return argument if axis is None else jax.tree.map(lambda x: x[0], argument)

    def clients(argument: Any, axis: Any) -> int:
        if isinstance(axis, Start):
            return max(map(clients, argument, axis))
        return 0 if axis is None else len(jax.tree.leaves(argument)[0])

    def stacked(*arguments: Any) -> T:
        if max(map(clients, arguments, axes)) > 1:
            return jax.vmap(function, in_axes=axes)(*arguments)
        result = function(*map(one, arguments, axes))
        return jax.tree.map(lambda x: x[None], result)

    stacked.__name__ = function.__name__
    return jax.jit(stacked)


# One call for each part: while other threads keep the cores busy, every call waits its turn.
_EACH = Start(None, 0, 0)  # type: ignore[arg-type]  # which axis of each is the client's
_begin_all = _jitted(_begin, None, _EACH)
_clean_all = _jitted(learner_part("clean"), None, 0)
_improve_all = _jitted(_improve, None, _EACH, 0, 0, 0, None)
_fit_all = _jitted(learner_part("fit_critic"), None, _EACH, 0, 0, None)
_finish_all = _jitted(finish, None, _EACH, 0, 0)
_follow_all = jax.jit(
    jax.vmap(_follow, in_axes=(None, None, 0, None)), static_argnames="deterministic"
)


class InSharedWorld(Rows):
    """Trains the selected clients side by side in their common simulation.

    Clients that are not selected act with the global policy.
    """

    def __init__(self, task: Task, first: ClientState, at_once: int) -> None:
        """Args:
        task: world, algorithm and settings of local training.
        first: every client's state before its first round.
        at_once: how many clients are trained in one vmapped call.

        Raises:
            UserError: the simulator cannot run here.
        """
        assert isinstance(task.world, SharedWorld)
        super().__init__(first)
        self._task = task
        self._agents = range(task.world.agents)
        self._workers = Workers(task.world.simulator(), task.world.patience)
        self._at_once = at_once
        self._improving = ThreadPoolExecutor(len(cores()))
        # A core is left to the simulator, which is what the next iteration waits for.
        self._fitting = ThreadPoolExecutor(max(1, len(cores()) - 1))

    def run(
        self, work: Work[R], model: Model, jobs: Sequence[Job], key: KeyData
    ) -> Generator[tuple[int, R | Failure], None, None]:
        """Yield every asked client's answer; all clients act in the same episodes."""
        (seed,) = seeds_of(key)
        answers: Iterator[tuple[int, Any]]
        match work:
            case Train():
                answers = self._train(model, jobs, seed)
            case Evaluate():
                answers = self._evaluate(work, model, jobs, seed)
            case RecordEpisode():
                answers = self._record(work, model, jobs, seed)
            case Measure():
                answers = self._measure(work, model, jobs, seed)
            case _:
                raise TypeError(f"clients that share a world cannot be asked to {work.name}")
        yield from answers

    def report(self) -> Report:
        """Return the number of simulators replaced so far, because they died, hung or lost
        vehicles."""
        return {"simulators_replaced": self._workers.replaced}

    def close(self) -> None:
        """End the simulators and the threads."""
        self._workers.close()
        self._improving.shutdown()
        self._fitting.shutdown()

    def _train(
        self, model: Model, jobs: Sequence[Job], seed: Seed
    ) -> Iterator[tuple[int, Trained | Failure]]:
        """One local round for each of the jobs' clients, all in the same episodes."""
        groups = [
            ClientGroup(self._task, own, part, [self.own_of(job) for job in part])
            for own, part in parts_of(jobs, model, self._at_once)
        ]
        everybody = self._following(model)
        fitted: list[Future[None]] = []
        for i in range(self._task.learner.iterations):
            collection = []
            for column in range(columns_for(self._task.world, self._task.learner.steps)):
                acting = [group.actors(i, column) for group in groups]
                own = {client: actor for some in acting for client, actor in some.items()}
                collection.append(self._job(everybody, seed.fold(i, column), own))
            columns = self._workers.run(self._filled(collection))
            improved = [
                self._improving.submit(group.improve, i, columns, before)
                for group, before in zip_longest(groups, fitted)
            ]
            for future in improved:
                future.result()
            fitted = [self._fitting.submit(group.fit_critic, i) for group in groups]
        for future in fitted:
            future.result()
        for group in groups:
            for client, trained, after in group.finish():
                yield client, self.propose(client, after, trained)

    def _evaluate(
        self, work: Evaluate, model: Model, jobs: Sequence[Job], seed: Seed
    ) -> Iterator[tuple[int, Float[np.ndarray, " e"]]]:
        """Return of the global policy, driven by all clients at once."""
        everybody = self._following(model, work.deterministic)
        returns = []
        for start in range(0, work.episodes, EPISODES_IN_MEMORY):
            numbers = range(start, min(start + EPISODES_IN_MEMORY, work.episodes))
            episodes = self._workers.run([self._job(everybody, seed.fold(e), {}) for e in numbers])
            returns += [episode.returns() for episode in episodes]
        of_each = np.concatenate(returns, axis=1)
        for job in jobs:
            yield job.client, of_each[job.client]

    def _record(
        self, work: RecordEpisode, model: Model, jobs: Sequence[Job], seed: Seed
    ) -> Iterator[tuple[int, Recording]]:
        """One episode, in which all clients drive; rewards are those of the asked."""
        everybody = self._following(model, work.deterministic)
        job = self._job(everybody, seed, {})._replace(pictures=True)
        (episode,) = self._workers.run([job])
        for asked in jobs:
            yield asked.client, recording(episode, asked.client, None)

    def _measure(
        self, work: Measure, model: Model, jobs: Sequence[Job], seed: Seed
    ) -> Iterator[tuple[int, Measurement]]:
        """Measure episodes in which all clients drive by the global policy."""
        everybody, world = self._following(model), self._task.world
        assert isinstance(world, SharedWorld)
        numbers = range(work.trajectories)
        episodes = self._workers.run([self._job(everybody, seed.fold(e), {}) for e in numbers])
        for job in jobs:
            seen = trajectories(episodes, [job.client], world.horizon, world.truncates)
            start = Start(model, self.own_of(job), jax.random.wrap_key_data(jnp.asarray(job.key)))
            acts = work.behaviour(self._task, start)
            data = jax.tree.map(lambda x: x[0], seen)
            yield job.client, jax.device_get(work.measured(acts, data))

    def _following(self, model: Model, deterministic: bool = False) -> Actor:
        """All clients, stacked, as they act when they follow the global policy."""
        states = [self.own(client) for client in self._agents]
        stacked = jax.tree.map(lambda *x: np.stack(x), *states)
        return jax.device_get(_follow_all(self._task, model, stacked, deterministic))

    def _job(self, everybody: Actor, seed: Seed, own: dict[int, Actor]) -> EpisodeJob:
        """An episode in which those who train act by themselves, and the others follow pi^t.

        It is the only column of its job, because some simulators (SUMO) are one in a process.
        """
        if len(own) < len(self._agents):
            following = actors(everybody, [[seed.fold(1 + c)] for c in self._agents])
            own = dict(zip(self._agents, following, strict=True)) | own
        horizon = self._task.world.horizon
        return EpisodeJob((seed,), [own[c] for c in self._agents], (horizon,))

    def _filled(self, jobs: list[EpisodeJob]) -> list[EpisodeJob]:
        """An iteration's jobs, with T steps if that is what it collects."""
        learner = self._task.learner
        if learner.collect == "episodes":
            return jobs
        lengths = lengths_for(learner.steps, self._task.world.horizon)
        return [
            job._replace(lengths=(length,), refill=True)
            for job, length in zip(jobs, lengths, strict=True)
        ]


class ClientGroup:
    """The local rounds of some clients, a piece at a time; everything is stacked by client."""

    def __init__(
        self, task: Task, model: Model, jobs: list[Job], states: list[ClientState]
    ) -> None:
        self._task = task
        self._numbers = [job.client for job in jobs]
        clients = jax.tree.map(lambda *x: np.stack(x), *states)
        keys = jax.random.wrap_key_data(jnp.stack([job.key for job in jobs]))
        self._start = Start(model, clients, keys)
        begun: _Begun = _begin_all(task, self._start)
        self._carry = begun.carry
        self._actor = begun.actor
        self._run_keys = np.asarray(begun.run_keys)
        self._batch: Any = None
        self._metrics: list[Metrics] = []

    def actors(self, i: int, column: int) -> dict[int, Actor]:
        """Return the clients' behaviour in a column of an iteration."""
        seeds = [[seed.fold(column)] for seed in seeds_of(self._run_keys[:, i])]
        return dict(zip(self._numbers, actors(self._actor, seeds), strict=True))

    def improve(self, i: int, columns: list[Columns], after: Future[None] | None) -> None:
        """The policies' part of an iteration, after the critics' part of the one before."""
        if after is not None:
            after.result()
        world = self._task.world
        assert isinstance(world, SharedWorld)
        data = trajectories(columns, self._numbers, world.horizon, world.truncates)
        cleaned = _clean_all(self._task, data)
        step: _Improved = _finished(
            _improve_all(self._task, self._start, self._carry, data, cleaned, np.int32(i))
        )
        self._carry, self._batch, self._actor = step.carry, step.batch, step.actor
        self._metrics.append(step.metrics)

    def fit_critic(self, i: int) -> None:
        """The critics' part of an iteration, after the policies'."""
        args = (self._task, self._start, self._carry, self._batch, np.int32(i))
        self._carry = _finished(_fit_all(*args))

    def finish(self) -> Iterator[tuple[int, Trained, ClientState]]:
        """Return what each client sends and keeps."""
        metrics = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *self._metrics)
        done = jax.device_get(_finish_all(self._task, self._start, self._carry, metrics))
        for n, client in enumerate(self._numbers):
            trained, after = jax.tree.map(lambda x, n=n: x[n], done)
            yield client, trained, after


def _finished(tree: T) -> T:
    """The same, computed: a thread is to do its work before it takes the next."""
    jax.block_until_ready(tree)  # type: ignore[no-untyped-call]  # JAX's own is unannotated
    return tree
