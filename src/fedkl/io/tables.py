"""Tables of text on a screen of any width, where no number is ever cut, and tables as CSV.

A table that is too wide folds the widest column of words; if that does not help, its rows are
stacked: a block for each, with a line for each column.
"""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console

from fedkl.io import strict_json

_GAP = "  "
_NARROWEST = 12
"""Columns that words are folded into at the least."""


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        titles: of the columns; a line break in one is kept while rows are side by side.
        rows: a text for each column.
        words: the numbers of the columns that hold words, to the left; others hold numbers.
        title: of all of it.
        notes: a line below each row, if there is one.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)
    title: str = ""
    notes: Sequence[str] = ()


def show(table: Table, console: Console) -> None:
    """Print a table on a console, as wide as that is."""
    if table.title:
        console.print(table.title, style="bold", soft_wrap=True, markup=False, emoji=False)
    for line in lines(table, console.width):
        console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)


def lines(table: Table, width: int) -> list[str]:
    """Write a table as lines of at most so many characters.

    Example:
        >>> arms = Table(("arm", "final", "rounds"), [("left", "-8.12", "200")])
        >>> print(*lines(arms, 80), sep="\\n")
        arm   final  rounds
        left  -8.12     200
        >>> print(*lines(arms, 16), sep="\\n")
        left
          final   -8.12
          rounds  200
    """
    heads = [title.split("\n") for title in table.titles]
    widths = [
        max(map(cell_len, [*head, *(row[column] for row in table.rows)]))
        for column, head in enumerate(heads)
    ]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    if excess > 0:
        widest = max(table.words, key=lambda column: widths[column], default=None)
        if widest is None or widths[widest] - excess < _NARROWEST:
            return _stacked(table, width)
        widths[widest] -= excess
    tall = max(map(len, heads))
    result = []
    if any(table.titles):
        parts = [[""] * (tall - len(head)) + head for head in heads]
        result = [_line(cells, widths, table.words) for cells in zip(*parts, strict=True)]
    for number, row in enumerate(table.rows):
        cells = [
            _folded(cell, widths[column]) if column in table.words else [cell]
            for column, cell in enumerate(row)
        ]
        tall = max(map(len, cells))
        parts = [cell + [""] * (tall - len(cell)) for cell in cells]
        result += [_line(texts, widths, table.words) for texts in zip(*parts, strict=True)]
        result += [f"    {note}" for note in table.notes[number : number + 1]]
    return result


def _line(cells: Sequence[str], widths: Sequence[int], words: Sequence[int]) -> str:
    padded = []
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        space = " " * (width - cell_len(cell))
        padded.append(cell + space if column in words else space + cell)
    return _GAP.join(padded).rstrip()


def _folded(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width) or [""] if cell_len(text) > width else [text]


def _stacked(table: Table, width: int) -> list[str]:
    """Write a block for each row: its first cell, then a line for each column that is not empty."""
    titles = [title.replace("\n", " ") for title in table.titles]
    room = max(map(cell_len, titles[1:]), default=0)
    result = []
    for number, (first, *rest) in enumerate(table.rows):
        head = first if 0 in table.words else f"{titles[0]} {first}".strip()
        result += textwrap.wrap(head, width) or [head]
        for title, cell in zip(titles[1:], rest, strict=True):
            if not cell:
                continue
            line = f"  {title:<{room}}{_GAP}{cell}" if title else f"{_GAP}{cell}"
            if cell_len(line) <= width:
                result.append(line)
                continue
            result += [f"  {title}"] if title else []
            # A number has no spaces, so that none is broken.
            wrapped = textwrap.wrap(
                cell, max(width - 4, 1), break_long_words=False, break_on_hyphens=False
            )
            result += [f"    {piece}" for piece in wrapped]
        result += [f"    {note}" for note in table.notes[number : number + 1]]
    return result


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as CSV with a header; what is not known is empty, lists and tables are JSON.

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
