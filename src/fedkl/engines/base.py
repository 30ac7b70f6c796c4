"""The interface of an engine: where the clients are, and how they are asked to work.

Clients' own states live behind the engine, and nothing else sees them. What a client would keep
after a round is pending until the server has accepted its update.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypedDict, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import UInt32

from fedkl.clients.records import ClientState, Model, problem_with_state
from fedkl.clients.work import Work
from fedkl.core.errors import UserError

R = TypeVar("R")

KeyData = UInt32[np.ndarray, " w"]
"""A JAX key as plain numbers (`jax.random.key_data`), which can be sent anywhere."""


class Job(NamedTuple):
    """Work that is asked of one client."""

    client: int
    key: KeyData
    since: int = 0
    """The round in which the server last accepted an update of this client; 0: never yet. A client
    on its own disk may be ahead of a server that was resumed from an older checkpoint, or not yet
    have heard that its update was accepted: it resumes from its state of this round."""
    model: Model | None = None
    """The model that this client starts from, if not that of all others (its region's model)."""
    round: int = 0
    """The number of rounds that are over."""


class Report(TypedDict, total=False):
    """An engine's report of the work done so far."""

    simulators_replaced: int
    """Processes that died, hung or failed."""
    actors_replaced: int
    """Actors of a cluster that died, hung or were on a machine that was lost."""
    traffic_received: int
    """Bytes that clients over a network have sent since Flower's server was started."""
    traffic_sent: int
    """Bytes that they were sent."""


class Failure(NamedTuple):
    """The reason why a client gave no answer."""

    reason: str
    again: bool = True
    """True if it may help to ask again in the same round; not if the client is not there."""
    lost: bool = False
    """True if it was lost on the way, there or back: the very same can be asked again."""


@runtime_checkable
class Engine(Protocol):
    """A place where clients are, which runs work on them."""

    def run(
        self, work: Work[R], model: Model, jobs: Sequence[Job], key: KeyData
    ) -> Generator[tuple[int, R | Failure], None, None]:
        """Run the work, and yield clients' answers as NumPy arrays, as they come.

        It may begin at once, or when the first answer is asked for. A caller that has enough closes
        it: what comes later is forgotten.

        A client that trains has a new state then, which is pending until `keep`; asked again before
        that, it starts from its own state once more. A client may fail to answer.

        Args:
            work: what is asked.
            model: what is broadcast.
            jobs: of whom it is asked.
            key: for what clients share, if their world is one.
        """

    def keep(self, round: int, clients: Sequence[int]) -> None:
        """A round is over, and the server has accepted these clients' updates: what was pending
        becomes their own. Whatever else is pending is forgotten.

        Args:
            round: the number of rounds that are finished now; a `Job.since` may name it.
            clients: those that were accepted.
        """

    def saved(self, oldest: int) -> None:
        """The server has saved the round, and will not go back beyond `oldest`: clients with a disk
        of their own may forget what they were before that round."""

    def save(self) -> Mapping[int, ClientState]:
        """The own states of the clients that have one, to be saved with the server's; none where
        clients save theirs themselves."""

    def restore(self, saved: Mapping[int, ClientState]) -> None:
        """Restore what `save` gave."""

    def report(self) -> Report:
        """Return the engine's report of the work done so far, for the log."""

    def close(self) -> None:
        """End whatever the engine has started."""


class Rows:
    """Clients' states in memory: the same for everybody until a client has one of its own.

    A federation of 100,000 clients, of which ten have trained, thus holds eleven states. Engines
    whose clients live in this process inherit what they keep from here.
    """

    def __init__(self, first: ClientState) -> None:
        """Args:
        first: every client's state before its first round.
        """
        self._first = first
        self._own: dict[int, ClientState] = {}
        self.pending: dict[int, ClientState] = {}
        """New states that the server has not accepted yet."""

    def own(self, client: int) -> ClientState:
        """A client's state as of its last accepted round."""
        return self._own.get(client, self._first)

    def own_of(self, job: Job) -> ClientState:
        """The state that a job's client starts from.

        Raises:
            UserError: the client has a state somewhere else.
        """
        if job.since and job.client not in self._own:
            raise UserError(
                "the clients of this run keep their states themselves: go on with it where they are"
            )
        return self.own(job.client)

    def propose(self, client: int, after: ClientState | None, answer: R) -> R | Failure:
        """Make a new state pending; an answer whose state cannot be resumed from is a failure."""
        if after is None:
            return answer
        if problem := problem_with_state(self.own(client), after):
            return Failure(problem)
        self.pending[client] = after
        return answer

    def keep(self, round: int, clients: Sequence[int]) -> None:
        """Make the pending states of these clients their own, and forget the rest."""
        self._own |= {client: self.pending[client] for client in clients}
        self.pending = {}

    def saved(self, oldest: int) -> None:
        """Nothing: the states are saved with the server's."""

    def save(self) -> Mapping[int, ClientState]:
        """The states of all clients that have one of their own."""
        return self._own

    def restore(self, saved: Mapping[int, ClientState]) -> None:
        """Restore what `save` gave."""
        self._own, self.pending = dict(saved), {}


def parts_of(jobs: Sequence[Job], model: Model, width: int) -> list[tuple[Model, list[Job]]]:
    """Group jobs that start from the same model, at most `width` together.

    Args:
        jobs: all of them.
        model: what those start from that have no model of their own.
        width: how many go into one call.
    """
    groups: dict[int, tuple[Model, list[Job]]] = {}
    for job in jobs:
        own = model if job.model is None else job.model
        groups.setdefault(id(own), (own, []))[1].append(job)
    return [
        (own, same[i : i + width])
        for own, same in groups.values()
        for i in range(0, len(same), width)
    ]
