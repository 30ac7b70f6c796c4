"""Asking the selected clients to train, and believing only what can be true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedkl.clients.records import Model, Trained
from fedkl.clients.work import Train
from fedkl.engines import Engine, Failure, Job
from fedkl.io.arrays import size_in_bytes
from fedkl.learning.randomness import Purpose, key_for, words_for, words_of
from fedkl.server.outliers import Usual, judge
from fedkl.server.validation import Limits, problem_with


class Asked(NamedTuple):
    """The clients that are asked to train, and what each starts from."""

    seed: int
    world_seed: int
    """Of the simulation that clients share."""
    round: int
    starts: Mapping[int, Model]
    """What each selected client starts from."""
    since: Mapping[int, int]
    """The round in which each client's update was last accepted, for those that have been."""
    usual: Usual
    """What clients said in the last rounds."""


class Replies(NamedTuple):
    """The replies of a round."""

    accepted: dict[int, Trained]
    rejected: dict[int, str]
    """Why the others were left out."""
    refused: frozenset[int]
    """Those among them that answered, and were not believed."""
    retried: list[tuple[int, str]]
    """Who was asked again, each time, and why the answer before did not count."""
    usual: Usual
    """What clients said in the last rounds, and in this one."""
    answers: int
    """All that came, also those that were not accepted."""
    bytes_down: int
    bytes_up: int


class Terms(NamedTuple):
    """The number of replies that is enough, and how often clients are asked again."""

    wanted: int
    """The first so many valid answers count; nobody is blamed for coming later."""
    retries: int
    """How often a client whose answer is invalid is asked again, with a fresh key; one whose answer
    was lost on the way is asked the same again."""


def train(engine: Engine, model: Model, asked: Asked, limits: Limits, terms: Terms) -> Replies:
    """Valid answers, and why the other clients were left out.

    An answer has to be possible by itself, and no outlier among those that are.

    Args:
        engine: where the clients are.
        model: what is broadcast.
        asked: who is asked, and from where.
        limits: what an update may be at the most.
        terms: how many answers count.
    """
    possible: dict[int, Trained] = {}
    rejected: dict[int, str] = {}
    refused: set[int] = set()
    retried: list[tuple[int, str]] = []
    given_up: set[int] = set()
    usual = asked.usual
    tries = dict.fromkeys(asked.starts, 0)
    sent = answered = 0
    for attempt in range(1 + terms.retries):
        possible = {c: answer for c, answer in possible.items() if c not in rejected}
        left = [c for c in asked.starts if c not in possible and c not in given_up]
        if not left or len(possible) == terms.wanted:
            break
        sent += len(left)
        retried += [(client, rejected[client]) for client in left if attempt]
        waiting = dict.fromkeys(left, "it did not answer")
        rejected |= waiting
        refused -= waiting.keys()
        shared = words_of(key_for(asked.world_seed, Purpose.SHARED_WORLD, asked.round, attempt))
        jobs = _jobs(asked, {client: tries[client] for client in left}, model)
        coming = engine.run(Train(), model, jobs, shared)
        for client, answer in coming:
            if client not in waiting:  # nobody has asked it, or it has answered already
                continue
            del waiting[client]
            lost = isinstance(answer, Failure) and answer.lost
            tries[client] += not lost
            if isinstance(answer, Failure):
                rejected[client] = answer.reason
                given_up |= set() if answer.again else {client}
                continue
            answered += 1
            problem = problem_with(answer, asked.starts[client], limits)
            if problem is None:
                possible[client] = answer
                del rejected[client]
            else:
                rejected[client] = problem
                refused.add(client)
            if len(possible) == terms.wanted:
                rejected = {c: why for c, why in rejected.items() if c not in waiting}
                given_up |= waiting.keys()
                coming.close()
                break
        outliers, usual = judge(possible, asked.starts, asked.usual, limits)
        rejected |= outliers
        refused |= outliers.keys()
    accepted = {client: answer for client, answer in possible.items() if client not in rejected}
    down = size_in_bytes(model)
    up = down - size_in_bytes(model.shared) + size_in_bytes(limits.message) + np.float32().nbytes
    return Replies(
        accepted,
        rejected,
        frozenset(refused),
        retried,
        usual,
        answered,
        sent * down,
        answered * up,
    )


def _jobs(asked: Asked, tries: Mapping[int, int], model: Model) -> list[Job]:
    """Of each client, which has tried so often before."""
    numbers = np.asarray([[asked.round, client, tried] for client, tried in tries.items()])
    words = words_for(asked.seed, Purpose.TRAINING, numbers)
    return [
        Job(c, w, asked.since.get(c, 0), _own_start(asked, c, model), asked.round)
        for c, w in zip(tries, words, strict=True)
    ]


def _own_start(asked: Asked, client: int, model: Model) -> Model | None:
    start = asked.starts[client]
    return None if start is model else start
