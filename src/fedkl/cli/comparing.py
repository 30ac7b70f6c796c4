"""The commands that compare runs: training them side by side, and reporting on any."""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedkl.cli import cluster, console, output
from fedkl.cli.options import seeds_of, settings_of
from fedkl.cli.several import say, with_bar
from fedkl.config import config
from fedkl.core.errors import UserError
from fedkl.experiments import compare
from fedkl.experiments import compare as references
from fedkl.experiments.grid import product_of
from fedkl.experiments.workers import Place
from fedkl.io.files import explain_os_errors
from fedkl.report import load_runs, print_table, records, write_report
from fedkl.report.pictures import require_matplotlib
from fedkl.training.comparison import REFERENCES


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
        references=_references(options),
        vary=vary,
        lacks=_lacks(options, vary[0]) if vary else {},
    )

    def configure(algorithm: str, seed: int, varied: Mapping[str, Any]) -> config.Config:
        chosen = settings | dict(varied)
        if algorithm not in plan.references:
            return config.preset(options.preset, algorithm, seed, chosen, options.plugin)
        name = references.ALGORITHM
        lacking = config.lacks(options.preset, name, chosen, options.plugin)
        own = {key: value for key, value in chosen.items() if key not in lacking}
        base = config.preset(options.preset, name, seed, own, options.plugin)
        return references.MAKE[algorithm](base)

    with cluster.place(options) as place:
        compare.create(options.run, plan, configure)
        for algorithm, keys in plan.lacks.items():
            has_no, joined = "has no", ", no ".join(keys)
            if algorithm in plan.references:
                has_no, joined = "does not go by", ", ".join(keys)
            say(f"{algorithm} {has_no} {joined}: it is trained once for all values")
        _go_on(options.run, place, options)


def _references(options: argparse.Namespace) -> tuple[str, ...]:
    """Read `--references`, which without a name stands for all there are."""
    if options.references is None:
        return ()
    chosen = tuple(dict.fromkeys(options.references or REFERENCES))
    if taken := {*chosen} & {*options.algorithms}:
        raise UserError(
            f"--references has a {min(taken)} of its own: give that algorithm another name"
        )
    return chosen


def _lacks(options: argparse.Namespace, varied: Collection[str]) -> dict[str, list[str]]:
    """Settings that are varied and that an algorithm does not have, but another one has; or that a
    reference decides by itself."""
    found = {
        algorithm: config.lacks(options.preset, algorithm, varied, options.plugin)
        for algorithm in options.algorithms
    }
    nobodys = set.intersection(*map(set, found.values()))
    of_others = {name: [key for key in keys if key not in nobodys] for name, keys in found.items()}
    plain = config.lacks(options.preset, references.ALGORITHM, varied, options.plugin)
    for name in _references(options):
        decides = references.DECIDES[name]
        of_others[name] = [key for key in varied if key in plain or key.startswith(decides)]
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
