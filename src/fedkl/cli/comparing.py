"""The commands that compare runs: training them side by side, and reporting on any."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedkl import compare, config
from fedkl.cli import cluster, console, output
from fedkl.cli.options import seeds_of, settings_of
from fedkl.cli.several import say, with_bar
from fedkl.errors import UserError
from fedkl.report import load_runs, print_table, records, write_report
from fedkl.report.pictures import require_matplotlib
from fedkl.runs import explain_os_errors
from fedkl.tuning.grid import product_of
from fedkl.workers import Place


def compare_(options: argparse.Namespace) -> None:
    require_matplotlib()
    seeds = seeds_of(options)
    if len(set(options.algorithms)) < len(options.algorithms):
        raise UserError("--algorithms names an algorithm twice")
    settings = settings_of(options)
    vary = tuple(product_of(options.vary, settings, "--vary")) if options.vary else ()
    plan = compare.Plan(
        preset=options.preset,
        algorithms=tuple(options.algorithms),
        seeds=seeds,
        jobs=options.jobs,
        vary=vary,
        lacks=_lacks(options, vary[0]) if vary else {},
    )

    def configure(algorithm: str, seed: int, varied: Mapping[str, Any]) -> config.Config:
        chosen = settings | dict(varied)
        return config.preset(options.preset, algorithm, seed, chosen, options.plugin)

    with cluster.place(options) as place:
        compare.create(options.run, plan, configure)
        for algorithm, keys in plan.lacks.items():
            say(f"{algorithm} has no {', no '.join(keys)}: it is trained once for all values")
        _go_on(options.run, place, options)


def _lacks(options: argparse.Namespace, varied: Iterable[str]) -> dict[str, list[str]]:
    """Settings that are varied and that an algorithm does not have, but another one has."""
    found = {
        algorithm: config.lacks(options.preset, algorithm, varied, options.plugin)
        for algorithm in options.algorithms
    }
    nobodys = set.intersection(*map(set, found.values()))
    of_others = {name: [key for key in keys if key not in nobodys] for name, keys in found.items()}
    return {name: keys for name, keys in of_others.items() if keys}


def go_on_comparison(path: Path, place: Place | None) -> None:
    """Goes on with a comparison, and shows what it came to."""
    require_matplotlib()
    _go_on(path, place, argparse.Namespace(json=False, csv=False))


def _go_on(path: Path, place: Place | None, options: argparse.Namespace) -> None:
    plan = compare.read_plan(path)
    with_bar(compare.runs_of(path, plan), partial(compare.go_on, path, plan), place)
    _report([path], path, None, options)


def report(options: argparse.Namespace) -> None:
    if options.target is not None and not math.isfinite(options.target):
        raise UserError(f"--target must be a finite number, not {options.target}")
    alone = options.runs[0] if len(options.runs) == 1 else Path("report")
    _report(options.runs, options.out or alone, options.target, options)


def _report(
    sources: Sequence[Path], out: Path, target: float | None, options: argparse.Namespace
) -> None:
    """Writes the page, and shows the table.

    Args:
        sources: runs and comparisons.
        out: where the page goes.
        target: as `write_report` has it.
        options: say for whom the table is.
    """
    require_matplotlib()
    runs = load_runs(*sources, warn=console.warn)
    with explain_os_errors("create", out):
        out.mkdir(parents=True, exist_ok=True)
    page = write_report(out, runs, target, sources)
    rows = records(runs, target)
    if output.answered(options, {"report": str(page), "rows": rows}, rows):
        return
    print_table(runs, console.out, target)
    console.out.print(f"report: {page}", soft_wrap=True)
