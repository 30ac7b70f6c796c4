"""Asking the selected clients to train, and believing only what can be true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedkl.arrays import size_in_bytes
from fedkl.clients.carry import Trained
from fedkl.clients.state import Model
from fedkl.clients.work import Train
from fedkl.engines import Engine, Failure, Job
from fedkl.randomness import Purpose, key_for, words_for, words_of
from fedkl.server.validation import Limits, problem_with


class Asked(NamedTuple):
    """Who is asked to train, and from where."""

    seed: int
    round: int
    starts: Mapping[int, Model]
    """What each selected client starts from."""
    since: Mapping[int, int]
    """The round in which each client's update was last accepted, for those that have been."""


class Replies(NamedTuple):
    """What came of it."""

    accepted: dict[int, Trained]
    rejected: dict[int, str]
    """Why the others were left out."""
    answers: int
    """All that came, also those that were not accepted."""
    bytes_down: int
    bytes_up: int


def train(engine: Engine, model: Model, asked: Asked, limits: Limits, retries: int) -> Replies:
    """Valid answers, and why the other clients were left out.

    Args:
        engine: where the clients are.
        model: what is broadcast.
        asked: who is asked, and from where.
        limits: what an update may be at the most.
        retries: how often a client whose answer is invalid is asked again, with a fresh key.
    """
    accepted: dict[int, Trained] = {}
    rejected: dict[int, str] = {}
    sent = answered = 0
    for attempt in range(1 + retries):
        left = [client for client in asked.starts if client not in accepted]
        if not left:
            break
        sent += len(left)
        rejected |= dict.fromkeys(left, "it did not answer")
        for client, answer in engine.run(
            Train(),
            model,
            _jobs(asked, left, attempt, model),
            words_of(key_for(asked.seed, Purpose.SHARED_WORLD, asked.round, attempt)),
        ):
            if client not in rejected:  # nobody has asked it, or it has answered already
                continue
            if isinstance(answer, Failure):
                rejected[client] = answer.reason
                continue
            answered += 1
            problem = problem_with(answer, asked.starts[client], limits)
            if problem is None:
                accepted[client] = answer
                del rejected[client]
            else:
                rejected[client] = problem
    down = size_in_bytes(model)
    up = down - size_in_bytes(model.shared) + size_in_bytes(limits.message) + np.float32().nbytes
    return Replies(accepted, rejected, answered, sent * down, answered * up)


def _jobs(asked: Asked, clients: Sequence[int], attempt: int, model: Model) -> list[Job]:
    numbers = np.asarray([[asked.round, client, attempt] for client in clients])
    words = words_for(asked.seed, Purpose.TRAINING, numbers)
    return [
        Job(c, w, asked.since.get(c, 0), None if asked.starts[c] is model else asked.starts[c])
        for c, w in zip(clients, words, strict=True)
    ]
