"""How far one client of five moves everybody's anchors by what it says of its data.

python benchmarks/liar.py --out liar.json

In every round one client says that its mean is so many of its deviations away, or that its
deviations are so many times as large, and trains honestly. Measured is the total variation between
the normal distribution that anchors are drawn from then, and that of an honest run of the same
seed. See README.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measuring import emit, machine

import fedkl
from fedkl import Federation
from fedkl.clients.records import Model
from fedkl.clients.work import Train, Work
from fedkl.engines import Engine, Failure, Job
from fedkl.learning.statistics import Moments, correlation, excess
from fedkl.server.aggregation.reducers import suggested
from fedkl.server.setup import local_engine

CLIENTS, ROUNDS, SEED, LIAR = 5, 3, 1000, 0
DRAWS = 4096
SMALL: dict[str, Any] = {
    "federation.clients": CLIENTS,
    "federation.clients_per_round": CLIENTS,
    "federation.rounds": ROUNDS,
    "learner.iterations": 2,
    "learner.steps": 500,
    "learner.epochs": 1,
    "learner.hidden": [8],
    "critic.hidden": [8],
    "evaluation.every": ROUNDS,
    "evaluation.episodes": 1,
}
NO_LIMIT, VALIDATED = "`mean`, no limit", "`mean`, validation"
MEDIAN, SUGGESTED = "`median`, validation", "`multi-krum` as suggested, validation"
DEFENCES: dict[str, dict[str, Any]] = {
    NO_LIMIT: {
        "aggregation.reduce": "mean",
        "federation.max_statistics_factor": float("inf"),
    },
    VALIDATED: {"aggregation.reduce": "mean"},
    MEDIAN: {"aggregation.reduce": "median"},
    SUGGESTED: suggested(CLIENTS),
}
LIES = ("mean", "deviation")
SIZES = (3.0, 10.0, 100.0)


class Lying:
    """An engine in which one client lies about its observations."""

    def __init__(self, engine: Engine, about: str, size: float) -> None:
        self._engine, self._about, self._size = engine, about, size

    def run(
        self, work: Work[Any], model: Model, jobs: Sequence[Job], key: np.ndarray
    ) -> Iterator[tuple[int, Any]]:
        for client, answer in self._engine.run(work, model, jobs, key):
            lies = isinstance(work, Train) and client == LIAR and not isinstance(answer, Failure)
            if lies:
                seen = falsified(self._about, self._size, answer.update.model.observations)
                answer = eqx.tree_at(lambda a: a.update.model.observations, answer, seen)
            yield client, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def falsified(about: str, size: float, seen: Moments) -> Moments:
    """Moments of data that lie so many deviations away, or are so many times as wide."""
    if about == "deviation":
        squares, products = seen.squares * size**2, seen.products * size**2
        return Moments(seen.count, seen.mean, *map(np.float32, (squares, products)))
    away = size * np.sqrt(np.asarray(seen.squares) / seen.count)
    return Moments(seen.count, np.float32(seen.mean + away), seen.squares, seen.products)


def trained(defence: str, about: str | None = None, size: float = 1.0) -> tuple[Moments, int]:
    """The federation's moments after the last round, and in how many rounds the liar was refused.

    Args:
        defence: one of `DEFENCES`.
        about: one of `LIES`; None: nobody lies.
        size: of the lie.
    """
    config = fedkl.preset("reacher-init-state", "fedkl-anchored", SEED, SMALL | DEFENCES[defence])
    engine = local_engine(config)
    if about is not None:
        engine = Lying(engine, about, size)
    with Federation(config, engine) as federation:
        records = list(federation)
        moments = federation.state.model.observations
    refused = sum(LIAR in [r["client"] for r in record["rejected"]] for record in records)
    return jax.tree.map(jnp.asarray, moments), refused


def moved(honest: Moments, lied: Moments) -> float:
    """The total variation between the normal distributions of both."""
    together = correlation(honest)
    values, vectors = jnp.linalg.eigh(together)
    root = (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T
    noise = jax.random.normal(jax.random.key(SEED), (DRAWS, len(values)))
    return float(jnp.mean(excess(honest, lied, noise @ root)))


def measure(defences: Sequence[str], sizes: Sequence[float]) -> list[dict[str, Any]]:
    """A line for each defence, lie and size."""
    found = []
    for defence in defences:
        honest, _ = trained(defence)
        for about, size in product(LIES, sizes):
            lied, refused = trained(defence, about, size)
            line = {"defence": defence, "lie": about, "size": size, "refused": refused}
            found.append(line | {"moved": moved(honest, lied)})
    return found


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The lines in Markdown: a column for each defence."""
    names = list(dict.fromkeys(line["defence"] for line in lines))
    rows = [f"| lie | size | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for about, size in dict.fromkeys((line["lie"], line["size"]) for line in lines):
        cells = [
            f"{line['moved']:.2f}"
            + (f" (refused {line['refused']} times)" if line["refused"] else "")
            for line in lines
            if (line["lie"], line["size"]) == (about, size)
        ]
        rows.append(f"| {about} | {size:g} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, help="write the lines to this JSON file")
    arguments = parser.parse_args()
    lines = measure(list(DEFENCES), SIZES)
    emit({"machine": machine(), "rounds": ROUNDS, "lines": lines}, table(lines), arguments.out)


if __name__ == "__main__":
    main()
