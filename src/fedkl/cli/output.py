"""The output for machines: JSON or CSV on stdout, and nothing else there."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from fedkl.cli import console
from fedkl.io import strict_json, tables


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
        console.out.print(tables.as_csv(rows), soft_wrap=True, end="")
    return bool(options.json or options.csv)
