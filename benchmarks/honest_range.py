"""How far honest clients go, in all presets, beside what validation allows.

python benchmarks/honest_range.py --results honest.jsonl --out honest.json

Each cell trains a preset for a few rounds and takes down the largest of everything that validation
limits. A cell that is in the results already is not run again. See README.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from measuring import emit, machine, read_lines, run_missing

import fedkl
from fedkl import Federation
from fedkl.clients.records import PARTS, Kind, Model, Trained
from fedkl.clients.work import Train, Work
from fedkl.config.presets import summaries
from fedkl.engines import Engine, Failure, Job
from fedkl.server.outliers import (
    CORRELATED,
    MAJORITY,
    distance,
    no_history,
    traits_of,
    usual_among,
    usual_before,
)
from fedkl.server.settings import FederationSettings
from fedkl.server.validation import norm

SEED = 300
ALGORITHMS = ("fedavg", "fedkl", "fedkl-anchored", "fedprox", "fmarl", "scaffold")
ALL_ALGORITHMS = ("probe-point", "reacher-init-state")
"""Presets that are trained with every algorithm; the others with their own."""
COVARIANCES = (
    "acrobot",
    "cartpole-gravity",
    "half-cheetah-gravity",
    "mountain-car-continuous",
    "pendulum-gravity",
    "reacher-dynamics",
)
"""Presets that are also trained with the algorithm that shares covariances."""

Round = tuple[Model, list[tuple[int, Trained]]]


class Cell(NamedTuple):
    """One training; an algorithm of "" is the preset's own."""

    preset: str
    algorithm: str


class Listening:
    """An engine that takes down what is broadcast and what clients answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.rounds: list[Round] = []

    def run(
        self, work: Work[Any], model: Model, jobs: Sequence[Job], key: np.ndarray
    ) -> Iterator[tuple[int, Any]]:
        answers: list[tuple[int, Any]] = []
        if isinstance(work, Train):
            self.rounds.append((model, answers))
        for client, answer in self._engine.run(work, model, jobs, key):
            if not isinstance(answer, Failure):
                answers.append((client, answer))
            yield client, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def cells() -> list[Cell]:
    """Every preset, and some with more algorithms than their own."""
    found = [Cell(preset, "") for preset in summaries() if preset not in ALL_ALGORITHMS]
    found += [Cell(preset, algorithm) for preset in ALL_ALGORITHMS for algorithm in ALGORITHMS]
    return found + [Cell(preset, "fedkl-anchored") for preset in COVARIANCES]


def train(cell: Cell, rounds: int) -> dict[str, Any]:
    """Trains a preset for some rounds."""
    started = time.perf_counter()
    algorithm = cell.algorithm or None
    settings = fedkl.preset(cell.preset, algorithm).federation
    k = max(settings.clients_per_round, min(MAJORITY, settings.clients))
    changes = {
        "federation.rounds": rounds,
        "federation.clients_per_round": k,
        "evaluation.every": rounds,
        "evaluation.episodes": 1,
    }
    with Federation(fedkl.preset(cell.preset, algorithm, SEED, changes)) as federation:
        federation.engine = listening = Listening(federation.engine)
        refused = [x["reason"] for record in federation for x in record["rejected"]]
    return cell._asdict() | {
        "rounds": rounds,
        "refused": refused,
        "range": range_of(listening.rounds),
        "seconds": time.perf_counter() - started,
    }


def range_of(rounds: Sequence[Round]) -> dict[str, float]:
    """The largest of everything that is limited, over clients and rounds."""
    most: dict[str, float] = {}

    def note(values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if np.isfinite(value):
                most[name] = max(most.get(name, 0.0), float(value))

    history = no_history(rounds[0][0])
    for model, answers in rounds:
        traits = {client: traits_of(trained, model) for client, trained in answers}
        now, before = usual_among([*traits.values()], history), usual_before(history)
        known = [now] if before is None else [now, before]
        for client, trained in answers:
            far = distance(traits[client], known)
            note({f"{n}, in medians": x for n, x in far.sizes.items()})
            note({f"{n}.mean, in scales": x for n, x in far.means.items()})
            note({f"{n}.deviation, in scales": x for n, x in far.deviations.items()})
            note({f"{n}.products, apart": x for n, x in far.correlations.items()})
            note(_alone(trained, model))
        history = jax.tree.map(lambda x, past: np.stack([x, *past[:-1]]), now, history)
    return most


def _alone(trained: Trained, model: Model) -> dict[str, float]:
    """What is limited of an answer by itself."""
    update, metrics = trained.update, trained.metrics
    traits = traits_of(trained, model)
    counts = ~metrics["guarded"]
    found = {"message, in norms": norm(jax.tree.leaves(update.message))}
    found["message, in norms"] /= max(1.0, norm(jax.tree.leaves(model.shared)))
    for name, kind in PARTS.items():
        if kind is Kind.NETWORK:
            found[f"{name}, in norms"] = traits.sizes[name]
            leaves = jax.tree.leaves(getattr(update.model, name))
            found["a parameter"] = max(
                [found.get("a parameter", 0.0), *(float(np.abs(x).max()) for x in leaves)]
            )
    for name in traits.means:
        both = np.abs(traits.means[name]), traits.deviations[name]
        found[f"{name}, mean or deviation"] = max(float(np.max(x)) for x in both)
    for name in "kl_local", "distance_global":
        found["a divergence"] = max(
            [found.get("a divergence", 0.0), *np.abs(metrics[name][counts]).tolist()]
        )
    found["a return"] = float(np.nanmax(np.abs(metrics["train_return"]), initial=0.0))
    for name, value in update.model.coefficients.items():
        found[f"coefficients.{name}, growth"] = float(value) / float(model.coefficients[name])
    return found


def limits() -> dict[str, float]:
    """What the default settings allow, by the end of a quantity's name."""
    settings = FederationSettings()
    return {
        "policy, in norms": settings.max_relative_norm,
        "critic, in norms": settings.max_relative_norm,
        "message, in norms": settings.max_message_norm,
        "policy, in medians": settings.max_move_factor,
        "critic, in medians": settings.max_move_factor,
        ", in medians": settings.max_statistics_factor,
        ", in scales": settings.max_statistics_factor,
        ", apart": CORRELATED,
        "parameter": settings.max_magnitude,
        "divergence": settings.max_magnitude,
        "deviation": settings.max_magnitude,
    }


def tabulate(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The largest of each quantity over all cells, where it was, and what is allowed."""
    found: dict[str, Any] = {}
    for line in lines:
        where = f"{line['preset']} {line['algorithm']}".strip()
        for name, value in line["range"].items():
            if value >= found.get(name, {"most": -1.0})["most"]:
                allowed = next((x for end, x in limits().items() if name.endswith(end)), None)
                found[name] = {"most": value, "where": where, "allowed": allowed}
    return dict(sorted(found.items()))


def summary(found: dict[str, Any]) -> str:
    """A table in Markdown."""
    lines = ["| limited | largest of an honest client | where | allowed |", "|---|---|---|---|"]
    for name, x in found.items():
        allowed = "" if x["allowed"] is None else f"{x['allowed']:.3g}"
        lines.append(f"| {name} | {x['most']:.3g} | {x['where']} | {allowed} |")
    return "\n".join(lines)


def main() -> None:
    """Trains what is missing and shows the table; of `-paper` presets apart from the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--presets", nargs="+", help="only these")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on a core of its own")
    parser.add_argument("--results", type=Path, required=True, help="JSON lines, added to")
    parser.add_argument("--out", type=Path, help="also write the table's JSON here")
    args = parser.parse_args()
    wanted = [cell for cell in cells() if cell.preset in (args.presets or summaries())]

    def read() -> list[dict[str, Any]]:
        lines = [x for x in read_lines(args.results) if x["rounds"] == args.rounds]
        return [x for x in lines if Cell(x["preset"], x["algorithm"]) in wanted]

    there = {Cell(x["preset"], x["algorithm"]) for x in read()}
    work = partial(train, rounds=args.rounds)
    run_missing(work, [c for c in wanted if c not in there], args.results, args.jobs, said)
    lines = read()
    checked = tabulate([x for x in lines if not x["preset"].endswith("-paper")])
    believed = tabulate([x for x in lines if x["preset"].endswith("-paper")])
    result = {
        "what": "the largest of what validation limits, over honest clients",
        "machine": machine("jax", "numpy"),
        "cells": len(lines),
        "refused": {f"{x['preset']} {x['algorithm']}": x["refused"] for x in lines if x["refused"]},
        "found": checked,
        "paper": believed,
    }
    shown = [summary(checked)]
    shown += (
        [f"-paper presets, where all of it is believed:\n{summary(believed)}"] if believed else []
    )
    emit(result, "\n".join(shown), args.out)


def said(line: dict[str, Any]) -> str:
    """A cell that is done."""
    return (
        f"{line['preset']} {line['algorithm']}: {line['refused'] or 'nobody'} refused,"
        f" {line['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
