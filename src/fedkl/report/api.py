"""The report of runs, for the command and for Python."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedkl.core.errors import UserError
from fedkl.core.text import did_you_mean
from fedkl.io.files import explain_os_errors
from fedkl.report.groups import grouped
from fedkl.report.lines import X_AXES
from fedkl.report.page import write_report
from fedkl.report.pictures import require_matplotlib
from fedkl.report.price import Price, price_of
from fedkl.report.runs import LoadedRun, Warn, load_runs
from fedkl.training.directory import is_served
from fedkl.training.initial import evaluate_initial


class Written(NamedTuple):
    """A report that was written, and the runs behind it."""

    page: Path
    runs: list[LoadedRun]
    price: Price | None


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)


def report(
    directories: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    target: float | None = None,
    *,
    x: str = "rounds",
    alike: str | Path | None = None,
    initial: bool = False,
) -> Path:
    """Write the page on runs, its figures and its tables, as `fedkl report` does.

    Args:
        directories: runs, comparisons, folders of runs; one or several.
        out: where all of it goes; None: into the one directory that is given, or else `./report`.
        target: the return for "rounds to target"; None: where the second-best ended.
        x: what figures have from left to right: rounds, steps, gradient-steps or bytes.
        alike: the same on clients that are alike, to say what heterogeneity costs.
        initial: evaluate the policies before training, too, where that was not done.

    Returns:
        The page, `report.html`; beside it are `figures/`, `curves.csv`, `table.csv`, `table.tex`.

    Raises:
        UserError: there is nothing to report, it cannot be written, or matplotlib is missing.
    """
    given = [directories] if isinstance(directories, str | Path) else [*directories]
    if not given:
        raise UserError("directories must name at least one run")
    own = None if out is None else Path(out)
    other = None if alike is None else Path(alike)
    return make([*map(Path, given)], own, target, x, other, initial, _warn).page


def make(
    sources: Sequence[Path],
    out: Path | None,
    target: float | None,
    x: str,
    alike: Path | None,
    initial: bool,
    warn: Warn,
) -> Written:
    """Load runs and write their report; arguments as of `report`.

    Raises:
        UserError: as `report` does.
    """
    if target is not None and not math.isfinite(target):
        raise UserError(f"target must be a finite number, not {target}")
    if x not in X_AXES:
        raise UserError(f"x must be one of {', '.join(X_AXES)}, not {x}{did_you_mean(x, X_AXES)}")
    if alike is not None and alike.resolve() in (path.resolve() for path in sources):
        raise UserError(
            f"--alike names {alike}, which is reported itself: it must be another directory, with "
            "the same on clients that are alike"
        )
    require_matplotlib()
    runs = load_runs(*sources, warn=warn)
    if initial:
        for run in runs:
            if is_served(run.path):
                warn(f"{run.path} is served over a network: its round 0 is not evaluated")
            else:
                evaluate_initial(run.path)
        runs = load_runs(*sources)
    others = [] if alike is None else load_runs(alike, warn=warn)
    price = price_of(grouped(runs), others) if others else None
    place = out or (sources[0] if len(sources) == 1 else Path("report"))
    with explain_os_errors("create", place):
        place.mkdir(parents=True, exist_ok=True)
    page = write_report(place, runs, target, sources, x, price, alike)
    return Written(page, runs, price)
