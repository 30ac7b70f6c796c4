"""The engine of a federation over a network: Flower carries its requests and replies.

Requests, checks and states are the same as everywhere else (`exchange`). This only knows which
clients can be reached, and how long to wait.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fedkl.clients.records import ClientState, Model
from fedkl.clients.work import Train, Work
from fedkl.config.config import Config
from fedkl.core.errors import StalledError, UserError
from fedkl.core.text import counted
from fedkl.engines.base import Failure, Job, KeyData, Report
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.flower.fleet import Fleet, SentGreeting
from fedkl.network.flower.relay_client import LostError, NodeAnswer, NodeMessage
from fedkl.network.messages import new_nonce, new_turn
from fedkl.network.signatures import Signer
from fedkl.network.status import FleetStatus
from fedkl.network.wire import MessageError, one_line

R = TypeVar("R")

_POLL_INTERVAL = 0.05
"""Seconds between two polls of the relay for answers."""
_LATE_WINDOW = 60.0
"""Seconds after its deadline for which an answer, or Flower's error, is still fetched."""
_CONNECTED_INTERVAL = 5.0
"""Seconds between two updates of the connected clients while answers are awaited."""
_ATTEMPTS = 4
"""Attempts at an operation during which Flower's server is lost."""


class Screen(NamedTuple):
    """Output for the user."""

    line: Callable[[str], None]
    """Print a line."""
    status: Callable[[str], None]
    """Show the current state."""


class PendingRequest(NamedTuple):
    """A request that was sent and not answered yet."""

    job: Job
    node: int
    at: RequestStamp
    largest: int
    """Bytes that its answer may have."""


class LateAnswer(NamedTuple):
    """An answer that was not there at its deadline."""

    client: int
    until: float
    """Time at which the message expires."""


class Flower:
    """An engine whose clients run elsewhere, on Flower's nodes.

    Attributes:
        signer: of messages to clients; None: there are no keys, and nothing is signed.
        traffic: returns the bytes that have crossed the network.
        status: of all clients.
        refresh: is called before the connected clients are looked up.
    """

    def __init__(self, config: Config, federation: str, patience: float, screen: Screen) -> None:
        """Args:
        config: the run's.
        federation: its name, as `messages.new_federation` made it.
        patience: seconds to wait for clients where too few are connected.
        screen: output for the user.
        """
        self.signer: Signer | None = None
        self.traffic: Callable[[], Report] = lambda: {}
        self.status = FleetStatus()
        self.refresh: Callable[[], None] = lambda: None
        self._settings = config.federation
        self._exchange = Exchange(config, federation)
        self._patience = patience
        self._screen = screen
        self._turn = self._floor = 0
        self._fleet: Fleet | None = None
        self._late: dict[str, LateAnswer] = {}
        """Late answers, which are fetched all the same: others stay in Flower's memory."""
        self._round = -1
        self._trained: dict[int, str] = {}
        """Clients asked to train in this round, with the reason why an answer is not valid."""

    def greet(
        self, node: int, client: int | None, refusal: str = "", over: bool = False
    ) -> SentGreeting:
        """Return the greeting for a node that has connected; see `fleet.Greet`."""
        at = self._next(0)
        said = self._exchange.greeting(client, at, refusal, over)
        return SentGreeting(self._message(node, client, said), at.nonce)

    def farewell(self) -> None:
        """Tell all connected clients that the run is over."""
        try:
            told = self._reachable.farewell()
        except LostError as error:
            self._screen.line(f"clients were not told that the run is over: {error}")
        else:
            self._screen.line(f"the run is over, as {counted(told, 'client')} heard")

    def start(self, fleet: Fleet) -> None:
        """Wait until as many clients are connected as a round selects, or, in the end, a quorum.

        Args:
            fleet: of the clients; closed with the engine.

        Raises:
            StalledError: too few are connected in time.
            UserError: Flower's server was lost, and did not start again.
        """
        self._fleet = fleet
        fleet.on_connected = self.status.connected
        clients, enough = range(self._settings.clients), self._settings.clients_per_round
        there = self._with_reconnects(lambda: fleet.wait(clients, enough, self._patience))
        self._require_quorum(there)
        # Otherwise the first round would be without clients that connect a moment later.
        self._with_reconnects(lambda: fleet.settle(clients))

    def run(
        self, work: Work[R], model: Model, jobs: Sequence[Job], key: KeyData
    ) -> Generator[tuple[int, R | Failure], None, None]:
        """Send requests at once; yield answers as they arrive, until all have or time is over.

        Raises:
            StalledError: too few clients are connected to train, and none came.
            UserError: Flower's server was lost, and did not start again.
        """
        if isinstance(work, Train):
            self._note_retries(jobs)
        asked = self._with_reconnects(lambda: self._ask(work, model, jobs, key))
        return self._record_answers(work, time.monotonic(), self._answers(work, model, *asked))

    def keep(self, round: int, clients: Sequence[int]) -> None:
        """Do nothing: the next request tells clients by its `since`."""

    def saved(self, oldest: int) -> None:
        """Note the oldest round to go back to; the next request tells clients by its `floor`."""
        self._floor = oldest

    def save(self) -> Mapping[int, ClientState]:
        """Return nothing: clients keep their states themselves."""
        return {}

    def restore(self, saved: Mapping[int, ClientState]) -> None:
        """Do nothing: a request names the state that a client continues from."""

    @property
    def largest_answer(self) -> int:
        """Number of bytes that no honest answer comes near."""
        return self._exchange.largest_of_all()

    def report(self) -> Report:
        """Return the bytes that have crossed the network so far."""
        return self.traffic()

    def close(self) -> None:
        """Close the fleet, and write the last status."""
        if self._fleet is not None:
            self._fleet.close()
            self._fleet = None
            self.status.write(over=True)

    def _note_retries(self, jobs: Sequence[Job]) -> None:
        """Record clients that are asked to train again in the same round, and print the reason."""
        round = max((job.round for job in jobs), default=0)
        if round != self._round:
            self._round, self._trained = round, {}
            self.status.asked(round)
        for job in jobs:
            if job.client in self._trained:
                self.status.retried(job.client)
                reason = self._trained[job.client]
                self._screen.line(f"client {job.client} is asked again: {reason}")
            self._trained[job.client] = "its update was not valid"

    def _record_answers(
        self, work: Work[R], start: float, answers: Generator[tuple[int, R | Failure], None, None]
    ) -> Generator[tuple[int, R | Failure], None, None]:
        """Yield answers to requests of the time `start`, and record them in the status."""
        with contextlib.closing(answers):
            for client, answer in answers:
                if isinstance(answer, Failure):
                    self.status.failed(client, answer.reason)
                    if isinstance(work, Train):
                        self._trained[client] = answer.reason
                else:
                    self.status.answered(client, time.monotonic() - start)
                yield client, answer

    def _ask(
        self, work: Work[Any], model: Model, jobs: Sequence[Job], key: KeyData
    ) -> tuple[dict[str, PendingRequest], dict[int, Failure]]:
        """Send requests; return those that were sent, by id, and failures by client."""
        there = self._connected(work, jobs)
        busy = set() if isinstance(work, Train) else self._busy()
        failed: dict[int, Failure] = {}
        asked: list[PendingRequest] = []
        messages: list[NodeMessage] = []
        for job in jobs:
            if job.client not in there:
                failed[job.client] = Failure("it is not connected", again=False)
                continue
            if job.client in busy:
                failed[job.client] = Failure(
                    "it is busy with what it was asked before", again=False
                )
                continue
            at = self._next(job.round)
            try:
                blob = self._exchange.request(work, model, job, key, at)
            except MessageError as error:
                failed[job.client] = Failure(str(error), again=False)
                continue
            largest = self._exchange.largest(work, model, job)
            asked.append(PendingRequest(job, there[job.client], at, largest))
            messages.append(self._message(there[job.client], job.client, blob))
        ids = self._reachable.push(messages) if messages else []
        sent = dict(zip(ids, asked, strict=True))
        failed |= {
            one.job.client: Failure("Flower did not take what was for it", lost=True)
            for id, one in zip(ids, asked, strict=True)
            if not id
        }
        sent.pop("", None)
        return sent, failed

    def _next(self, round: int) -> RequestStamp:
        self._turn = new_turn(self._turn)
        return RequestStamp(round, self._turn, self._floor, new_nonce())

    def _message(self, node: int, client: int | None, content: bytes) -> NodeMessage:
        if self.signer is not None:
            assert client is not None, "a client without a key is not asked"
            content = self.signer.sign(client, content)
        return NodeMessage(node, content, self._settings.deadline)

    def _connected(self, work: Work[Any], jobs: Sequence[Job]) -> dict[int, int]:
        """Return the nodes of the jobs' clients; wait for a quorum of them to train.

        If they do not connect, others may be selected in later rounds: a federation has stalled
        when too many rounds in a row fail, or when all connected clients are fewer than a quorum.
        """
        self.refresh()
        enough = min(self._settings.quorum, len(jobs)) if isinstance(work, Train) else 0
        clients = [job.client for job in jobs]
        there = self._reachable.wait(clients, enough, 0)
        if len(there) < enough:
            self._screen.line(f"waiting for clients: {len(there)} of {_names(clients)} connected")
            there = self._reachable.wait(clients, enough, self._patience)
        if len(there) < enough:
            self._require_quorum(self._reachable.wait(range(self._settings.clients), 0, 0))
        return there

    def _require_quorum(self, there: Mapping[int, int]) -> None:
        enough = self._settings.quorum
        if len(there) < enough:
            names = f" ({_names([*there])})" if there else ""
            raise StalledError(
                f"only {len(there)} of {self._settings.clients} clients are connected{names} after "
                f"{self._patience:g} s, and {enough} {'is' if enough == 1 else 'are'} needed"
            )

    def _answers(
        self,
        work: Work[R],
        model: Model,
        sent: dict[str, PendingRequest],
        failed: Mapping[int, Failure],
    ) -> Generator[tuple[int, R | Failure], None, None]:
        yield from failed.items()
        start, number, answered = time.monotonic(), len(sent), 0
        deadline = self._settings.deadline
        lost, seen = "", start
        self._status(work, sent, number)
        try:
            while sent and time.monotonic() - start < deadline:
                try:
                    answers = self._pull(sent)
                    if time.monotonic() > seen + _CONNECTED_INTERVAL:
                        self.refresh()
                        self._reachable.connected()
                        seen = time.monotonic()
                except LostError as error:
                    lost = "what it was asked was lost"
                    self._with_reconnects(lambda: None, error)
                    break
                for answer in answers:
                    asked = sent.pop(answer.id, None)  # a second answer does not count
                    if asked is not None:
                        result = self._result(answer, asked, work, model)
                        answered += not isinstance(result, Failure)
                        yield asked.job.client, result
                self._status(work, sent, number)
                if sent and not answers:
                    time.sleep(_POLL_INTERVAL)
            for asked in sent.values():
                reason = lost or f"it did not answer within {deadline:g} s"
                yield asked.job.client, Failure(reason, lost=True)
        finally:
            if not lost:
                until = start + deadline
                self._late |= {
                    id: LateAnswer(asked.job.client, until) for id, asked in sent.items()
                }
            if isinstance(work, Train):
                self._screen.line(
                    f"{answered} of {number + len(failed)} clients answered "
                    f"in {time.monotonic() - start:.1f} s"
                )

    def _pull(self, sent: Mapping[str, PendingRequest]) -> list[NodeAnswer]:
        """Return answers that have arrived; late ones are fetched without their content."""
        ids = {id: asked.largest for id, asked in sent.items()}
        answers = self._reachable.pull(dict.fromkeys(self._late, 0) | ids)
        now, heard = time.monotonic(), {answer.id for answer in answers}
        self._late = {
            id: owed
            for id, owed in self._late.items()
            if id not in heard and now < owed.until + _LATE_WINDOW
        }
        return answers

    def _busy(self) -> set[int]:
        """Return the clients that are still busy with a request of before.

        A round that needs no more of them would otherwise wait for them to evaluate.
        """
        if self._late:
            self._pull({})
        now = time.monotonic()
        return {owed.client for owed in self._late.values() if now < owed.until}

    def _result(
        self, answer: NodeAnswer, asked: PendingRequest, work: Work[R], model: Model
    ) -> R | Failure:
        if isinstance(answer.content, str):
            return Failure(one_line(answer.content), lost=answer.lost)
        if answer.node != asked.node:
            return Failure("a node that is not its own answered for it")
        return self._exchange.result(answer.content, work, model, asked.job, asked.at)

    @property
    def _reachable(self) -> Fleet:
        assert self._fleet is not None, "the engine was not started"
        return self._fleet

    def _with_reconnects(self, do: Callable[[], R], lost: LostError | None = None) -> R:
        """Call a function that needs Flower's server; restart the server if it is lost.

        Args:
            do: the function; it may be called several times.
            lost: the reason to restart the server first.

        Raises:
            UserError: it is lost several times, or does not start.
        """
        for _ in range(_ATTEMPTS):
            try:
                if lost is not None:
                    self._screen.line(f"{lost}; it is started again")
                    self._late = {}
                    self._reachable.reconnect()
                return do()
            except LostError as error:
                lost = error
        raise UserError(f"Flower's server was lost {_ATTEMPTS} times in a row: {lost}") from lost

    def _status(self, work: Work[Any], sent: Mapping[str, PendingRequest], number: int) -> None:
        waiting = [asked.job.client for asked in sent.values()]
        rest = f", waiting for {_names(waiting)}" if waiting else ""
        self._screen.status(f"{work.name}: {number - len(waiting)} of {number} answered{rest}")


def _names(clients: Sequence[int]) -> str:
    """Return the first few client numbers, for a message."""
    numbers = ", ".join(map(str, sorted(clients)[:10]))
    more = ", ..." if len(clients) > 10 else ""
    return f"client{'s' if len(clients) > 1 else ''} {numbers}{more}"
