"""`fedkl report`: write the page, the figures and the tables of runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedkl.cli import common, console, interrupts, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="DIR", help="runs, comparisons, folders of runs"
    )
    parser.set_defaults(reads=("runs",))
    parser.add_argument(
        "--target",
        type=float,
        metavar="R",
        help="return for 'rounds to target'; default: where the second-best ended",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where page, figures and tables go; default: the one DIR that is given, or else "
        "./report",
    )
    parser.add_argument(
        "--x",
        default="rounds",
        choices=("rounds", "steps", "gradient-steps", "bytes"),
        help="what figures have from left to right; default: rounds",
    )
    parser.add_argument(
        "--alike",
        type=Path,
        metavar="DIR",
        help="the same on clients that are alike: say what heterogeneity costs, and what is won "
        "back; default: none",
    )
    parser.add_argument(
        "--initial",
        action="store_true",
        help="evaluate each run's policy before training, too, as round 0 of curves and figures; "
        "takes an evaluation for each run, once",
    )
    common.add_formats(parser)


def run(options: argparse.Namespace) -> None:
    write(
        options.runs,
        options.out,
        options.target,
        options,
        options.x,
        options.alike,
        options.initial,
    )


def write(
    sources: Sequence[Path],
    out: Path | None,
    target: float | None,
    options: argparse.Namespace,
    x: str = "rounds",
    alike: Path | None = None,
    initial: bool = False,
) -> None:
    """Write the page, and print the table.

    Args:
        sources: runs and comparisons.
        out, target, x, alike, initial: as `fedkl.report` has them.
        options: say for whom the table is.
    """
    with interrupts.importing():
        from fedkl.report import print_table, records
        from fedkl.report.api import make
        from fedkl.report.groups import grouped
        from fedkl.report.pairs import pairs_of

    made = make(sources, out, target, x, alike, initial, console.warn)
    rows = records(made.runs, target)
    record = {
        "report": str(made.page),
        "rows": rows,
        "pairs": [pair.record() for pair in pairs_of(grouped(made.runs))],
        "price": None if made.price is None else made.price.record(),
    }
    if output.answered(options, record, rows):
        return
    print_table(made.runs, console.out, target)
    console.out.print(f"report: {made.page}", soft_wrap=True)
