"""Asking clients what averaging parameters costs beside averaging policies; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from fedkl.clients.mixture import Averaged, EvaluateAveraging, with_members
from fedkl.clients.records import Model, Update
from fedkl.clients.work import EPISODES_AT_ONCE
from fedkl.engines import Engine, Failure, Job
from fedkl.engines.base import KeyData
from fedkl.io.arrays import AnyArray
from fedkl.server.validation import LARGEST_RETURN


class MemberRecord(TypedDict):
    """The return of one averaged client's policy, and how far it went."""

    client: int
    return_mean: float
    distance_mean: float | None
    distance_max: float | None
    distance_mean_elsewhere: float | None
    distance_max_elsewhere: float | None


class AveragingRecord(TypedDict):
    """The mixture of the averaged policies beside their average."""

    mixture_return_mean: float
    kl: float
    tv: float
    members: list[MemberRecord]


class Found(TypedDict, total=False):
    """The part of a round's record about averaging."""

    averaging: AveragingRecord


def evaluate_averaging(
    engine: Engine,
    models: tuple[Model, Model],
    updates: Mapping[int, Update],
    episodes: int,
    jobs: Sequence[Job],
    key: KeyData,
) -> Found:
    """Evaluate a round's average beside the mixture of the policies that went into it.

    Args:
        engine: where the clients are.
        models: what was broadcast in the round, and what is after it.
        updates: those that were averaged.
        episodes: of each client with each policy.
        jobs: of whom it is asked.
        key: for what clients share.
    """
    before, after = models
    members = sorted(updates)
    policies = [updates[client].model.policy for client in members]
    weights = [float(updates[client].weight) for client in members]
    sent = with_members(after, before.policy, policies, weights)
    work = EvaluateAveraging(min(episodes, EPISODES_AT_ONCE))
    answers: dict[int, Any] = dict(engine.run(work, sent, jobs, key))
    found = {c: a for c, a in answers.items() if not isinstance(a, Failure) and _is_paid(a)}
    return {"averaging": _record(found, members)} if found else {}


def _is_paid(answer: Averaged) -> bool:
    """Return True if a world can pay such returns: else they would be the mean over all clients."""
    return all(np.all(np.abs(x) <= LARGEST_RETURN) for x in (answer.mixture, answer.members))


def _record(answers: Mapping[int, Averaged], members: Sequence[int]) -> AveragingRecord:
    def mean(name: str) -> float:
        return _mean([getattr(answer, name) for answer in answers.values()])

    return {
        "mixture_return_mean": mean("mixture"),
        "kl": mean("kl"),
        "tv": mean("tv"),
        "members": [_member(answers, k, client) for k, client in enumerate(members)],
    }


def _member(answers: Mapping[int, Averaged], k: int, client: int) -> MemberRecord:
    own = answers.get(client)
    others = [answer for other, answer in answers.items() if other != client]
    return {
        "client": client,
        "return_mean": _mean([answer.members[k] for answer in answers.values()]),
        "distance_mean": None if own is None else float(own.distance_mean[k]),
        "distance_max": None if own is None else float(own.distance_max[k]),
        "distance_mean_elsewhere": float(np.mean([a.distance_mean[k] for a in others]))
        if others
        else None,
        "distance_max_elsewhere": float(np.max([a.distance_max[k] for a in others]))
        if others
        else None,
    }


def _mean(values: Sequence[AnyArray]) -> float:
    return float(np.mean(values, dtype=np.float64))
