"""A run's table in `results/`: a line for each round, compressed.

results/EXPERIMENT/CASE-seedS.csv.gz   a run's table
results/made-with.csv                  of each table: the commit, and versions of what computes

The tables are made from logs (docs/metrics.md) and are all that figures and verdicts are made of,
so that they can be made again where the runs are gone. Numbers have six digits.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkl.core.errors import UserError
from fedkl.io import files
from fedkl.io.files import explain_os_errors, write_atomically

if TYPE_CHECKING:
    from fedkl.experiments.reproduce.experiment import Case

Row = dict[str, float | None]

LARGEST = 10_000_000
"""Bytes of a table, before it is compressed."""
_COPIED = (
    "round", "return_mean", "return_min", "return_std", "deterministic_return_mean", "kl_local",
    "distance_global", "guarded", "env_steps", "bytes_down", "bytes_up", "bytes_down_regions",
    "bytes_up_regions", "seconds",
)  # fmt: skip
_OF_MEMBERS = (
    "return_mean", "distance_mean", "distance_max", "distance_mean_elsewhere",
    "distance_max_elsewhere",
)  # fmt: skip
_MEASURED = ("advantage", "heterogeneity", "learning_potential", "alignment")
COLUMNS = (
    *_COPIED,
    "c1",
    "c2",
    "rejected",
    "unevaluated",
    *_MEASURED,
    "share_below_0",
    *(f"selected_{name}_{how}" for name in _MEASURED[2:] for how in ("mean", "least", "sum")),
    "mixture_return_mean",
    "mixture_kl",
    "mixture_tv",
    *(f"member_{name}" for name in _OF_MEMBERS),
)
"""Of a table. What was not measured is empty."""


def row_of(record: Mapping[str, Any]) -> Row:
    """Return a round's row.

    Args:
        record: as docs/metrics.md has it.
    """
    row: dict[str, Any] = {name: record[name] for name in _COPIED}
    row |= {name: record["coefficients"].get(name) for name in ("c1", "c2")}
    row["rejected"] = len(record["rejected"])
    row["unevaluated"] = len(record.get("unevaluated", ()))
    measured = record["heterogeneity"] or []
    chosen = [one for one in measured if one["client"] in record["selected"]]
    for name in _MEASURED:
        row[name] = float(np.mean([one[name] for one in measured])) if measured else None
    below = [one["learning_potential"] < 0 for one in measured]
    row["share_below_0"] = float(np.mean(below)) if measured else None
    for name in _MEASURED[2:]:
        values = [one[name] for one in chosen]
        row[f"selected_{name}_mean"] = float(np.mean(values)) if values else None
        row[f"selected_{name}_least"] = min(values, default=None)
        row[f"selected_{name}_sum"] = float(np.sum(values)) if values else None
    row |= _of_averaging(record.get("averaging"))
    return {name: _short(row[name]) for name in COLUMNS}


def _of_averaging(found: Mapping[str, Any] | None) -> Row:
    """Return the columns about averaging: means over members."""
    if found is None:
        return dict.fromkeys(name for name in COLUMNS if name.startswith(("mixture_", "member_")))
    row: Row = {"mixture_return_mean": found["mixture_return_mean"]}
    row |= {f"mixture_{name}": found[name] for name in ("kl", "tv")}
    for name in _OF_MEMBERS:
        values = [member[name] for member in found["members"]]
        known = [value for value in values if value is not None]
        row[f"member_{name}"] = float(np.mean(known)) if len(known) == len(values) else None
    return row


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write a run's table; the same rows give the same bytes.

    Raises:
        UserError: the operating system refuses.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(row[name]) for name in COLUMNS] for row in rows)
    with explain_os_errors("write", path):
        write_atomically(path, gzip.compress(text.getvalue().encode(), mtime=0))


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def read_table(path: Path) -> list[Row]:
    """Read a run's table.

    Raises:
        UserError: it is damaged, or not such a table.
    """
    with explain_os_errors("read", path):
        data = files.read_bytes(path, LARGEST)
    try:
        with gzip.open(io.BytesIO(data), "rt", encoding="utf-8", newline="") as stream:
            lines = list(csv.reader(io.StringIO(stream.read(LARGEST))))
        head, *body = lines
        if not set(head) <= set(COLUMNS) or "round" not in head or not body:
            raise ValueError("it has other columns")
        rows = [
            {name: float(x) if x else None for name, x in zip(head, line, strict=True)}
            for line in body
        ]
        if [row["round"] for row in rows] != [*map(float, range(1, len(rows) + 1))]:
            raise ValueError("rounds are missing")
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path} is damaged, or no table of a run: {error}") from error
    return [dict.fromkeys(COLUMNS) | row for row in rows]


def gave_up(rows: Sequence[Row], case: Case) -> bool:
    """Return True if a run ended before its time, because no client could train any more."""
    return len(rows) < case.rounds and bool(rows[-1]["rejected"])


def column(rows: Sequence[Row], name: str) -> np.ndarray:
    """A column of a run, NaN where it is empty."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)


def table_path(results: Path, case: Case, seed: int) -> Path:
    """Return the path of a run's table."""
    return results / case.experiment / f"{case.name}-seed{seed}.csv.gz"


def read_tables(results: Path, cases: Iterable[Case]) -> dict[str, dict[int, list[Row]]]:
    """The tables that are there, by case and seed.

    Raises:
        UserError: one is damaged, or has fewer rounds than its case and did not give up.
    """
    tables: dict[str, dict[int, list[Row]]] = {}
    for case in cases:
        for seed in case.seeds:
            path = table_path(results, case, seed)
            if not path.is_file():
                continue
            rows = read_table(path)
            if len(rows) != case.rounds and not gave_up(rows, case):
                raise UserError(
                    f"{path} has {len(rows)} rounds and its case {case.rounds}: it is of another "
                    "experiment, or of a quick one"
                )
            tables.setdefault(case.name, {})[seed] = rows
    return tables
