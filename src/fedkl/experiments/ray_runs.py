"""Ordinary runs as tasks on a cluster: the rounds are run there, and everything is written here.

A task sends the record of each round and the state after it. The driver writes them as it would if
the rounds were its own (`lifecycle.run_remaining`), so a run's directory does not tell where it was
trained, and the run can be resumed anywhere. A worker that is lost costs the round that it was in:
another resumes from the state that the driver holds.
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from rich.console import Console

from fedkl.config.config import Config, from_mapping
from fedkl.config.pretrained import Pretrained
from fedkl.core.errors import STALLED, StalledError, UserError
from fedkl.core.own_code import OwnCodeError
from fedkl.core.processes import take_cores
from fedkl.core.text import one_line
from fedkl.experiments.workers import open_log
from fedkl.io import compilation
from fedkl.io.progress import RoundProgress
from fedkl.network.ray.actor import Plugin, explain_own_code, install_plugins, read_plugins
from fedkl.network.ray.connection import Cluster
from fedkl.network.ray.nodes import nodes, placeable_cpus, require_versions
from fedkl.server.loop import Federation
from fedkl.server.records import Record
from fedkl.server.state import Snapshot
from fedkl.training import lifecycle, tracebacks
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import of_run
from fedkl.training.provenance import versions

Rows = dict[int, dict[str, np.ndarray]]

LOSSES = 3
"""Workers that may be lost in one and the same round before the run is given up."""
_AHEAD = 4
"""Rounds that a worker may be ahead of what the driver has written."""
_LOOK = 0.5
"""Seconds between two looks whether to stop."""


class Order(NamedTuple):
    """A run for a worker to train."""

    mapping: dict[str, Any]
    """The config, as TOML can hold it."""
    plugins: tuple[Plugin, ...]
    versions: dict[str, str]
    """The driver's."""
    until: int | None
    """The round after which to stop; None: the last one."""
    pretrained: Pretrained | None = None
    """The policy that it starts from."""


class RemoteState(NamedTuple):
    """A federation's state, as a checkpoint has it."""

    arrays: dict[str, np.ndarray]
    """Empty before the first round."""
    rows: Rows


class RemoteRound(NamedTuple):
    """A round that is over."""

    record: Record
    arrays: dict[str, np.ndarray]
    """The server's state after it."""
    rows: Rows
    """Of the clients that it changed."""


class End(NamedTuple):
    """The reason why there are no more rounds."""

    sentence: str
    stalled: bool
    """Otherwise the user can mend it."""
    trace: str = ""
    """The traceback, if it is of the user's own code."""


class _StoppedError(Exception):
    """The driver wants no more."""


class _UnplaceableError(Exception):
    """The cluster has less now than was asked of it."""


def rounds(order: Order, state: RemoteState, cpus: int) -> Iterator[RemoteRound | End]:
    """Train a run on a worker.

    Args:
        order: what to train.
        state: what to resume from.
        cpus: how many the worker has.
    """
    take_cores(cpus)
    compilation.enable_cache()
    try:
        yield from _rounds(order, state)
    except OwnCodeError as error:
        yield End(str(error), stalled=False, trace=error.trace)
    except UserError as error:
        yield End(str(error), stalled=False)
    except StalledError as error:
        yield End(str(error), stalled=True)


def _rounds(order: Order, state: RemoteState) -> Iterator[RemoteRound]:
    with explain_own_code():
        require_versions(order.versions)
        plugins = install_plugins(order.plugins)
        config = from_mapping(order.mapping | {"plugins": plugins}, order.pretrained)
        with Federation(config) as federation:
            _restore(federation, state)
            for record in federation:
                snapshot = federation.save()
                federation.saved(record["round"])
                changed = {number: dict(snapshot.rows[number]) for number in snapshot.changed}
                yield RemoteRound(record, snapshot.arrays, changed)
                if record["round"] == order.until and not federation.stalled:
                    return


def _restore(federation: Federation, state: RemoteState) -> None:
    if not state.arrays:
        return
    try:
        federation.restore(state.arrays, state.rows)
    except ValueError as error:
        raise UserError(f"the checkpoint does not fit config.toml: {error}") from error


class _HeldPosition(NamedTuple):
    round: int


class OnCluster:
    """A federation whose rounds are run by a worker of a cluster; a `training.Trainable`."""

    def __init__(
        self, order: Order, config: Config, cpus: int, log: TextIO, stop: threading.Event
    ) -> None:
        """Args:
        order: what is trained.
        config: the same, checked.
        cpus: how many a worker takes.
        log: is notified of workers that are lost.
        stop: ends the waiting for a round when it is set.
        """
        self.config = config
        self._order = order
        self._cpus = cpus
        self._log = log
        self._held = RemoteState({}, {})
        self._changed: set[int] = set()
        self._stop = stop

    @property
    def state(self) -> _HeldPosition:
        return _HeldPosition(int(self._held.arrays.get("round", 0)))

    @property
    def stalled(self) -> bool:
        """True if too many rounds in a row left the model as it was, or all there are."""
        return self.config.federation.stalled(int(self._held.arrays.get("empty_rounds", 0)))

    def reset_stall_counter(self) -> None:
        """Count rounds without an update from here on."""
        none = np.zeros_like(self._held.arrays["empty_rounds"])
        self._held = self._held._replace(arrays=self._held.arrays | {"empty_rounds": none})

    def save(self) -> Snapshot:
        """All that is needed to resume; call `saved` when it is safe."""
        return Snapshot(self._held.arrays, self._held.rows, frozenset(self._changed))

    def saved(self, oldest: int) -> None:
        """Note that a snapshot of `save` is safe."""
        self._changed = set()

    def restore(
        self, arrays: Mapping[str, np.ndarray], rows: Mapping[int, Mapping[str, np.ndarray]]
    ) -> None:
        """Restore a snapshot; the worker checks whether it fits."""
        self._held = RemoteState(dict(arrays), {number: dict(row) for number, row in rows.items()})
        self._changed = set()

    def __iter__(self) -> Iterator[Record]:
        """Have the remaining rounds run, and yield the record of each.

        Raises:
            StalledError: too many rounds in a row left the model as it was, or all there are.
            UserError: the worker says so, or workers are lost again and again.
        """
        from ray.exceptions import RayError, RayTaskError

        lost, cpus = 0, self._cpus
        while self.stalled or self.state.round < self.config.federation.rounds:
            try:
                for answer in self._answers(cpus):
                    lost = 0
                    if isinstance(answer, End):
                        if answer.trace:
                            raise OwnCodeError(answer.sentence, answer.trace)
                        raise (StalledError if answer.stalled else UserError)(answer.sentence)
                    self._take(answer)
                    yield answer.record
                return
            except RayTaskError:
                raise  # not the worker failed, but what ran on it
            except (RayError, _UnplaceableError) as error:
                lost += isinstance(error, RayError)
                reason = " ".join(str(error).split())
                if lost == LOSSES:
                    raise UserError(
                        f"{lost} workers were lost in round {self.state.round + 1}, the last: "
                        f"{reason}"
                    ) from error
                print(f"round {self.state.round + 1} again: {reason}", file=self._log, flush=True)
                # The machine with many CPUs may be the one that was lost.
                cpus = 1

    def _answers(self, cpus: int) -> Generator[RemoteRound | End, None, None]:
        """A task's, as they come."""
        import ray

        task = ray.remote(rounds).options(
            num_cpus=cpus,
            max_retries=0,  # Ray would begin where we began
            _generator_backpressure_num_objects=_AHEAD,
        )
        coming: Any = task.remote(self._order, self._held, cpus)
        try:
            while not self._stop.is_set():
                if not ray.wait([coming], timeout=_LOOK, fetch_local=False)[0]:
                    if placeable_cpus(cpus) < cpus:
                        raise _UnplaceableError(f"no machine that is left has {cpus} CPUs")
                    continue
                try:
                    answer = next(coming)
                except StopIteration:
                    return
                yield ray.get(answer)
            raise _StoppedError
        finally:
            ray.cancel(coming, force=True)

    def _take(self, round: RemoteRound) -> None:
        # Copies, because what arrived lies in memory that others need again.
        own = {name: np.array(array) for name, array in round.arrays.items()}
        rows = {c: {n: np.array(x) for n, x in row.items()} for c, row in round.rows.items()}
        self._held = RemoteState(own, self._held.rows | rows)
        self._changed |= rows.keys()


class RemoteRun:
    """A run that is trained on a cluster and written by a thread here; a `workers.Worker`."""

    def __init__(self, run: Path, until: int | None, cpus: int) -> None:
        """Args:
        run: its directory.
        until: the round after which to stop; None: the last one.
        cpus: how many its worker takes.

        Raises:
            UserError: its log cannot be written.
        """
        self._run = RunDirectory.open(run)
        # Here, because an error at the beginning of a thread is lost.
        self._log = open_log(run)
        self._until = until
        self._cpus = cpus
        self._code = 1  # unless it comes to an end that is better known
        self._stop = threading.Event()
        # What must not hinder the process from ending.
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        """Its exit code, as of a process; None while the run trains."""
        return None if self._thread.is_alive() else self._code

    def terminate(self) -> None:
        """Ask it to end."""
        self._stop.set()

    def wait(self) -> int:
        """Wait until it has."""
        self._thread.join()
        return self._code

    def _work(self) -> None:
        with self._log as log:
            try:
                self._train(log)
                self._code = 0
            except _StoppedError:
                self._code = -signal.SIGTERM
            except OwnCodeError as error:
                where = tracebacks.write(error.trace, self._run.path)
                print(f"fedkl: {error}; the whole traceback is in {where}", file=log)
                self._code = 2
            except UserError as error:
                print(f"fedkl: {error}", file=log)
                self._code = 2
            except StalledError as error:
                print(f"fedkl: {error}", file=log)
                self._code = STALLED
            except BaseException as error:  # of a thread it would be lost otherwise
                traceback.print_exc(file=log)
                # JAX prints notices below a traceback, and Ray's errors are one.
                print(one_line(getattr(error, "cause", None) or error), file=log)

    def _train(self, log: TextIO) -> None:
        config = of_run(self._run)
        plugins = read_plugins(config.plugins)
        order = Order(config.mapping(), plugins, versions(), self._until, config.pretrained)
        federation = OnCluster(order, config, self._cpus, log, self._stop)
        rounds = config.federation.rounds
        until = rounds if self._until is None else self._until
        with RoundProgress(Console(file=log, width=100), until) as progress:

            def warn(message: str) -> None:
                print(f"fedkl: warning: {message}", file=log)

            lifecycle.run_remaining(self._run, progress.show, warn, federation, self._until)


class OnRay:
    """Runs as tasks on a cluster; a `workers.Place`."""

    def __init__(self, cluster: Cluster) -> None:
        """Args:
        cluster: what the process is connected to.
        """
        self._cpus = cluster.cpus

    def at_once(self, runs: int) -> int:
        """As many as there are CPUs."""
        return max(1, min(runs, self._cpus))

    def start(self, run: Path, slot: int, slots: int, until: int | None) -> RemoteRun:
        """A task; where it runs is up to Ray."""
        return RemoteRun(run, until, self._share(slots))

    def _share(self, slots: int) -> int:
        """The most CPUs that each of so many tasks can have, all at the same time, on the nodes
        that are alive now."""
        each = [node.cpus for node in nodes()]
        most = range(max(each, default=1), 1, -1)
        return next((n for n in most if sum(cpus // n for cpus in each) >= slots), 1)
