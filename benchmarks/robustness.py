"""Reducers against clients that lie: the final return with 3 attackers among each round's 10.

python benchmarks/robustness.py --results robustness.jsonl --out robustness.json

The attackers are the business of an engine of this script's own (`Attacked`), which wraps the usual
one; the federation, its validation and its aggregation are as they are for everybody. A cell that
is in the results already is not run again. See README.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from fedkl.clients.records import ClientState, Model
from fedkl.clients.work import Train, Work
from fedkl.config.config import parse_assignment
from fedkl.engines import Engine, Failure, Job
from fedkl.server.setup import local_engine

PRESET = "reacher-init-state-paper"
PER_ROUND, ATTACKERS = 10, 3
SEEDS = (101, 102, 103)
"""Not 100, on which the clip and the number of rounds were chosen."""
TIMES = 10.0
"""The norm of a false move, in norms of the true one."""
CLIP = 0.5
"""About the norm of a usual move of the policy; a critic moves further."""

BEARING = {"aggregation.byzantine": ATTACKERS}
REDUCERS: dict[str, dict[str, Any]] = {
    "mean": {"aggregation.reduce": "mean"},
    "mean, clipped": {"aggregation.each": ["clip"], "aggregation.max_norm": CLIP},
    "median": {"aggregation.reduce": "median"},
    "trimmed-mean": {
        "aggregation.reduce": "trimmed-mean",
        "aggregation.trim": ATTACKERS / PER_ROUND,
    },
    "geometric-median": {"aggregation.reduce": "geometric-median"},
    "krum": {"aggregation.reduce": "krum"} | BEARING,
    "multi-krum": {"aggregation.reduce": "multi-krum"} | BEARING,
}
REGIONS: dict[str, dict[str, Any]] = {
    f"grouped, r = {r}": {
        "aggregation.reduce": "grouped",
        "aggregation.regions": 2,
        "aggregation.region_rounds": r,
    }
    for r in (1, 4)
}
NO_ATTACK = "none"
ATTACKS = (NO_ATTACK, "sign-flip", "noise", "constant")
MEASURES = ("return", "sampled_return")
"""Of the deterministic and of the stochastic policy."""
HONEST = ("mean", NO_ATTACK)
"""What the others are compared with."""


class Attacked:
    """An engine in which the lowest-numbered of each round's clients send false networks.

    They train like everybody else, and what they say of their data and their steps is true.
    """

    def __init__(self, engine: Engine, attack: str, attackers: int) -> None:
        self._engine, self._attack, self._attackers = engine, attack, attackers
        self._bad: set[int] | None = None

    def run(
        self, work: Work[Any], model: Model, jobs: Sequence[Job], key: np.ndarray
    ) -> Iterator[tuple[int, Any]]:
        answers = self._engine.run(work, model, jobs, key)
        if not isinstance(work, Train):
            yield from answers
            return
        by_client = {job.client: job for job in jobs}
        if self._bad is None:  # a retry asks fewer clients, and the attackers stay the same
            self._bad = set(sorted(by_client)[: self._attackers])
        for client, answer in answers:
            if client in self._bad and not isinstance(answer, Failure):
                job = by_client[client]
                start = model if job.model is None else job.model
                random = np.random.default_rng([int(word) for word in job.key])
                false = self._false(start, answer.update.model, random)
                answer = answer._replace(
                    update=eqx.tree_at(lambda u: u.model, answer.update, false)
                )
            yield client, answer

    def _false(self, start: Model, end: Model, random: np.random.Generator) -> Model:
        """A model whose networks have made another move than the client's."""
        networks = [part for part in ("policy", "critic") if getattr(start, part) is not None]
        false = [
            attacked(self._attack, getattr(start, part), getattr(end, part), random)
            for part in networks
        ]
        return eqx.tree_at(lambda m: [getattr(m, part) for part in networks], end, false)

    def keep(self, round: int, clients: Sequence[int]) -> None:
        self._bad = None
        self._engine.keep(round, clients)

    def saved(self, oldest: int) -> None:
        self._engine.saved(oldest)

    def save(self) -> Mapping[int, ClientState]:
        return self._engine.save()

    def restore(self, saved: Mapping[int, ClientState]) -> None:
        self._engine.restore(saved)

    def report(self) -> Any:
        return self._engine.report()

    def close(self) -> None:
        self._engine.close()


def attacked(attack: str, start: Any, end: Any, random: np.random.Generator) -> Any:
    """Where a network is said to be that moved from `start` to `end`."""
    leaves, structure = jax.tree.flatten(start)
    moves = [np.subtract(b, a) for a, b in zip(leaves, jax.tree.leaves(end), strict=True)]
    size = np.sqrt(sum(np.sum(np.square(m, dtype=np.float64)) for m in moves))
    if attack == "sign-flip":
        false = [-m for m in moves]
    else:
        if attack == "noise":
            false = [random.normal(size=m.shape) for m in moves]
        else:
            false = [np.ones(m.shape) for m in moves]
        scale = TIMES * size / np.sqrt(sum(np.sum(np.square(m)) for m in false))
        false = [scale * m for m in false]
    moved = [np.asarray(a + m, np.asarray(a).dtype) for a, m in zip(leaves, false, strict=True)]
    return jax.tree.unflatten(structure, moved)


class Cell(NamedTuple):
    """One training: who aggregates, who attacks, and the chance."""

    reducer: str
    attack: str
    seed: int


def train(cell: Cell, setting: dict[str, Any]) -> dict[str, Any]:
    """Trains one cell to its last round, which is the only one to be evaluated."""
    started = time.perf_counter()
    changes = setting | (REDUCERS | REGIONS)[cell.reducer]
    config = fedkl.preset(PRESET, seed=cell.seed, set=changes)
    engine = local_engine(config)
    if cell.attack != NO_ATTACK:
        engine = Attacked(engine, cell.attack, ATTACKERS)
    with Federation(config, engine) as federation:
        records = list(federation)
    last = records[-1]
    return cell._asdict() | {
        "setting": setting,
        "return": last["deterministic_return_mean"],
        "sampled_return": last["return_mean"],
        "rejected": [r for record in records for r in record["rejected"]],
        "notes": [record["note"] for record in records if record["note"]],
        "bytes_up_regions": sum(record["bytes_up_regions"] for record in records),
        "bytes_down_regions": sum(record["bytes_down_regions"] for record in records),
        "seconds": time.perf_counter() - started,
    }


def run(cells: Iterable[Cell], setting: dict[str, Any], results: Path, jobs: int) -> None:
    """Trains the cells that are not there yet, and appends each as it is done."""
    there = {cell_of(line) for line in read(results, setting)}
    left = [cell for cell in cells if cell not in there]
    run_missing(partial(train, setting=setting), left, results, jobs, said)


def said(line: dict[str, Any]) -> str:
    """A cell that is done."""
    return (
        f"{line['reducer']}, {line['attack']}, seed {line['seed']}: {line['return']:.2f} "
        f"in {line['seconds']:.0f} s"
    )


def read(results: Path, setting: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that were trained with these settings."""
    return [line for line in read_lines(results) if line["setting"] == setting]


def cell_of(line: dict[str, Any]) -> Cell:
    """What a line is the result of."""
    return Cell(*(line[name] for name in Cell._fields))


def tabulate(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Each reducer by each attack, beside the mean that nobody attacks."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        cells.setdefault((line["reducer"], line["attack"]), []).append(line)
    table = {f"{reducer} | {attack}": _row(rows) for (reducer, attack), rows in cells.items()}
    result: dict[str, Any] = {
        "table": table,
        "refused_by_validation": sum(len(line["rejected"]) for line in lines),
        "rounds_that_changed_nothing": sum(len(line["notes"]) for line in lines),
    }
    for measure in MEASURES if HONEST in cells else ():
        honest = [line[measure] for line in cells[HONEST]]
        verdict: dict[str, Any] = {"honest": {"low": min(honest), "high": max(honest)}}
        for attack in sorted({attack for _, attack in cells} - {NO_ATTACK}):
            means = {
                reducer: mean(line[measure] for line in rows)
                for (reducer, against), rows in cells.items()
                if against == attack
            }
            verdict[attack] = {
                "as_good_as_honest": sorted(r for r, m in means.items() if m >= min(honest)),
                "below": sorted(r for r, m in means.items() if m < min(honest)),
            }
        result[f"by_{measure}"] = verdict
    return result


def _row(lines: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"seeds": sorted(line["seed"] for line in lines)}
    for name in MEASURES:
        values = [line[name] for line in lines]
        row[name] = {"mean": mean(values), "min": min(values), "max": max(values)}
    for name in ("bytes_up_regions", "bytes_down_regions"):
        row[name] = mean(line[name] for line in lines)
    row["seconds"] = mean(line["seconds"] for line in lines)
    return row


def summary(result: dict[str, Any]) -> str:
    """Tables in Markdown, and what they come to."""
    table, lines = result["table"], []
    for measure in MEASURES:
        lines += [f"{measure}, mean over seeds (least to greatest)", *_markdown(table, measure)]
        for name, found in result.get(f"by_{measure}", {}).items():
            if name == "honest":
                lines.append(f"honest seeds: {found['low']:.2f} to {found['high']:.2f}")
            else:
                good = "; ".join(found["as_good_as_honest"]) or "nobody"
                lines.append(f"{name}: as good as honest: {good}")
    for reducer in REGIONS:
        if row := table.get(f"{reducer} | {NO_ATTACK}"):
            lines.append(
                f"{reducer}: {row['bytes_up_regions']:,.0f} bytes from the regions' servers, "
                f"{row['bytes_down_regions']:,.0f} to them"
            )
    lines.append(f"updates refused by validation: {result['refused_by_validation']}")
    return "\n".join(lines)


def _markdown(table: dict[str, Any], measure: str) -> list[str]:
    attacks = [a for a in ATTACKS if any(name.endswith(f"| {a}") for name in table)]
    lines = ["| reducer | " + " | ".join(attacks) + " |", "|---" * (1 + len(attacks)) + "|"]
    for reducer in REDUCERS | REGIONS:
        rows = [table.get(f"{reducer} | {attack}") for attack in attacks]
        if any(rows):
            shown = [_shown(row[measure]) if row else "" for row in rows]
            lines.append(f"| {reducer} | " + " | ".join(shown) + " |")
    return lines


def _shown(x: dict[str, float]) -> str:
    return f"{x['mean']:.2f} ({x['min']:.2f} to {x['max']:.2f})"


def main() -> None:
    """Trains what is missing and shows the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=8, help="a multiple of 4")
    parser.add_argument("--iterations", type=int, default=10, help="local ones, in a round")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--reducers", nargs="+", default=[*REDUCERS, *REGIONS])
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=ATTACKS)
    parser.add_argument("--jobs", type=int, default=2, help="processes, each on a core of its own")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument("--results", type=Path, required=True, help="JSON lines, added to")
    parser.add_argument("--out", type=Path, help="also write the table's JSON here")
    args = parser.parse_args()
    setting = {
        "federation.clients_per_round": PER_ROUND,
        "federation.rounds": args.rounds,
        "learner.iterations": args.iterations,
        "evaluation.every": args.rounds,
        # A critic's first move is longer than its parameters: validation would refuse ten times
        # that, and it is the reducers that are to be seen.
        "federation.max_relative_norm": 1000.0,
    } | dict(map(parse_assignment, args.set))
    cells = [
        Cell(reducer, attack, seed)
        for seed in args.seeds
        for reducer in args.reducers
        for attack in args.attacks
        if attack == NO_ATTACK or reducer not in REGIONS
    ]
    run(cells, setting, args.results, args.jobs)
    found = [line for line in read(args.results, setting) if cell_of(line) in set(cells)]
    result = {
        "what": f"deterministic return after training with {ATTACKERS} of {PER_ROUND} attacking",
        "machine": machine("jax", "numpy"),
        "setting": {"preset": PRESET} | setting,
    } | tabulate(found)
    emit(result, summary(result), args.out)


if __name__ == "__main__":
    main()
