"""Asking clients to measure the level of heterogeneity; changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from fedkl.clients.records import Model
from fedkl.engines import Engine, Failure, Job
from fedkl.heterogeneity import (
    Level,
    Measurement,
    check_basis,
    level,
    problem_with_measurement,
)
from fedkl.io.arrays import size_in_bytes
from fedkl.learning.randomness import Purpose, key_data_for, key_data_of, key_for
from fedkl.server.selection import Pool

if TYPE_CHECKING:
    from fedkl.config.config import Config


class LevelRecord(TypedDict):
    """The level measured of a client, as `Level` has it."""

    client: int
    advantage: float
    heterogeneity: float
    ratio: float | None
    learning_potential: float
    alignment: float


class Measurements(NamedTuple):
    """The result of a measurement."""

    measurements: dict[int, Measurement]
    refused: dict[int, str]
    """The reasons why the others were left out."""
    steps: int
    """Environment steps that it took, at the most."""
    bytes: int
    """Sent in both directions."""
    weights: Mapping[int, float] | None = None
    """q_k of each client; None: all alike."""

    def levels(self, clients: Collection[int] | None = None) -> dict[int, Level]:
        """The level of each client that answered, among these; None: among all.

        Where all of them weigh nothing they weigh alike.
        """
        wanted = self.measurements if clients is None else clients
        found = {c: m for c, m in self.measurements.items() if c in wanted}
        weights = self.weights
        if weights is not None and not any(weights[c] for c in found):
            weights = None
        return level(found, weights)


NOTHING = Measurements({}, {}, 0, 0)


def measure(
    config: Config,
    engine: Engine,
    model: Model,
    round: int,
    since: Mapping[int, int],
    clients: Collection[int],
) -> Measurements:
    """Ask clients to measure their worlds at the model's policy.

    Args:
        config: says how.
        engine: where the clients are.
        model: as it is broadcast.
        round: how many rounds are over.
        since: the round in which each client's update was last accepted, for those that have been.
        clients: who is asked.

    Raises:
        UserError: the clients cannot be compared.
    """
    if not clients:
        return NOTHING
    check_basis(config.federation.sharing())
    asked = sorted(clients)
    numbers = np.asarray([[round, client] for client in asked])
    words = key_data_for(config.seed, Purpose.HETEROGENEITY, numbers)
    jobs = [Job(c, w, since.get(c, 0), round=round) for c, w in zip(asked, words, strict=True)]
    work = config.heterogeneity.work()
    key = key_data_of(key_for(config.seed, Purpose.HETEROGENEITY, round))
    found: dict[int, Measurement] = {}
    refused = dict.fromkeys(asked, "it did not answer")
    answers = 0
    for client, answer in engine.run(work, model, jobs, key):
        if client not in refused:  # it was not asked, or it has answered already
            continue
        if isinstance(answer, Failure):
            refused[client] = answer.reason
            continue
        answers += 1
        if problem := problem_with_measurement(answer, work.size(config.world)):
            refused[client] = problem
            continue
        found[client] = answer
        del refused[client]
    sent = len(asked) * size_in_bytes(model)
    received = sum(size_in_bytes(m) for m in found.values())
    steps = answers * work.trajectories * config.world.horizon
    given = config.selection.client_weights()
    weights = None if given is None else dict(enumerate(given))
    return Measurements(found, refused, steps, sent + received, weights)


def measure_before_round(
    config: Config,
    engine: Engine,
    model: Model,
    t: int,
    since: Mapping[int, int],
    state: Any,
    pool: Pool,
) -> tuple[Measurements, Any]:
    """Measure whom the selector asks about, or all clients if the log is to have them.

    Args:
        config: the run's.
        engine: where the clients are.
        model: as it is broadcast.
        t: how many rounds are over.
        since: the round in which each client's update was last accepted, for those that have been.
        state: the selector's.
        pool: who can be selected.

    Returns:
        What was measured, and the state of a selector that knows it of those it asked about, and
        of no other client: what is measured for the log changes nothing.
    """
    candidates = config.selection.to_measure(state, t, pool)
    every = config.heterogeneity.every
    logged = every > 0 and t % every == 0
    asked = range(config.federation.clients) if logged else candidates
    measured = measure(config, engine, model, t, since, asked)
    if candidates:
        state = config.selection.measured(state, measured.levels(candidates))
    return measured, state


def rows(levels: Mapping[int, Level]) -> list[LevelRecord]:
    """Return the rows of a measurement for the log."""
    return [
        {
            "client": client,
            "advantage": one.advantage,
            "heterogeneity": one.heterogeneity,
            "ratio": None if np.isnan(one.ratio) else one.ratio,
            "learning_potential": one.learning_potential,
            "alignment": one.alignment,
        }
        for client, one in sorted(levels.items())
    ]
