"""`fedkl report`: write the page, the figures and the table of runs."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from fedkl.cli import common, console, interrupts, output
from fedkl.core.errors import UserError
from fedkl.io.files import explain_os_errors


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
        help="where page and figures go; default: the one DIR that is given, or else ./report",
    )
    common.add_formats(parser)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.report.pictures import require_matplotlib

    if options.target is not None and not math.isfinite(options.target):
        raise UserError(f"--target must be a finite number, not {options.target}")
    require_matplotlib()
    alone = options.runs[0] if len(options.runs) == 1 else Path("report")
    write(options.runs, options.out or alone, options.target, options)


def write(
    sources: Sequence[Path], out: Path, target: float | None, options: argparse.Namespace
) -> None:
    """Write the page, and print the table.

    Args:
        sources: runs and comparisons.
        out: where the page goes.
        target: as `write_report` has it.
        options: say for whom the table is.
    """
    from fedkl.report import load_runs, print_table, records, write_report

    runs = load_runs(*sources, warn=console.warn)
    with explain_os_errors("create", out):
        out.mkdir(parents=True, exist_ok=True)
    page = write_report(out, runs, target, sources)
    rows = records(runs, target)
    if output.answered(options, {"report": str(page), "rows": rows}, rows):
        return
    print_table(runs, console.out, target)
    console.out.print(f"report: {page}", soft_wrap=True)
