"""The server's side: requests to the clients of a federation, and the results in their replies."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import tomli_w

from fedkl.clients.records import Model
from fedkl.clients.work import Evaluate, Train, Work
from fedkl.config.config import Config
from fedkl.engines.base import Failure, Job, KeyData
from fedkl.heterogeneity import Measure, Measurement
from fedkl.io.arrays import to_arrays
from fedkl.network import MAX_MESSAGE_BYTES
from fedkl.network.messages import (
    Greeting,
    Request,
    check_federation,
    read_reply,
    result_of,
    result_versions,
    sources_of,
    spaces_of,
    write_greeting,
    write_request,
)
from fedkl.network.wire import MessageError
from fedkl.server.setup import limits_of
from fedkl.server.validation import expected_of

R = TypeVar("R")

_OVERHEAD = 1 << 20
"""Most bytes of a reply beside its arrays: their names and the header."""


class RequestStamp(NamedTuple):
    """The fields of a `Request` that tell it from all others."""

    round: int
    turn: int
    floor: int
    nonce: str


class Exchange:
    """Writer of requests, and reader of the replies to them."""

    def __init__(self, config: Config, federation: str, limit: int = MAX_MESSAGE_BYTES) -> None:
        """Args:
        config: the run's.
        federation: its name, as `messages.new_federation` made it.
        limit: bytes that a message may have.
        """
        self.federation = check_federation(federation)
        self._config = config
        self._text = tomli_w.dumps(config.mapping())
        self._limits = limits_of(config)
        self._limit = limit

    def greeting(
        self, client: int | None, at: RequestStamp, refusal: str = "", over: bool = False
    ) -> bytes:
        """Return the greeting for a client that has connected.

        Args:
            client: whose key it has; None: it needs none.
            at: round, turn and nonce.
            refusal: why it cannot take part.
            over: whether the run is over.
        """
        said = Greeting(
            federation=self.federation,
            client=client,
            turn=at.turn,
            nonce=at.nonce,
            versions=result_versions(),
            config=self._text,
            spaces=spaces_of(self._config.world),
            sources=sources_of(self._config),
            refusal=refusal,
            over=over,
        )
        return write_greeting(said, self._limit)

    def request(
        self, work: Work[Any], model: Model, job: Job, key: KeyData, at: RequestStamp
    ) -> bytes:
        """Return the request for a job's client.

        Args:
            work: to do.
            model: broadcast to clients without a model of their own.
            job: the client, and its key.
            key: for draws that clients share.
            at: round, turn, floor and nonce.

        Raises:
            MessageError: it is too large, or asks for work that clients do not do.
        """
        asked = Request(
            federation=self.federation,
            client=job.client,
            since=job.since,
            config=self._text,
            spaces=spaces_of(self._config.world),
            work=work,
            key=job.key,
            shared=key,
            model=to_arrays(_sent(model, job)),
            **at._asdict(),
        )
        return write_request(asked, self._limit)

    def largest(self, work: Work[Any], model: Model, job: Job) -> int:
        """Return the most bytes that a reply to a request may have.

        Args:
            work, model, job: of the request.
        """
        arrays = to_arrays(self._expected(work, _sent(model, job))).values()
        return min(self._limit, sum(array.nbytes for array in arrays) + _OVERHEAD)

    def largest_of_all(self) -> int:
        """Return a number of bytes that no honest reply comes near."""
        model, _ = self._config.first_states
        return min(self._limit, 4 * self.largest(Train(), model, Job(0, np.zeros(2, np.uint32))))

    def result(
        self, data: bytes, work: Work[R], model: Model, job: Job, at: RequestStamp
    ) -> R | Failure:
        """Return the result in a client's reply, or a `Failure`.

        Args:
            data: the reply, not checked yet.
            work, model, job, at: of the request.
        """
        try:
            reply = read_reply(data, self.largest(work, model, job))
        except MessageError as error:
            return Failure(str(error))
        wanted = (self.federation, job.client, at.round, at.turn, at.nonce)
        names = ("federation", "client", "round", "turn", "request")
        for name, want, have in zip(names, wanted, reply[:5], strict=True):
            if have != want:
                reason = f": {reply.failure}" if reply.failure else ""
                return Failure(f"it answered for another {name}{reason}")
        return result_of(reply, self._expected(work, _sent(model, job)))

    def _expected(self, work: Work[Any], model: Model) -> Any:
        """Return an answer of the right structure, shapes and types."""
        match work:
            case Train():
                return expected_of(model, self._limits)
            case Evaluate():
                return np.zeros(work.episodes, np.float32)
            case Measure():
                zeros = np.zeros((2, work.size(self._config.world)), np.float32)
                return Measurement(zeros, zeros, zeros)
            case _:
                raise TypeError(f"clients cannot be asked to {work.name} over a network")


def _sent(model: Model, job: Job) -> Model:
    return model if job.model is None else job.model
