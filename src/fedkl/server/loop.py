"""The federation loop: select, run work on clients, validate, aggregate, evaluate (Algorithm 2)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fedkl.algorithms.base import Ended
from fedkl.arrays import from_arrays, size_in_bytes, to_arrays
from fedkl.clients.round import Trained
from fedkl.clients.state import Model, Task, fresh
from fedkl.clients.work import Evaluate, Train
from fedkl.clients.work import Record as RecordEpisode
from fedkl.engines import Engine, Failure, InProcess, InSharedWorld, Job
from fedkl.errors import StalledError
from fedkl.learning.trajectories import episodes_for
from fedkl.randomness import Purpose, key_for, words_for, words_of
from fedkl.server import records
from fedkl.server.films import Film, film
from fedkl.server.records import Record, Returns
from fedkl.server.rows import SavedRows, read_rows
from fedkl.server.selection import Pool
from fedkl.server.state import State, at_the_server, broadcast
from fedkl.server.validation import Limits, problem_with, problem_with_model
from fedkl.worlds.base import SharedWorld, SoloWorld, World

if TYPE_CHECKING:
    from fedkl.config import Config


class Replies(NamedTuple):
    """What came of asking the selected clients to train."""

    accepted: dict[int, Trained]
    rejected: dict[int, str]
    """Why the others were left out."""
    bytes_down: int
    bytes_up: int


class Federation:
    """A federated training run in memory: iterate over it to train.

    Example:
        >>> import fedkl
        >>> config = fedkl.preset("probe-point", set={"federation.rounds": 2})
        >>> [record["round"] for record in Federation(config)]
        [1, 2]
    """

    def __init__(self, config: Config, engine: Engine | None = None) -> None:
        """Args:
        config: what to train.
        engine: where the clients are; None: all in this process.
        """
        self.config = config
        self.task = Task(config.world, config.algorithm, config.learner, config.critic)
        key = key_for(config.seed, Purpose.MODEL)
        model, self._first_client = fresh(self.task, config.federation.sharing(), key)
        self._aggregation = config.aggregation.aggregation(config.federation.clients)
        self._limits = self._allowed(model)
        self.engine = engine or self._in_this_process()
        self.state = State(
            round=np.asarray(0, np.int64),
            env_steps=np.asarray(0, np.int64),
            empty_rounds=np.asarray(0, np.int64),
            model=at_the_server(model),
            selector=config.selection.init(config.federation.clients),
            aggregation=self._aggregation.init(at_the_server(model)),
        )
        self._since: dict[int, int] = {}
        self.changed: set[int] = set()
        """Clients whose rows are not yet saved; whoever saves clears it."""

    def __iter__(self) -> Iterator[Record]:
        """Runs the rounds that are left, and yields the record of each.

        Raises:
            StalledError: too many rounds in a row left the model as it was.
        """
        rounds = self.config.federation.rounds
        while self.state.round < rounds:
            yield self.run_round()
            if self.stalled and self.state.round < rounds:
                break
        if self.stalled:
            raise StalledError(
                f"training has stalled: no update of the last {self.state.empty_rounds} rounds "
                "reached the model (see federation.max_empty_rounds)"
            )

    @property
    def stalled(self) -> bool:
        """Whether too many rounds in a row left the model as it was, or all there are."""
        settings = self.config.federation
        limit = min(settings.max_empty_rounds, settings.rounds)
        return int(self.state.empty_rounds) >= limit

    def run_round(self) -> Record:
        """Runs one round, moves `state` on, and returns the record of the round."""
        start = time.perf_counter()
        config, before, t = self.config, self.state, int(self.state.round)
        pool = Pool(
            config.federation.clients,
            config.federation.clients_per_round,
            key_for(config.seed, Purpose.SELECTION),
        )
        selected = config.selection(before.selector, t, pool)
        replies = self._train(t, selected)
        trained = records.diagnostics(replies.accepted)
        reports = {row["client"]: row for row in trained["clients"]}
        note, regions = self._take(t, replies.accepted)
        self.state = replace(
            self.state,
            round=np.asarray(t + 1, np.int64),
            empty_rounds=before.empty_rounds + 1 if note else np.zeros_like(before.empty_rounds),
            selector=config.selection.observe(before.selector, t, selected, reports),
        )
        record: Record = {
            "round": t + 1,
            **self._returns(),
            "selected": selected,
            "rejected": [{"client": c, "reason": r} for c, r in sorted(replies.rejected.items())],
            "note": note,
            **trained,
            "env_steps": int(self.state.env_steps),
            "bytes_down": replies.bytes_down,
            "bytes_up": replies.bytes_up,
            "bytes_down_regions": regions[0],
            "bytes_up_regions": regions[1],
            "seconds": 0.0,
            **self.engine.report(),
        }
        record["seconds"] = time.perf_counter() - start
        return record

    def evaluate(
        self, episodes: int, deterministic: bool, clients: Sequence[int] | None = None
    ) -> Float[np.ndarray, "n e"]:
        """Returns of the global policy in clients' worlds, for each episode; changes nothing.

        Args:
            episodes: for each client.
            deterministic: take the mode of the policy instead of a sample.
            clients: whose worlds; None: everybody's.
        """
        everybody = self.config.federation.clients
        asked = range(everybody) if clients is None else clients
        key = key_for(self.config.seed, Purpose.EVALUATION, int(self.state.round))
        words = words_of(jax.random.split(key, everybody))
        jobs = [self._job(client, words[client]) for client in asked]
        work = Evaluate(episodes, deterministic)
        found = self._answers(self.engine.run(work, self._sent(), jobs, words_of(key)))
        return np.stack([found[client] for client in asked])

    def film(self, client: int, deterministic: bool) -> Film:
        """An episode of the global policy in a client's world, drawn as it is looked at.

        Raises:
            UserError: the world cannot be drawn.
        """
        key = key_for(self.config.seed, Purpose.RECORDING, int(self.state.round))
        job = self._job(client, words_of(jax.random.fold_in(key, client)))
        work = RecordEpisode(deterministic)
        found = self._answers(self.engine.run(work, self._sent(), [job], words_of(key)))
        return film(self.config.world, found[client])

    @cached_property
    def evaluated(self) -> list[int] | None:
        """Whose worlds the log's returns are of; None: everybody's.

        They are the same in every round, so that a curve compares like with like.
        """
        number, everybody = self.config.evaluation.clients, self.config.federation.clients
        if not 0 < number < everybody:
            return None
        key = key_for(self.config.seed, Purpose.EVALUATED)
        return sorted(np.asarray(jax.random.choice(key, everybody, (number,), False)).tolist())

    def save(self) -> tuple[dict[str, np.ndarray], SavedRows]:
        """All that is needed to go on: the server's arrays, and a row for each client that has
        taken part, read from the engine when it is asked for."""
        return to_arrays(self.state), SavedRows(self._since, self.engine.save())

    def restore(
        self, arrays: Mapping[str, np.ndarray], rows: Mapping[int, Mapping[str, np.ndarray]]
    ) -> None:
        """Goes back to what was saved.

        Raises:
            ValueError: it is of another federation; the message says in what.
        """
        state = from_arrays(self.state, arrays)
        self._since, own = read_rows(rows, self._first_client)
        self.engine.restore(own)
        self.state = state
        self.changed = set()

    def close(self) -> None:
        """Ends whatever the engine has started."""
        self.engine.close()

    def _in_this_process(self) -> Engine:
        settings = self.config.federation
        k, on_cpu = settings.clients_per_round, jax.default_backend() == "cpu"
        # Batched small matrix products gain nothing on a CPU, and its cores take a client each.
        at_once = min(settings.clients_at_once or (1 if on_cpu else k), k)
        world = self.config.world
        if isinstance(world, SharedWorld):
            return InSharedWorld(self.task, self._first_client, at_once)
        assert isinstance(world, World | SoloWorld)
        params = world.clients(settings.clients, key_for(self.config.seed, Purpose.WORLDS))
        return InProcess(self.task, self._first_client, params, at_once)

    def _allowed(self, model: Model) -> Limits:
        settings, learner, world = self.config.federation, self.config.learner, self.config.world
        ended = Ended(
            self._first_client.own, model.shared, model.policy, model.policy, jnp.zeros(())
        )
        message = jax.eval_shape(lambda e: self.task.algorithm.finish(e)[1], ended)
        steps = episodes_for(world, learner.steps) * world.horizon
        return Limits(
            max_weight=float(learner.iterations * steps),
            iterations=learner.iterations,
            max_relative_norm=settings.max_relative_norm,
            max_statistics_factor=settings.max_statistics_factor,
            # A coefficient is where it began until an iteration counts, even out of bounds.
            coefficients={
                name: (min(c.first, *c.bounds), max(c.first, *c.bounds))
                for name, c in self.task.coefficients().items()
            },
            message=jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), message),
        )

    def _sent(self) -> Model:
        return broadcast(self.state.model)

    def _job(self, client: int, words: Any, model: Model | None = None) -> Job:
        return Job(client, words, self._since.get(client, 0), model)

    @staticmethod
    def _answers(replies: Iterator[tuple[int, Any]]) -> dict[int, Any]:
        """Answers to what cannot fail unless something is defective."""
        found = dict(replies)
        for client, answer in found.items():
            if isinstance(answer, Failure):
                raise RuntimeError(f"client {client}: {answer.reason}")
        return found

    def _train(self, t: int, selected: list[int]) -> Replies:
        """Valid outcomes, and why the other clients were left out."""
        replies = Replies({}, {}, 0, 0)
        model, seed = self._sent(), self.config.seed
        starts = {c: self._aggregation.start(self.state.aggregation, c) for c in selected}
        size = size_in_bytes(model)
        back = size - size_in_bytes(model.shared) + size_in_bytes(self._limits.message) + 4
        for attempt in range(1 + self.config.federation.retries):
            left = [client for client in selected if client not in replies.accepted]
            if not left:
                break
            words = words_for(
                seed, Purpose.TRAINING, np.asarray([[t, client, attempt] for client in left])
            )
            common = words_of(key_for(seed, Purpose.SHARED_WORLD, t, attempt))
            jobs = [self._job(c, w, starts[c]) for c, w in zip(left, words, strict=True)]
            for client, trained in self.engine.run(Train(), model, jobs, common):
                own = starts[client]
                if isinstance(trained, Failure):
                    problem: str | None = trained.reason
                else:
                    started = model if own is None else own
                    problem = problem_with(trained, started, self._limits)
                    if problem is None:
                        replies.accepted[client] = trained
                        replies.rejected.pop(client, None)
                if problem is not None:
                    replies.rejected[client] = problem
            for client in left:
                if client not in replies.accepted:
                    replies.rejected.setdefault(client, "it did not answer")
            replies = replies._replace(
                bytes_down=replies.bytes_down + len(left) * size,
                bytes_up=replies.bytes_up + len(left) * back,
            )
        return replies

    def _take(self, t: int, accepted: dict[int, Trained]) -> tuple[str | None, tuple[int, int]]:
        """Moves model and clients on, if enough updates came and what they make is sound.

        Returns:
            Why nothing changed, if so; and the bytes that crossed between regions and server.
        """
        quorum, before = self.config.federation.quorum, self.state
        if len(accepted) < quorum:
            self.engine.keep(t, [])
            return f"{len(accepted)} accepted updates, fewer than the quorum of {quorum}", (0, 0)
        ordered = {client: accepted[client].update for client in sorted(accepted)}
        key = key_for(self.config.seed, Purpose.AGGREGATION, t)
        made = self._aggregation(before.aggregation, t, before.model, ordered, key)
        messages = [update.message for update in ordered.values()]
        shared = self.task.algorithm.gather(
            before.model.shared, messages, self.config.federation.clients
        )
        model = replace(made.model, shared=shared)
        if problem := problem_with_model(model):
            self.engine.keep(t, [])
            return f"the aggregate was not taken: {problem}", (0, 0)
        self.engine.keep(t + 1, list(ordered))
        self._since |= dict.fromkeys(ordered, t + 1)
        self.changed |= set(ordered)
        steps = sum(int(update.weight) for update in ordered.values())
        self.state = replace(
            before, env_steps=before.env_steps + steps, model=model, aggregation=made.state
        )
        return None, (made.bytes_down, made.bytes_up)

    def _returns(self) -> Returns:
        settings, done = self.config.evaluation, int(self.state.round)
        if done % settings.every and done != self.config.federation.rounds:
            return records.NOT_EVALUATED
        sample = self.evaluated
        return records.returns(
            self.evaluate(settings.episodes, False, sample),
            self.evaluate(settings.episodes, True, sample),
            sample,
        )
