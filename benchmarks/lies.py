"""A hundred plausible lies of one client of five: who is refused, and what becomes of the return.

python benchmarks/lies.py --results lies.jsonl --out lies.json

Each lie is drawn from its number: which client, from which round on, about what, how large. The
liar trains like everybody else and then changes its answer, within what validation allows or a
little beyond; the federation, its validation and its aggregation are as they are for everybody. A
cell that is in the results already is not run again. See README.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from measuring import emit, machine, read_lines, run_missing

import fedkl
from fedkl import Federation
from fedkl.clients.records import Model, Trained
from fedkl.clients.work import Train, Work
from fedkl.config.config import parse_assignment
from fedkl.engines import Engine, Failure, Job
from fedkl.learning.statistics import Moments, pairs
from fedkl.server.aggregation.reducers import suggested
from fedkl.server.setup import local_engine

PRESET, ALGORITHM = "reacher-init-state", "fedkl-anchored"
CLIENTS, ROUNDS = 5, 8
LIES, FIRST_LIE = 100, 300
"""Those before were tried while the reducer that is suggested was chosen."""
HONEST_SEEDS = tuple(range(1000, 1100))
"""Of the runs that the honest interval is of: a hundred, so that 99 in 101 of others are within."""
CONTROL_SEEDS = tuple(range(1100, 1110))
"""Of honest runs that are judged as if they were lies."""
KINDS = ("policy", "critic", "observations", "rewards", "coefficient", "covariance", "everything")
SMALL: dict[str, Any] = {
    "federation.clients": CLIENTS,
    "federation.clients_per_round": CLIENTS,
    "learner.iterations": 8,
    "learner.steps": 512,
    "learner.hidden": [16, 16],
    "learner.learning_rate": 1e-3,
    "critic.hidden": [16, 16],
    "evaluation.episodes": 20,
}
"""Of the preset: a federation that learns in seconds."""
REDUCERS: dict[str, dict[str, Any]] = {
    "suggested": suggested(CLIENTS),
    "mean": {"aggregation.reduce": "mean"},
}


class Lie(NamedTuple):
    """What a client says instead of the truth."""

    client: int
    first_round: int
    about: str
    seed: int
    """Of what is drawn in each round."""


def lie_of(number: int, rounds: int) -> Lie:
    """The lie of this number; half of them begin in the first round."""
    random = np.random.default_rng([number, LIES])
    first = 1 if random.random() < 0.5 else int(random.integers(2, rounds + 1))
    return Lie(int(random.integers(CLIENTS)), first, KINDS[number % len(KINDS)], number)


class Lying:
    """An engine in which one client lies."""

    def __init__(self, engine: Engine, lie: Lie, limits: fedkl.Config) -> None:
        self._engine, self._lie, self._settings = engine, lie, limits.federation

    def run(
        self, work: Work[Any], model: Model, jobs: Sequence[Job], key: np.ndarray
    ) -> Iterator[tuple[int, Any]]:
        answers = self._engine.run(work, model, jobs, key)
        rounds = {job.client: job.round for job in jobs}
        for client, answer in answers:
            lies = isinstance(work, Train) and client == self._lie.client
            if (
                lies
                and not isinstance(answer, Failure)
                and rounds[client] + 1 >= self._lie.first_round
            ):
                # The same in every round: what is a little wrong each time adds up.
                random = np.random.default_rng([self._lie.seed, LIES, 1])
                factors = self._settings.max_move_factor, self._settings.max_statistics_factor
                answer = told(self._lie.about, model, answer, random, *factors)
            yield client, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def told(
    about: str,
    start: Model,
    trained: Trained,
    random: np.random.Generator,
    move_factor: float,
    statistics_factor: float,
) -> Trained:
    """An answer with a lie in it.

    Args:
        about: one of `KINDS`.
        start: what the client started from.
        trained: its honest answer.
        random: decides about sizes and directions.
        move_factor: how many times its honest move the move is said to be, at the most.
        statistics_factor: how many times as far as honest data its data are said to be, likewise.
    """
    model, metrics = trained.update.model, trained.metrics

    def size(most: float) -> float:
        return float(most ** random.random())  # as often from 1 to 2 as from 2 to 4

    if about in ("policy", "everything"):
        model = eqx.tree_at(
            lambda m: m.policy, model, _moved(start.policy, model.policy, size(move_factor), random)
        )
    if about in ("critic", "everything"):
        model = eqx.tree_at(
            lambda m: m.critic, model, _moved(start.critic, model.critic, size(move_factor), random)
        )
    for part in "observations", "rewards":
        if about in (part, "everything"):
            false = _shifted(getattr(model, part), size(statistics_factor), random)
            model = eqx.tree_at(lambda m, part=part: getattr(m, part), model, false)
    if about in ("covariance", "everything"):
        seen = model.observations
        i, j = pairs(len(seen.mean))
        signs = random.choice([-1.0, 1.0], len(seen.mean))
        rank_one = (
            signs[i] * signs[j] * np.sqrt(np.asarray(seen.squares[i], float) * seen.squares[j])
        )
        share = random.choice([0.5, 1.0])
        products = share * rank_one + (1 - share) * seen.products
        false = eqx.tree_at(lambda s: s.products, seen, np.asarray(products, np.float32))
        model = eqx.tree_at(lambda m: m.observations, model, false)
    if about in ("coefficient", "everything"):
        low, high = 1e-3, 20.0
        known = float(start.coefficients["c_a"])
        said = np.float32(np.clip(random.choice([known / 2, 2 * known, low, high]), low, high))
        model = eqx.tree_at(lambda m: m.coefficients["c_a"], model, said)
        metrics = metrics | {"coefficients": metrics["coefficients"] | {"c_a": said}}
    return Trained(eqx.tree_at(lambda u: u.model, trained.update, model), metrics)


def _moved(start: Any, end: Any, times: float, random: np.random.Generator) -> Any:
    """A network that has gone the other way, or a random one, or the same in all parameters."""
    leaves, structure = jax.tree.flatten(start)
    moves = [
        np.subtract(b, a, dtype=float) for a, b in zip(leaves, jax.tree.leaves(end), strict=True)
    ]
    way = random.choice(["back", "random", "constant"])
    if way == "back":
        false = [-m for m in moves]
    else:
        false = [
            random.normal(size=m.shape) if way == "random" else np.ones(m.shape) for m in moves
        ]
    scale = times * _norm(moves) / _norm(false)
    moved = [np.asarray(a + scale * m, np.float32) for a, m in zip(leaves, false, strict=True)]
    return jax.tree.unflatten(structure, moved)


def _norm(arrays: Sequence[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(x)) for x in arrays)))


def _shifted(seen: Moments, times: float, random: np.random.Generator) -> Moments:
    """Data that are said to lie elsewhere, or to vary more or less, in some features or all."""
    deviation = np.sqrt(np.asarray(seen.squares, float) / float(seen.count))
    usual = deviation + np.abs(seen.mean)
    some = np.asarray(random.random(np.shape(seen.mean)) < random.choice([0.3, 1.0]))
    how = random.choice(["shift", "widen", "narrow"])
    shift = random.choice([-1.0, 1.0]) * times * usual * some * (how == "shift")
    stretch = np.where(some, {"shift": 1.0, "widen": times, "narrow": 1 / times}[how], 1.0)
    products = seen.products
    if products is not None:
        i, j = pairs(len(stretch))
        products = np.asarray(products * stretch[i] * stretch[j], np.float32)
    return Moments(
        seen.count,
        np.asarray(seen.mean + shift, np.float32),
        np.asarray(seen.squares * stretch**2, np.float32),
        products,
    )


class Cell(NamedTuple):
    """One training: who aggregates, which lie (-1: none), and the chance."""

    reducer: str
    lie: int
    seed: int


def train(cell: Cell, setting: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Trains one cell to its last round, which is the only one to be evaluated."""
    started = time.perf_counter()
    own = {"federation.rounds": rounds, "evaluation.every": rounds}
    changes = SMALL | own | REDUCERS[cell.reducer] | setting
    config = fedkl.preset(PRESET, ALGORITHM, cell.seed, changes)
    engine, lie = local_engine(config), None
    if cell.lie >= 0:
        lie = lie_of(cell.lie, rounds)
        engine = Lying(engine, lie, config)
    with Federation(config, engine) as federation:
        records = list(federation)
    refused = [r | {"round": record["round"]} for record in records for r in record["rejected"]]
    liar = None if lie is None else lie.client
    return cell._asdict() | {
        "setting": setting,
        "rounds": rounds,
        "about": None if lie is None else lie.about,
        "first_round": None if lie is None else lie.first_round,
        "return": records[-1]["return_mean"],
        "deterministic_return": records[-1]["deterministic_return_mean"],
        "liar_refused": [r for r in refused if r["client"] == liar],
        "honest_refused": [r for r in refused if r["client"] != liar],
        "notes": [record["note"] for record in records if record["note"]],
        "seconds": time.perf_counter() - started,
    }


def cells_of(reducers: Iterable[str], lies: Iterable[int], honest: Sequence[int]) -> list[Cell]:
    """The honest runs and the lies, reducer by reducer."""
    return [
        cell
        for reducer in reducers
        for cell in [
            *(Cell(reducer, -1, seed) for seed in honest),
            *(Cell(reducer, n, 500 + n) for n in lies),
        ]
    ]


def cell_of(line: dict[str, Any]) -> Cell:
    """What a line is the result of."""
    return Cell(*(line[name] for name in Cell._fields))


def tabulate(lines: list[dict[str, Any]], honest_seeds: Sequence[int]) -> dict[str, Any]:
    """For each reducer and kind of lie: who was refused, and how many returns are as honest ones.

    The honest interval is from the lowest to the highest of the honest runs of these seeds with the
    same reducer; those of other seeds are judged by it, as `none`.
    """
    result: dict[str, Any] = {}
    for reducer in dict.fromkeys(line["reducer"] for line in lines):
        own = [line for line in lines if line["reducer"] == reducer]
        honest = [x["return"] for x in own if x["lie"] < 0 and x["seed"] in honest_seeds]
        if not honest:
            continue
        others = [x for x in own if x["lie"] >= 0 or x["seed"] not in honest_seeds]
        low, high = min(honest), max(honest)
        kinds = {}
        for about in [*KINDS, "all", "none"]:
            wanted = KINDS if about == "all" else (None if about == "none" else about,)
            if lies := [x for x in others if x["about"] in wanted]:
                kinds[about] = {
                    "lies": len(lies),
                    "refused": sum(bool(x["liar_refused"]) for x in lies),
                    "honest_refused": sum(len(x["honest_refused"]) for x in lies),
                    "empty_rounds": sum(len(x["notes"]) for x in lies),
                    "below": sum(x["return"] < low for x in lies),
                    "within": sum(low <= x["return"] <= high for x in lies),
                    "above": sum(x["return"] > high for x in lies),
                    "mean": mean(x["return"] for x in lies),
                    "worst": min(x["return"] for x in lies),
                }
        interval = {"low": low, "high": high, "mean": mean(honest), "seeds": len(honest)}
        result[reducer] = {"honest": interval, "lies": kinds}
    return result


def summary(result: dict[str, Any]) -> str:
    """Tables in Markdown."""
    lines = []
    for reducer, found in result.items():
        honest = found["honest"]
        lines += [
            f"{reducer}: honest returns {honest['low']:.2f} to {honest['high']:.2f} "
            f"(mean {honest['mean']:.2f}, {honest['seeds']} seeds)",
            "| lie about | lies | liar refused | honest refused | empty rounds | below | within "
            "| above | mean return | worst |",
            "|---" * 10 + "|",
        ]
        for about, x in found["lies"].items():
            lines.append(
                f"| {about} | {x['lies']} | {x['refused']} | {x['honest_refused']} "
                f"| {x['empty_rounds']} | {x['below']} | {x['within']} | {x['above']} "
                f"| {x['mean']:.2f} | {x['worst']:.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Trains what is missing and shows the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lies", type=int, default=LIES)
    parser.add_argument("--first-lie", type=int, default=FIRST_LIE, help="its number")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--honest", type=int, nargs="+", default=list(HONEST_SEEDS), help="seeds")
    parser.add_argument("--control", type=int, nargs="*", default=list(CONTROL_SEEDS), help="seeds")
    parser.add_argument("--reducers", nargs="+", default=list(REDUCERS), choices=list(REDUCERS))
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on a core of its own")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument("--results", type=Path, required=True, help="JSON lines, added to")
    parser.add_argument("--out", type=Path, help="also write the tables' JSON here")
    args = parser.parse_args()
    setting = dict(map(parse_assignment, args.set))
    numbers = range(args.first_lie, args.first_lie + args.lies)
    cells = cells_of(args.reducers, numbers, [*args.honest, *args.control])

    def read() -> list[dict[str, Any]]:
        same = {"setting": setting, "rounds": args.rounds}
        lines = read_lines(args.results)
        return [x for x in lines if x.items() >= same.items() and cell_of(x) in set(cells)]

    there = {cell_of(line) for line in read()}
    left = [cell for cell in cells if cell not in there]
    work = partial(train, setting=setting, rounds=args.rounds)
    run_missing(work, left, args.results, args.jobs, said)
    found = tabulate(read(), args.honest)
    result = {
        "what": f"return after {args.rounds} rounds in which one of {CLIENTS} clients lies",
        "machine": machine("jax", "numpy"),
        "setting": {"preset": PRESET, "algorithm": ALGORITHM} | SMALL | setting,
        "reducers": REDUCERS,
        "found": found,
    }
    emit(result, summary(found), args.out)


def said(line: dict[str, Any]) -> str:
    """A cell that is done."""
    what = "honest" if line["lie"] < 0 else f"lie {line['lie']} about {line['about']}"
    return (
        f"{line['reducer']}, {what}: {line['return']:.2f}, refused {len(line['liar_refused'])} and "
        f"{len(line['honest_refused'])} honest, in {line['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
