"""The federation loop: select, run work on clients, validate, aggregate, evaluate (Algorithm 2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float

from fedkl.clients.records import Model, Update
from fedkl.clients.work import Evaluate, RecordEpisode
from fedkl.core.errors import StalledError, UserError
from fedkl.core.processes import require_address_space
from fedkl.core.text import counted
from fedkl.engines import Engine, Failure, Job
from fedkl.engines.base import KeyData
from fedkl.io import compilation
from fedkl.io.arrays import from_arrays, to_arrays
from fedkl.learning.randomness import Purpose, key_data_of, key_for
from fedkl.server import heterogeneity, records, refusals
from fedkl.server.algorithm_checks import require_sound_hooks
from fedkl.server.commit import next_state
from fedkl.server.heterogeneity import Measurements
from fedkl.server.mixture import Found, evaluate_averaging
from fedkl.server.outliers import no_history
from fedkl.server.recording import Episode, film
from fedkl.server.records import Evaluated, Record, Returns
from fedkl.server.replies import collect_updates
from fedkl.server.selection import Pool, observe, select
from fedkl.server.setup import limits_of, local_engine
from fedkl.server.state import (
    Known,
    SavedRows,
    Snapshot,
    State,
    acting,
    at_the_server,
    broadcast,
    read_rows,
)
from fedkl.server.world_checks import require_finite, require_sound
from fedkl.simulators.policy import Policy

if TYPE_CHECKING:
    from fedkl.config.config import Config


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
        engine: where the clients are; None: all in this process (`server.setup.local_engine`).

        Raises:
            UserError: it is no config, its world is not what it says, an algorithm of a plugin has
                a hook that no round can use, or JAX cannot start here.
        """
        if not hasattr(config, "federation"):
            raise UserError(f"config must be what fedkl.preset(...) gives, not {config!r}")
        if config.start_from and config.pretrained is None:
            raise UserError(
                "start_from is the checksum of a policy that is not here: say which run to start "
                "from with --from RUN (in Python fedkl.start_from)"
            )
        require_address_space()
        # As the commands do: what was compiled before is not compiled again.
        compilation.enable_cache()
        require_sound(config)
        require_sound_hooks(config)
        self.config = config
        model, self._first_client = config.first_states
        self._limits = limits_of(config)
        self._aggregation = config.aggregation.aggregation(config.federation.clients)
        self.engine = local_engine(config) if engine is None else engine
        self.state = State(
            round=np.asarray(0, np.int64),
            env_steps=np.asarray(0, np.int64),
            empty_rounds=np.asarray(0, np.int64),
            model=at_the_server(model),
            selector=config.selection.init(config.federation.clients),
            aggregation=self._aggregation.init(at_the_server(model)),
            usual=no_history(model),
        )
        self._since: dict[int, int] = {}
        self._refusals: dict[int, refusals.Refusals] = {}
        self._changed: set[int] = set()
        self._trouble = ""

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()

    def __iter__(self) -> Iterator[Record]:
        """Run the remaining rounds, and yield the record of each.

        Raises:
            StalledError: too many rounds in a row left the model as it was, or all there are.
            UserError: the first round failed, because the world gives no finite numbers.
        """
        while self.state.round < self.config.federation.rounds and not self.stalled:
            record = self.run_round()
            if record["round"] == 1 and self._round_failed(record):
                require_finite(self.config)
            yield record
        if self.stalled:
            last = counted(int(self.state.empty_rounds), "round")
            raise StalledError(
                f"training has stalled: no update of the last {last} "
                f"reached the model (see federation.max_empty_rounds){self._trouble}"
            )

    @property
    def stalled(self) -> bool:
        """True if too many rounds in a row left the model as it was, or all there are."""
        return self.config.federation.stalled(int(self.state.empty_rounds))

    def reset_stall_counter(self) -> None:
        """Count rounds without an update from here on."""
        self.state = replace(self.state, empty_rounds=np.asarray(0, np.int64))

    def run_round(self) -> Record:
        """Run one round, advance `state`, and return the record of the round."""
        start = time.perf_counter()
        before, t = self.state, int(self.state.round)
        model = broadcast(before.model)
        settings, selection = self.config.federation, self.config.selection
        pool = Pool(
            settings.clients, settings.selected, key_for(self.config.seed, Purpose.SELECTION)
        )
        measured, informed = heterogeneity.measure_before_round(
            self.config, self.engine, model, t, self._since, before.selector, pool
        )
        before = replace(before, selector=informed)
        selected = select(selection, before.selector, t, pool)
        suspended = refusals.not_asked(self._refusals, t, selected, settings.quorum)
        starts = self._starts(model, [c for c in selected if c not in suspended])
        replies = collect_updates(
            self.config, self.engine, model, t, starts, self._since, before.usual, self._limits
        )
        trained = records.diagnostics(replies.accepted)
        updates = {client: answer.update for client, answer in replies.accepted.items()}
        refused = replies.refused | suspended.keys()
        after = next_state(self.config, self._aggregation, before, updates, refused)
        kept = [] if after.note else sorted(updates)
        still = records.no_move(replies.accepted)
        note = replies.common_reason or after.note or still
        new = replace(
            after.state,
            round=np.asarray(t + 1, np.int64),
            empty_rounds=np.asarray(before.empty_rounds + 1 if note else 0, np.int64),
            selector=observe(selection, before.selector, t, selected, trained["clients"]),
            usual=replies.usual,
        )
        self.engine.keep(t + 1, kept)
        self.state = new
        self._since |= dict.fromkeys(kept, t + 1)
        self._changed |= set(kept)
        self._refusals = refusals.after_round(self._refusals, settings, t, kept, replies.refused)
        self._trouble = _trouble(note, replies.rejected)
        rejected = replies.rejected | suspended
        record: Record = {
            "round": t + 1,
            **self._returns(),
            **self._averaging(model, {} if after.note else updates),
            "selected": selected,
            "rejected": [{"client": c, "reason": r} for c, r in sorted(rejected.items())],
            **records.retried(replies.retried),
            **records.held_back(replies.held_back),
            **records.outliers(trained["clients"]),
            "note": note,
            **trained,
            "env_steps": int(self.state.env_steps),
            "bytes_down": replies.bytes_down,
            "bytes_up": replies.bytes_up,
            "bytes_down_regions": after.bytes_down,
            "bytes_up_regions": after.bytes_up,
            "observations_shared": self.config.algorithm.observations_sent * replies.answers,
            "heterogeneity": heterogeneity.rows(measured.levels()) or None,
            "steps_measured": measured.steps,
            "bytes_measured": measured.bytes,
            "seconds": 0.0,
            **self.engine.report(),
        }
        record["seconds"] = time.perf_counter() - start
        return record

    @property
    def policy(self) -> Policy:
        """The global policy as it is now, to act with: the same as `fedkl.load` gives of a run.

        Raises:
            UserError: each client keeps a part of it to itself, or its statistics.
        """
        sharing = self.config.federation
        if sharing.observation_statistics == "local" or sharing.personal != "none":
            raise UserError(
                "each client keeps a part of what it acts by to itself (federation.personal, "
                "federation.observation_statistics), so no policy is that of all: train with "
                "fedkl.train, and load a client's with fedkl.load(run, client)"
            )
        return acting(self.config.task, self.state, self._first_client)

    def evaluate(
        self, episodes: int, deterministic: bool, clients: Sequence[int] | None = None
    ) -> Float[np.ndarray, "n e"]:
        """Return of the global policy in clients' worlds, for each episode; changes nothing.

        Args:
            episodes: for each client.
            deterministic: take the mode of the policy instead of a sample.
            clients: whose worlds; None: everybody's.

        Returns:
            A row for each; NaN for a client that gave no finite ones (`evaluation` says why).
        """
        return self.evaluation(Evaluate(episodes, deterministic), clients)().returns

    def evaluation(
        self, work: Evaluate, clients: Sequence[int] | None = None
    ) -> Callable[[], Evaluated]:
        """Ask clients to evaluate, and return a function that collects their answers, so that
        several evaluations can be under way at once."""
        asked = range(self.config.federation.clients) if clients is None else clients
        jobs, key = self._evaluation_jobs(asked)
        coming = self.engine.run(work, broadcast(self.state.model), jobs, key)

        return lambda: records.evaluated(dict(coming), asked, work.episodes)

    def _evaluation_jobs(self, asked: Sequence[int]) -> tuple[list[Job], KeyData]:
        """Return the jobs of an evaluation, which all start from the same states, and their common
        key."""
        everybody, t = self.config.federation.clients, int(self.state.round)
        key = key_for(self.config.seed, Purpose.EVALUATION, t)
        words = key_data_of(jax.random.split(key, everybody))
        jobs = [Job(c, words[c], self._since.get(c, 0), round=t) for c in asked]
        return jobs, key_data_of(key)

    def measure(self, clients: Sequence[int] | None = None) -> Measurements:
        """The level of heterogeneity at the global policy; changes nothing.

        Args:
            clients: who is asked; None: everybody.
        """
        asked = range(self.config.federation.clients) if clients is None else clients
        model, t = broadcast(self.state.model), int(self.state.round)
        return heterogeneity.measure(self.config, self.engine, model, t, self._since, asked)

    def film(self, client: int, deterministic: bool) -> Episode:
        """An episode of the global policy in a client's world, drawn as it is looked at.

        Raises:
            UserError: the world cannot be drawn, or the client does not answer.
        """
        key = key_for(self.config.seed, Purpose.RECORDING, int(self.state.round))
        own = key_data_of(jax.random.fold_in(key, client))
        job = Job(client, own, self._since.get(client, 0), round=int(self.state.round))
        work, model = RecordEpisode(deterministic), broadcast(self.state.model)
        found: Any = dict(self.engine.run(work, model, [job], key_data_of(key))).get(client)
        if found is None or isinstance(found, Failure):
            reason = f": {found.reason}" if found else ""
            raise UserError(f"client {client} gave no episode to look at{reason}")
        return film(self.config.task.world, found)

    @cached_property
    def evaluated(self) -> list[int] | None:
        """The clients whose returns are logged; None: all.

        They are the same in every round, so that a curve compares like with like.
        """
        if only := self.config.evaluation.only:
            return sorted(only)
        number, everybody = self.config.evaluation.clients, self.config.federation.clients
        if not 0 < number < everybody:
            return None
        key = key_for(self.config.seed, Purpose.EVALUATED)
        return sorted(np.asarray(jax.random.choice(key, everybody, (number,), False)).tolist())

    def save(self) -> Snapshot:
        """All that is needed to resume; call `saved` when it is safe."""
        arrays = to_arrays(self.state)
        if self._refusals:
            arrays["refusals"] = refusals.encode(self._refusals)
        rows = SavedRows(Known(self._since, self.engine.save()))
        return Snapshot(arrays, rows, frozenset(self._changed))

    def saved(self, oldest: int) -> None:
        """Note that a snapshot of `save` is safe.

        Args:
            oldest: the oldest round that the server may go back to.
        """
        self._changed = set()
        self.engine.saved(oldest)

    def restore(
        self, arrays: Mapping[str, np.ndarray], rows: Mapping[int, Mapping[str, np.ndarray]]
    ) -> None:
        """Restore a snapshot.

        Raises:
            ValueError: it is of another federation; the message says in what.
        """
        if not any(name.startswith("usual.") for name in arrays):
            # A checkpoint from before rounds were remembered: it is as if none had been.
            blank = no_history(self.state.model)
            arrays = {**arrays, **to_arrays({"usual": blank})}
        refused = refusals.decode(arrays["refusals"]) if "refusals" in arrays else {}
        own_arrays = {name: array for name, array in arrays.items() if name != "refusals"}
        state = from_arrays(self.state, own_arrays)
        if strangers := [c for c in (*rows, *refused) if c >= self.config.federation.clients]:
            raise ValueError(f"there is no client {strangers[0]}")
        self._since, own = read_rows(rows, self._first_client)
        self._refusals = refused
        self.engine.restore(own)
        self.state = state
        self._changed = set()

    def _starts(self, model: Model, selected: list[int]) -> dict[int, Model]:
        """Return the model that each client starts from; those of a region share one object."""
        sent: dict[int, Model] = {}
        starts = {}
        for client in selected:
            own = self._aggregation.start(self.state.aggregation, client)
            if own is None:
                starts[client] = model
            else:
                if id(own) not in sent:
                    sent[id(own)] = broadcast(own)
                starts[client] = sent[id(own)]
        return starts

    def _round_failed(self, record: Record) -> bool:
        """Return True if no update was accepted, or no return of an evaluation is a number."""
        reached = record["return_mean"]
        if reached is None:
            return bool(record["note"]) or self._evaluates(record["round"])
        return bool(record["note"]) or not np.isfinite(reached)

    def _evaluates(self, round: int) -> bool:
        return round % self.config.evaluation.every == 0 or round == self.config.federation.rounds

    def _returns(self) -> Returns:
        settings = self.config.evaluation
        if not self._evaluates(int(self.state.round)):
            return records.NOT_EVALUATED
        sample = self.evaluated
        both = [self.evaluation(Evaluate(settings.episodes, d), sample) for d in (False, True)]
        stochastic, deterministic = (collect() for collect in both)
        return records.returns(stochastic, deterministic, sample)

    def _averaging(self, before: Model, updates: Mapping[int, Update]) -> Found:
        """Return the record of averaging in this round, if it is asked for."""
        settings = self.config.evaluation
        if not (settings.averaging and updates and self._evaluates(int(self.state.round))):
            return {}
        everybody = range(self.config.federation.clients)
        asked = everybody if self.evaluated is None else self.evaluated
        models = before, broadcast(self.state.model)
        jobs = self._evaluation_jobs(asked)
        return evaluate_averaging(self.engine, models, updates, settings.episodes, *jobs)


def _trouble(note: str | None, rejected: Mapping[int, str]) -> str:
    """Describe why the last round left the model as it was, for the message of a stalled run."""
    if note is None:
        return ""
    culprits = [f"client {client}: {reason}" for client, reason in rejected.items()]
    return f"; in the last round: {'; '.join([note, *culprits[:1]])}"
