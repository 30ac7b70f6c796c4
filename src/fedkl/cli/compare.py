"""`fedkl compare`: train several algorithms and settings with several seeds, and report."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkl.cli import cluster, common, interrupts, report
from fedkl.core.errors import UserError
from fedkl.training.comparison import REFERENCES

if TYPE_CHECKING:
    from fedkl.config.config import Config
    from fedkl.experiments.workers import Place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_config(parser)
    parser.add_argument(
        "--algorithms", nargs="+", required=True, metavar="NAME", help="which; see `fedkl list`"
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
    common.add_formats(parser)
    parser.set_defaults(trains=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.cli import progress
        from fedkl.config import config
        from fedkl.experiments import compare
        from fedkl.experiments.grid import product_of
        from fedkl.report.pictures import require_matplotlib

    require_matplotlib()
    seeds = common.seeds_of(options)
    if len(set(options.algorithms)) < len(options.algorithms):
        raise UserError("--algorithms names an algorithm twice")
    settings = common.settings_of(options)
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

    def configure(algorithm: str, seed: int, varied: Mapping[str, Any]) -> Config:
        return common.started(options, unstarted(algorithm, seed, varied))

    def unstarted(algorithm: str, seed: int, varied: Mapping[str, Any]) -> Config:
        chosen = settings | dict(varied)
        if algorithm not in plan.references:
            return config.preset(options.preset, algorithm, seed, chosen, options.plugin)
        name = compare.ALGORITHM
        lacking = config.lacks(options.preset, name, chosen, options.plugin)
        own = {key: value for key, value in chosen.items() if key not in lacking}
        base = config.preset(options.preset, name, seed, own, options.plugin)
        return compare.MAKE[algorithm](base)

    with cluster.place(options) as place:
        cells = plan.cells().values()
        common.warn_of_doubts(configure(name, seeds[0], varied) for name, varied in cells)
        compare.create(options.run, plan, configure)
        for algorithm, keys in plan.lacks.items():
            has_no, joined = "has no", ", no ".join(keys)
            if algorithm in plan.references:
                has_no, joined = "does not go by", ", ".join(keys)
            progress.say(f"{algorithm} {has_no} {joined}: it is trained once for all values")
        _run_remaining(options.run, place, options)


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
    """Find settings that are varied and that an algorithm does not have, but another one has; or
    that a reference decides by itself."""
    from fedkl.config import config
    from fedkl.experiments import compare

    found = {
        algorithm: config.lacks(options.preset, algorithm, varied, options.plugin)
        for algorithm in options.algorithms
    }
    nobodys = set.intersection(*map(set, found.values()))
    of_others = {name: [key for key in keys if key not in nobodys] for name, keys in found.items()}
    plain = config.lacks(options.preset, compare.ALGORITHM, varied, options.plugin)
    for name in _references(options):
        decides = compare.DECIDES[name]
        of_others[name] = [key for key in varied if key in plain or key.startswith(decides)]
    return {name: keys for name, keys in of_others.items() if keys}


def resume_comparison(path: Path, place: Place | None) -> None:
    """Resume a comparison, and show what it came to."""
    from fedkl.report.pictures import require_matplotlib

    require_matplotlib()
    _run_remaining(path, place, argparse.Namespace(json=False, csv=False))


def _run_remaining(path: Path, place: Place | None, options: argparse.Namespace) -> None:
    from fedkl.cli import progress
    from fedkl.experiments import compare

    plan = compare.Plan.read(path)
    remaining = partial(compare.run_remaining, path, plan)
    progress.with_bar(plan.run_paths(path), remaining, place)
    report.write([path], path, None, options)
