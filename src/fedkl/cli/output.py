"""The output for machines: JSON or CSV on stdout, and nothing else there."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from fedkl.cli import console
from fedkl.io import strict_json


def answered(
    options: argparse.Namespace, record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> bool:
    """Print for a machine, if --json or --csv ask for it.

    Args:
        options: of the command.
        record: all there is to say, for JSON.
        rows: the table alone, for CSV; the first has every column.

    Returns:
        True if that was all; False: a person is waiting.
    """
    if options.json:
        console.out.print(strict_json.encode(record).decode(), soft_wrap=True)
    elif options.csv:
        console.out.print(as_csv(rows), soft_wrap=True, end="")
    return bool(options.json or options.csv)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as CSV with a header; what is not known is empty, and lists are JSON.

    Example:
        >>> print(as_csv([{"client": 0, "return": None, "sizes": [1, 2]}]), end="")
        client,return,sizes
        0,,"[1, 2]"
    """
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        return strict_json.encode({"": value})[5:-1].decode()
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value
