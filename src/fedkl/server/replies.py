"""The replies of the clients that were asked to train: only what can be true is accepted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedkl.clients.records import Model, Trained
from fedkl.clients.work import Train
from fedkl.engines import Engine, Failure, Job
from fedkl.io.arrays import size_in_bytes
from fedkl.learning.randomness import Purpose, key_data_for, key_data_of, key_for
from fedkl.server.outliers import Usual, judge, unconfirmed, without_statistics
from fedkl.server.validation import Limits, problem_with

if TYPE_CHECKING:
    from fedkl.config.config import Config


class Replies(NamedTuple):
    """The replies of a round."""

    accepted: dict[int, Trained]
    rejected: dict[int, str]
    """The reasons why the others were left out."""
    refused: frozenset[int]
    """Those among them that answered, and were not believed."""
    retried: list[tuple[int, str]]
    """Clients that were asked again, each time, and why the answer before did not count."""
    held_back: dict[int, str]
    """Accepted clients whose statistics do not count yet, and why."""
    usual: Usual
    """The traits of answers in the last rounds, and in this one."""
    answers: int
    """All that arrived, also those that were not accepted."""
    bytes_down: int
    bytes_up: int

    @property
    def common_reason(self) -> str | None:
        """A note if all answers were refused for one reason: then the clients may not be at
        fault."""
        reasons = [self.rejected[client] for client in sorted(self.refused)]
        kinds = {re.sub(r"[-+]?\d[\d.e+-]*", "", reason) for reason in reasons}
        if self.accepted or len(reasons) < 2 or len(kinds) > 1:
            return None
        return (
            f"all {len(reasons)} answers were refused for one reason, and model and statistics "
            f"stay as they were ({reasons[0]})"
        )


def collect_updates(
    config: Config,
    engine: Engine,
    model: Model,
    round: int,
    starts: Mapping[int, Model],
    since: Mapping[int, int],
    usual: Usual,
    limits: Limits,
) -> Replies:
    """Ask the selected clients to train, and keep the valid answers.

    An answer has to be possible by itself, and no outlier among those that are. The first K valid
    ones count; who comes later is not blamed. A client whose answer is invalid is asked again with
    a fresh key, up to `federation.retries` times; one whose answer was lost on the way is asked the
    same again.

    Args:
        config: the run's.
        engine: where the clients are.
        model: what is broadcast.
        round: how many rounds are over.
        starts: the model that each selected client starts from.
        since: the round in which each client's update was last accepted, for those that have been.
        usual: what clients said in the last rounds.
        limits: of an update.
    """
    wanted = config.federation.clients_per_round
    possible: dict[int, Trained] = {}
    rejected: dict[int, str] = {}
    refused: set[int] = set()
    retried: list[tuple[int, str]] = []
    given_up: set[int] = set()
    before = usual
    tries = dict.fromkeys(starts, 0)
    sent = answered = 0
    for attempt in range(1 + config.federation.retries):
        possible = {c: answer for c, answer in possible.items() if c not in rejected}
        left = [c for c in starts if c not in possible and c not in given_up]
        if not left or len(possible) == wanted:
            break
        sent += len(left)
        retried += [(client, rejected[client]) for client in left if attempt]
        waiting = dict.fromkeys(left, "it did not answer")
        rejected |= waiting
        refused -= waiting.keys()
        shared = key_for(config.seed_of_worlds, Purpose.SHARED_WORLD, round, attempt)
        numbers = np.asarray([[round, client, tries[client]] for client in left])
        keys = key_data_for(config.seed, Purpose.TRAINING, numbers)
        jobs = [
            Job(c, key, since.get(c, 0), None if starts[c] is model else starts[c], round)
            for c, key in zip(left, keys, strict=True)
        ]
        coming = engine.run(Train(), model, jobs, key_data_of(shared))
        for client, answer in coming:
            if client not in waiting:  # it was not asked, or it has answered already
                continue
            del waiting[client]
            lost = isinstance(answer, Failure) and answer.lost
            tries[client] += not lost
            if isinstance(answer, Failure):
                rejected[client] = answer.reason
                given_up |= set() if answer.again else {client}
                continue
            answered += 1
            problem = problem_with(answer, starts[client], limits)
            if problem is None:
                possible[client] = answer
                del rejected[client]
            else:
                rejected[client] = problem
                refused.add(client)
            if len(possible) == wanted:
                rejected = {c: why for c, why in rejected.items() if c not in waiting}
                given_up |= waiting.keys()
                coming.close()
                break
        outliers, usual = judge(possible, starts, before, limits)
        rejected |= outliers
        refused |= outliers.keys()
    accepted = {client: answer for client, answer in possible.items() if client not in rejected}
    held_back = unconfirmed(accepted, starts, before, limits)
    accepted |= {client: without_statistics(accepted[client]) for client in held_back}
    down = size_in_bytes(model)
    up = down - size_in_bytes(model.shared) + size_in_bytes(limits.message) + np.float32().nbytes
    return Replies(
        accepted,
        rejected,
        frozenset(refused),
        retried,
        held_back,
        usual,
        answered,
        sent * down,
        answered * up,
    )
