"""The engine of a federation over a network: Flower carries what an in-process engine would call.

What is asked, what is believed and what is kept is the same as everywhere else (`exchange`). This
only knows who can be reached, and how long to wait.
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
from fedkl.engines.base import Failure, Job, Report, Words
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.flower.fleet import Fleet, SentGreeting
from fedkl.network.flower.relay_client import LostError, NodeAnswer, NodeMessage
from fedkl.network.messages import new_nonce, new_turn
from fedkl.network.signatures import Signer
from fedkl.network.status import FleetStatus
from fedkl.network.wire import MessageError, one_line

R = TypeVar("R")

_POLL_INTERVAL = 0.05
"""Seconds between two looks for answers that the relay has; how often that looks is up to it."""
_LATE_WINDOW = 60.0
"""Seconds for which an answer is fetched that came too late, or Flower's word that none will."""
_CONNECTED_INTERVAL = 5.0
"""Seconds between two looks at who is connected, while answers are waited for."""
_ATTEMPTS = 4
"""How often something is begun that Flower's server is lost in."""


class Screen(NamedTuple):
    """Where a person sees what goes on."""

    line: Callable[[str], None]
    """Takes what is worth a line."""
    status: Callable[[str], None]
    """Takes what is so at the moment."""


class PendingRequest(NamedTuple):
    """A request on its way."""

    job: Job
    node: int
    at: RequestStamp
    largest: int
    """Bytes that its answer may have."""


class LateAnswer(NamedTuple):
    """An answer that nobody waits for any more."""

    client: int
    until: float
    """When the client's time is over."""


class Flower:
    """Has clients' work done where they are.

    Attributes:
        signer: signs all that clients are sent; None: there are no keys, and nothing is signed.
        traffic: says how many bytes have crossed.
        status: takes note of how clients are doing.
        refresh: is called before anybody looks at who is connected.
    """

    def __init__(self, config: Config, federation: str, patience: float, screen: Screen) -> None:
        """Args:
        config: the run's.
        federation: its name, as `messages.new_federation` made it.
        patience: seconds to wait for clients where too few are connected.
        screen: where a person sees what goes on.
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
        """Answers that are fetched all the same: what nobody fetches stays in Flower's memory."""
        self._round = -1
        self._trained: dict[int, str] = {}
        """Clients asked to train in this round, and why an answer does not count, where known."""

    def greet(
        self, node: int, client: int | None, refusal: str = "", over: bool = False
    ) -> SentGreeting:
        """What a node is told that has connected; see `fleet.Greet`."""
        at = self._next(0)
        said = self._exchange.greeting(client, at, refusal, over)
        return SentGreeting(self._message(node, client, said), at.nonce)

    def farewell(self) -> None:
        """Tells all who are connected that the run is over, as far as they hear it."""
        try:
            told = self._reachable.farewell()
        except LostError as error:
            self._screen.line(f"clients were not told that the run is over: {error}")
        else:
            self._screen.line(f"the run is over, as {counted(told, 'client')} heard")

    def start(self, fleet: Fleet) -> None:
        """Waits until as many clients are connected as a round selects, and goes on with a quorum
        if that is all who come.

        Args:
            fleet: who can be reached; ended with the engine.

        Raises:
            StalledError: they are too few after some time.
            UserError: Flower's server was lost, and does not come up again.
        """
        self._fleet = fleet
        fleet.seen = self.status.connected
        everybody, enough = range(self._settings.clients), self._settings.clients_per_round
        there = self._with_reconnects(lambda: fleet.wait(everybody, enough, self._patience))
        self._require_quorum(there)
        # Else the first round, of each start, would be without those who are a moment later.
        self._with_reconnects(lambda: fleet.settle(everybody))

    def run(
        self, work: Work[R], model: Model, jobs: Sequence[Job], key: Words
    ) -> Generator[tuple[int, R | Failure], None, None]:
        """Asks at once, and yields answers as they come, until each client has answered or its time
        is over.

        Raises:
            StalledError: too few clients are connected to train, and none came.
            UserError: Flower's server was lost, and does not come up again.
        """
        if isinstance(work, Train):
            self._note_retries(jobs)
        asked = self._with_reconnects(lambda: self._ask(work, model, jobs, key))
        return self._record_answers(work, time.monotonic(), self._answers(work, model, *asked))

    def keep(self, round: int, clients: Sequence[int]) -> None:
        """Clients hear of it by the `since` of what they are asked next."""

    def saved(self, oldest: int) -> None:
        """Clients hear of it by the `floor` of what they are asked next."""
        self._floor = oldest

    def save(self) -> Mapping[int, ClientState]:
        """Nothing: clients keep their states themselves."""
        return {}

    def restore(self, saved: Mapping[int, ClientState]) -> None:
        """Nothing: clients go on from the state that they are told."""

    @property
    def largest_answer(self) -> int:
        """Bytes that no honest answer comes near."""
        return self._exchange.largest_of_all()

    def report(self) -> Report:
        """Bytes that have crossed the network so far."""
        return self.traffic()

    def close(self) -> None:
        """Ends what carries the messages."""
        if self._fleet is not None:
            self._fleet.close()
            self._fleet = None
            self.status.write(over=True)

    def _note_retries(self, jobs: Sequence[Job]) -> None:
        """Says who is asked to train again in the same round, and why."""
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
        """Answers as they come, of which note is taken, to what was asked at `start`."""
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
        self, work: Work[Any], model: Model, jobs: Sequence[Job], key: Words
    ) -> tuple[dict[str, PendingRequest], dict[int, Failure]]:
        """What was sent, by number, and who could not be asked."""
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
        """When something is asked that was not asked before."""
        self._turn = new_turn(self._turn)
        return RequestStamp(round, self._turn, self._floor, new_nonce())

    def _message(self, node: int, client: int | None, content: bytes) -> NodeMessage:
        """The content as the client takes it."""
        if self.signer is not None:
            assert client is not None, "who has no key is not asked"
            content = self.signer.sign(client, content)
        return NodeMessage(node, content, self._settings.deadline)

    def _connected(self, work: Work[Any], jobs: Sequence[Job]) -> dict[int, int]:
        """The nodes of those asked; a round waits for a quorum of them.

        If they do not come, others may in the rounds after it: a federation has stalled when too
        many rounds in a row come to nothing, or when nobody could make up a quorum.
        """
        self.refresh()
        enough = min(self._settings.quorum, len(jobs)) if isinstance(work, Train) else 0
        clients = [job.client for job in jobs]
        there = self._reachable.wait(clients, enough, 0)
        if len(there) < enough:
            self._screen.line(f"waiting for clients: {len(there)} of {_names(clients)} connected")
            there = self._reachable.wait(clients, enough, self._patience)
        if len(there) < enough:
            everybody = range(self._settings.clients)
            self._require_quorum(self._reachable.wait(everybody, 0, 0))
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
                    asked = sent.pop(answer.id, None)  # one that has answered is not heard again
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
        """Answers that are there by now; of those that nobody waits for any more not a byte."""
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
        """Clients who are still at what nobody waits for any more: a round that has had enough of
        them would wait for them all the same, before they evaluate."""
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
        """Does what needs Flower's server, which is started again if it is lost.

        Args:
            do: may be begun several times.
            lost: why the server has to be started again first.

        Raises:
            UserError: it is lost again and again, or does not come up.
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
    """A few of them."""
    numbers = ", ".join(map(str, sorted(clients)[:10]))
    more = ", ..." if len(clients) > 10 else ""
    return f"client{'s' if len(clients) > 1 else ''} {numbers}{more}"
