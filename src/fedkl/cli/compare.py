"""`fedkl compare`: train several algorithms and settings with several seeds, and report."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedkl.cli import cluster, common, interrupts, report
from fedkl.training.comparison import REFERENCES

if TYPE_CHECKING:
    from fedkl.experiments.workers import Place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_config(parser)
    parser.add_argument(
        "--algorithms",
        nargs="+",
        metavar="NAME",
        help="which; see `fedkl list`; no default but with --add",
    )
    parser.add_argument(
        "--vary",
        nargs="+",
        action="append",
        default=[],
        metavar="KEY=V,V",
        help="settings to compare too, for each algorithm; those of one --vary move together, "
        "several are multiplied",
    )
    parser.add_argument(
        "--references",
        nargs="*",
        choices=REFERENCES,
        metavar="NAME",
        help="train for reference, too: alone (each client by itself), centralised (all data in "
        "one place); without a NAME both, with FedAvg's local training and as many steps; default: "
        "no reference",
    )
    common.add_start(parser)
    common.add_several(parser, first_seed=0)
    common.add_to(parser, "seeds, algorithms, references, rounds, or values of --vary")
    common.add_formats(parser)
    parser.set_defaults(trains=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.cli import console, progress
        from fedkl.experiments import additions, compare
        from fedkl.experiments.grid import parse_axes
        from fedkl.report.pictures import require_matplotlib

    require_matplotlib()
    common.require_given(options, "algorithms")
    seeds = partial(additions.seeds_of, options.seeds, options.first_seed, 0)
    references = REFERENCES if options.references == [] else options.references or ()
    wanted = compare.ComparisonPlan(
        **common.origin_of(options),
        algorithms=tuple(options.algorithms or ()),
        references=tuple(dict.fromkeys(references)),
        rounds=additions.rounds_of(common.settings_of(options)),
    )
    vary = parse_axes(options.vary, "--vary")
    with cluster.place(options) as place:
        plan, made = compare.begin(
            options.run, wanted, seeds, vary, options.add, console.warn, common.start_of(options)
        )
        for line in compare.notes(plan):
            progress.say(line)
        common.say_added(options, made)
        _run_remaining(options.run, place, options)


def resume_comparison(path: Path, place: Place | None) -> None:
    """Resume a comparison, and show its result."""
    from fedkl.report.pictures import require_matplotlib

    require_matplotlib()
    _run_remaining(path, place, argparse.Namespace(json=False, csv=False))


def _run_remaining(path: Path, place: Place | None, options: argparse.Namespace) -> None:
    from fedkl.cli import progress
    from fedkl.experiments import compare

    plan = compare.ComparisonPlan.read(path)
    remaining = partial(compare.run_remaining, path, plan)
    progress.with_bar(plan.run_paths(path), remaining, place)
    report.write([path], path, None, options)
    progress.require_unstalled(plan.run_paths(path))
    progress.say_stalled(plan.run_paths(path))
