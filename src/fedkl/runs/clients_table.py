"""Who differs in what, as a table: a row for each client, a column for each number of each word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def columns(words: Mapping[str, Array]) -> dict[str, Array]:
    """A column for each word, or for each entry of a word that has several.

    Args:
        words: by word, a row for each client.

    Example:
        >>> list(columns({"gravity": np.ones(2), "offset": np.ones((2, 2))}))
        ['gravity', 'offset_0', 'offset_1']
    """
    result: dict[str, Array] = {}
    for word, rows in words.items():
        flat = rows.reshape(len(rows), -1)
        names = [word] if rows.ndim == 1 else [f"{word}_{i}" for i in range(flat.shape[1])]
        result |= dict(zip(names, flat.T, strict=True))
    return result


def as_csv(words: Mapping[str, Array]) -> str:
    """The table as text; a number is as short as its type can tell it from any other.

    Example:
        >>> as_csv({"gravity": np.float32([9.8, 7])})
        'client,gravity\\n0,9.8\\n1,7.0\\n'
    """
    table = columns(words)
    clients = np.arange(len(next(iter(table.values()))))
    texts = [column.astype(str).tolist() for column in (clients, *table.values())]
    rows = map(",".join, zip(*texts, strict=True))
    return "\n".join([",".join(["client", *table]), *rows]) + "\n"
