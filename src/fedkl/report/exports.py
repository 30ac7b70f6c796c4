"""The numbers of a report as files beside its page: curves and table as CSV, the table as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.io.files import explain_os_errors, write_atomically
from fedkl.io.tables import as_csv
from fedkl.report.groups import Group, grouped, judged, levels
from fedkl.report.labels import flat, telling
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import Estimate, FloatArray, difference, iqm
from fedkl.report.table import Row, number, records, rounds_cell, table, target_of

CURVES, TABLE, LATEX = FILES = ("curves.csv", "table.csv", "table.tex")
_RETURNS = ("return_mean", "return_min", "return_std", "deterministic_return_mean")
_DIAGNOSTICS = ("kl_local", "distance_global")
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def write_tables(directory: Path, runs: Sequence[LoadedRun], target: float | None) -> None:
    """Write `FILES` into a directory.

    Raises:
        UserError: if the operating system refuses.
    """
    texts = {
        CURVES: as_csv(curves(runs)),
        TABLE: as_csv(records(runs, target)),
        LATEX: latex(runs, target),
    }
    with explain_os_errors("write the tables of", directory):
        for name, text in texts.items():
            write_atomically(directory / name, text.encode())


def curves(runs: Sequence[LoadedRun]) -> list[dict[str, Any]]:
    """Return a row for each run and evaluated round, with what had been spent until its end.

    Round 0 is the policy before training, where it was evaluated.
    """
    configs = [flat(run.config) for run in runs]
    keys = [key for key in telling(configs) if key != "algorithm.name"]
    rows = []
    for run, config in zip(runs, configs, strict=True):
        same: dict[str, Any] = {
            "run": run.name,
            "label": run.label,
            "algorithm": config["algorithm.name"],
            "level": run.level,
            **{key: config.get(key) for key in keys},
            "seed": run.seed,
        }
        if run.initial is not None:
            nothing = dict.fromkeys(spent(run), 0)
            found = {key: run.initial.get(key) for key in (*_RETURNS, *_DIAGNOSTICS)}
            rows.append({**same, "round": 0, **nothing, **found})
        columns = spent(run) | {key: run.series(key) for key in (*_RETURNS, *_DIAGNOSTICS)}
        for place in np.flatnonzero(np.isfinite(run.series("return_mean"))):
            cells = {key: _plain(values[place]) for key, values in columns.items()}
            rows.append({**same, "round": int(run.rounds[place]), **cells})
    return rows


def spent(run: LoadedRun) -> dict[str, FloatArray]:
    """Return running totals of a run, up to the end of each recorded round."""
    return {
        "env_steps": run.env_steps,
        "gradient_steps": run.gradient_steps,
        "bytes_down": np.nancumsum(run.series("bytes_down")),
        "bytes_up": np.nancumsum(run.series("bytes_up")),
        "seconds": run.seconds,
    }


def _plain(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else float(value)


def latex(runs: Sequence[LoadedRun], target: float | None) -> str:
    """Return the table as LaTeX for the package booktabs, with intervals, the best in bold."""
    groups = grouped(runs)
    target = target_of(groups) if target is None else target
    rows = dict(zip((group.label for group in groups), table(runs, target), strict=True))
    tasks = levels(groups)
    lines = [
        "% Needs \\usepackage{booktabs}. Interquartile means over seeds; in brackets their 95 %",
        "% bootstrap interval. Bold: the best, and what cannot be told from it (the interval of",
        "% the difference includes zero).",
        "\\begin{tabular}{lrrrrrrr}",
        "\\toprule",
        "algorithm & seeds & final return & worst client & largest drop & rounds to target & MB to "
        "target & steps/s \\\\",
        "\\midrule",
    ]
    for place, (level, own) in enumerate(tasks.items()):
        if len(tasks) > 1:
            lines += ["\\addlinespace"] if place else []
            lines.append(f"\\multicolumn{{8}}{{l}}{{\\emph{{{_escaped(level)}}}}} \\\\")
        bold = {
            "final": _best(own, lambda group: group.finals()),
            "worst_client": _best(own, _worst_clients),
        }
        lines += [_line(group, rows[group.label], bold) for group in own]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _line(group: Group, row: Row, bold: dict[str, set[str]]) -> str:
    cells = [
        _escaped(group.method or group.label) + ("" if row.finished else "$^*$"),
        str(row.seeds),
        _estimate(row.final, group.label in bold["final"]),
        _estimate(row.worst_client, group.label in bold["worst_client"]),
        _estimate(row.drop, False),
        _escaped(rounds_cell(row)).replace("\N{EN DASH}", "--"),
        _number(row.megabytes_to_target),
        _number(row.steps_per_second),
    ]
    return " & ".join(cells) + " \\\\"


def _best(groups: Sequence[Group], values: Callable[[Group], FloatArray]) -> set[str]:
    """Return the labels of the best algorithm and of those that cannot be distinguished from it."""
    found = {g.label: values(g) for g in judged(groups) if g.evaluated}
    found = {label: each for label, each in found.items() if each.size}
    if not found:
        return set()
    best = max(found, key=lambda label: float(iqm(found[label])))
    gaps = {label: difference(found[best], each) for label, each in found.items() if label != best}
    return {best, *(label for label, gap in gaps.items() if gap.low is not None and gap.low <= 0)}


def _worst_clients(group: Group) -> FloatArray:
    return np.array([clients.returns.min() for clients in group.client_returns()])


def _estimate(value: Estimate | None, bold: bool) -> str:
    if value is None:
        return "--"
    text = _number(value.value)
    text = f"\\textbf{{{text}}}" if bold else text
    if value.low is None:
        return text
    return f"{text} [{_number(value.low)}, {_number(value.high)}]"


def _number(value: float | None) -> str:
    return number(value).replace("\N{EN DASH}", "--") if value is None else f"${number(value)}$"


def _escaped(text: str) -> str:
    """Return text as LaTeX shows it.

    Example:
        >>> _escaped("d_global=5%")
        'd\\\\_global=5\\\\%'
    """
    return "".join(_SPECIAL.get(character, character) for character in text)
