"""The table of results, one row an algorithm, for the page, the terminal and machines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from rich.console import Console

from fedkl.core.text import digits, few
from fedkl.io import tables
from fedkl.report.groups import Group, aligned, grouped, judged, levels, worlds
from fedkl.report.labels import flat, telling
from fedkl.report.runs import ClientReturns, LoadedRun
from fedkl.report.statistics import (
    Estimate,
    default_target,
    estimate,
    final_window,
    first_reaching,
    iqm,
    largest_drop,
    settling,
)

NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Row:
    """The results of one algorithm, or of one run.

    Attributes:
        label: what it is called (see `LoadedRun.label`).
        seeds: how many runs enter the numbers.
        finished: False if they are runs that have not come to their end.
        rounds: the last evaluated round; None if no round was evaluated.
        final: the mean return over the final window.
        best: the highest return of a round.
        drop: how far the return fell below its best so far, at the most.
        worst_client: the lowest of the clients' mean returns over the final window.
        worst_client_id: which client that is; None for a row of several runs.
        rounds_to_target: the first round whose return (the IQM over seeds) reaches the target.
        seeds_reaching: how many of the seeds ever reach it on their own; None without a target.
        megabytes_to_target: communicated until the end of that round.
        seconds_to_target: seconds until the end of that round, without compilation.
        seconds: wall-clock time of a whole run.
        seconds_training: of that, without compilation (see `training.records.training_seconds`).
        steps_per_second: environment steps of training in a second of those.
        megabytes_down: sent to all selected clients in a round; None if the log does not say.
        megabytes_up: received from them in a round.
    """

    label: str
    seeds: int
    finished: bool
    rounds: int | None
    final: Estimate | None
    best: Estimate | None
    drop: Estimate | None
    worst_client: Estimate | None
    worst_client_id: int | None
    rounds_to_target: int | None
    seeds_reaching: int | None
    megabytes_to_target: float | None
    seconds_to_target: float | None
    seconds: float
    seconds_training: float | None
    steps_per_second: float | None
    megabytes_down: float | None
    megabytes_up: float | None


def target_of(groups: Sequence[Group]) -> float | None:
    """Return the default target (see `default_target`).

    None while nothing has been evaluated, and where the runs are of different tasks: no return
    means the same in all of them.
    """
    groups = [group for group in judged(groups) if group.evaluated]
    if not groups or len(levels(groups)) > 1:
        return None
    curves = [group.curves("return_mean").iqm for group in groups]
    return default_target(curves, [float(iqm(group.finals())) for group in groups])


def table(runs: Sequence[LoadedRun], target: float | None = None) -> list[Row]:
    """Return one row for each algorithm, in the order in which the algorithms first appear."""
    groups = grouped(runs)
    target = target_of(groups) if target is None else target
    return [_row(group, target) for group in groups]


def records(runs: Sequence[LoadedRun], target: float | None = None) -> list[dict[str, Any]]:
    """Return the rows of the table for machines: flat, with the settings that tell the rows apart.

    Of an estimate there are its value, and the ends of its interval as `_low` and `_high`.
    """
    groups = grouped(runs)
    keys = telling([flat(run.config) for run in runs])
    found = []
    for group, row in zip(groups, table(runs, target), strict=True):
        config = flat(group.counted[0].config)
        record: dict[str, Any] = {"label": row.label, "algorithm": config["algorithm.name"]}
        record["level"] = group.level
        record |= {key: config.get(key) for key in keys if key != "algorithm.name"}
        for field in fields(Row)[1:]:
            value = getattr(row, field.name)
            if "Estimate" in str(field.type):
                low, high = (None, None) if value is None else (value.low, value.high)
                record[field.name] = None if value is None else value.value
                record |= {f"{field.name}_low": low, f"{field.name}_high": high}
            else:
                record[field.name] = value
        found.append(record)
    return found


def run_row(run: LoadedRun, target: float | None) -> Row:
    """Return the row of a single run."""
    return _row(Group(run.label, (run,), ()), target)


def _row(group: Group, target: float | None) -> Row:
    spent: dict[str, Any] = {
        "seconds": float(np.mean([run.seconds[-1] for run in group.counted])),
        "seconds_training": _mean([run.training_seconds for run in group.counted]),
        "steps_per_second": _mean([run.steps_per_second for run in group.counted]),
        "megabytes_down": _megabytes_a_round(group, "bytes_down"),
        "megabytes_up": _megabytes_a_round(group, "bytes_up"),
    }
    if not group.evaluated:
        return Row(
            label=group.label,
            seeds=len(group.counted),
            finished=group.finished,
            rounds=None,
            final=None,
            best=None,
            drop=None,
            worst_client=None,
            worst_client_id=None,
            rounds_to_target=None,
            seeds_reaching=0,
            megabytes_to_target=None,
            seconds_to_target=None,
            **spent,
        )
    returns = group.curves("return_mean")
    clients = group.client_returns()
    aim = math.inf if target is None else target
    at = first_reaching(returns.iqm, aim)
    reached = None if at is None else int(returns.rounds[at])
    return Row(
        label=group.label,
        seeds=len(group.counted),
        finished=group.finished,
        rounds=group.last_round,
        final=estimate(group.finals()),
        best=estimate(returns.values.max(axis=1)),
        drop=estimate(largest_drop(returns.rounds, returns.values)),
        worst_client=estimate([c.returns.min() for c in clients]) if clients else None,
        worst_client_id=_worst(clients[0]) if len(clients) == 1 else None,
        rounds_to_target=reached,
        seeds_reaching=None
        if target is None
        else sum(first_reaching(v, aim) is not None for v in returns.values),
        megabytes_to_target=_mean_at(group, reached, "megabytes"),
        seconds_to_target=_mean_at(group, reached, "seconds_so_far"),
        **spent,
    )


def _worst(clients: ClientReturns) -> int:
    return int(clients.clients[clients.returns.argmin()])


def _mean_at(group: Group, reached: int | None, quantity: str) -> float | None:
    """Return the mean over the counted runs of a running total at the end of a round, if known."""
    totals = aligned(group.counted, lambda run: getattr(run, quantity))
    if reached not in totals.rounds:
        return None
    return float(totals.values[:, totals.rounds == reached].mean())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _megabytes_a_round(group: Group, key: str) -> float | None:
    """Return the mean over the counted runs and their rounds."""
    found = np.concatenate([run.series(key) for run in group.counted])
    known = found[np.isfinite(found)]
    return float(known.mean()) / 1e6 if known.size else None


def number(value: float | None) -> str:
    """Return a number with as many decimals as help: three or four digits in all.

    Example:
        >>> number(-8.1234), number(-140.26), number(12345.6), number(0.01234), number(None)
        ('-8.12', '-140.3', '12346', '0.0123', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return digits(value)


def minus(text: str) -> str:
    """Return the text with true minus signs before numbers, for the page; terminals keep the
    hyphen."""
    return re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", text)


def with_interval(value: Estimate | None) -> str:
    """Return a number and, in brackets, its interval if it has one."""
    if value is None:
        return NOTHING
    if value.low is None:
        return number(value.value)
    return f"{number(value.value)} [{number(value.low)}, {number(value.high)}]"


def rounds_cell(row: Row) -> str:
    """Say in which round the target was reached, and by how many of the seeds if not by all.

    "never" is about the curve of the algorithm (the IQM over seeds); a seed may still reach it.
    """
    if row.rounds is None or row.seeds_reaching is None:
        return NOTHING
    reached = "never" if row.rounds_to_target is None else str(row.rounds_to_target)
    partly = row.seeds > 1 and (0 < row.seeds_reaching < row.seeds)
    return f"{reached} ({row.seeds_reaching} of {row.seeds} seeds)" if partly else reached


def print_table(runs: Sequence[LoadedRun], console: Console, target: float | None = None) -> None:
    """Print the results as two tables: what was reached, and what it took."""
    target = target_of(grouped(runs)) if target is None else target
    rows = table(runs, target)
    names = [row.label + ("" if row.finished else " *") for row in rows]
    reached = tables.Table(
        ("algorithm", "seeds", "round", "final", "largest drop"),
        [
            (
                name,
                str(row.seeds),
                NOTHING if row.rounds is None else str(row.rounds),
                with_interval(row.final),
                with_interval(row.drop),
            )
            for name, row in zip(names, rows, strict=True)
        ],
        title="Return of the policy",
    )
    titles = ("best", "worst\nclient", "rounds\nto target", "MB to\ntarget", "s to\ntarget")
    took = tables.Table(
        ("algorithm", *titles, "s of\ntraining", "steps\na second"),
        [
            (
                name,
                number(row.best.value if row.best else None),
                number(row.worst_client.value if row.worst_client else None),
                rounds_cell(row),
                number(row.megabytes_to_target),
                number(row.seconds_to_target),
                number(row.seconds_training),
                number(row.steps_per_second),
            )
            for name, row in zip(names, rows, strict=True)
        ],
        title="Its best round, its worst client, and the way to the target",
    )
    tables.show(reached, console)
    console.print()
    tables.show(took, console)
    for line in _footnotes(rows, target, runs):
        console.print(line, style="dim", highlight=False)


def _after(rows: Sequence[Row]) -> str:
    """Return the round from which on drops count."""
    skipped = sorted({settling(row.rounds) for row in rows if row.rounds is not None})
    return f"after round {' or '.join(map(str, skipped))}"


def _footnotes(rows: Sequence[Row], target: float | None, runs: Sequence[LoadedRun]) -> list[str]:
    lines = []
    groups = grouped(runs)
    own = [group.label for group in judged(groups)]
    if against := [group.label for group in groups if group.label not in own]:
        lines.append(f"For reference, not judged: {few(against)}.")
    if len(several := worlds(groups)) > 1:
        lines.append(f"Different worlds ({few(several)}): returns are not comparable.")
    elif len(several := [*levels(judged(groups))]) > 1:
        lines.append(f"Different tasks ({few(several)}): compare within each.")
    if all(row.final is None for row in rows):
        lines.append("No round has been evaluated yet.")
    else:
        evaluated = max(int(np.isfinite(run.series("return_mean")).sum()) for run in runs)
        window = final_window(evaluated)
        over = "the last evaluated round" if window == 1 else f"the last {window} evaluated rounds"
        aim = "" if target is None else f"Target: {number(target)}. "
        lines.append(f"{aim}Final: mean over {over}.")
        lines.append(f"Largest drop: below the best return so far, {_after(rows)}.")
    if any(row.seeds > 1 for row in rows):
        lines.append("Interquartile mean over seeds; brackets: 95 % bootstrap interval over seeds.")
    else:
        lines.append("One seed for each algorithm: no interval.")
    lines.append("Seconds and steps a second: of rounds, without compilation.")
    if not all(row.finished for row in rows):
        lines.append("* not finished")
    if (left_out := len(runs) - sum(row.seeds for row in rows)) > 0:
        lines.append(f"Unfinished runs left out: {left_out}.")
    return lines
