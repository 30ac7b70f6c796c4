"""A grid of settings, as the command line or Python gives it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedkl.config.config import parse_assignment
from fedkl.core.errors import UserError
from fedkl.core.text import counted, plain

Candidate = dict[str, Any]
"""Dotted key to value."""

_JUDGE = ("world", "evaluation")
"""Groups that say what the candidates are judged by."""


Axis = Sequence[tuple[str, Sequence[Any]]]
"""Keys and the values of each, which move together."""


def candidates_of(axes: Sequence[Axis], fixed: Collection[str]) -> list[Candidate]:
    """The candidates of a grid; otherwise as `product_of`."""
    for key, _ in itertools.chain(*axes):
        _check_key(key)
    return product_of(axes, fixed, "--grid")


def parse_axes(grids: Sequence[Sequence[str]], option: str) -> list[Axis]:
    """Read the axes of a grid as the command line gives them.

    Args:
        grids: an axis each: texts such as "learner.d_local=0.01,0.02", whose values move together.
        option: that gave the grid, for messages.
    """
    return [[parse_values(text, option) for text in texts] for texts in grids]


def axes_of(grid: Any, name: str) -> list[Axis]:
    """Read the axes of a grid as Python gives them.

    Args:
        grid: settings and the values of each, which are multiplied; or a list of such tables, in
            each of which values move together.
        name: of the argument, for messages.

    Example:
        >>> axes_of({"learner.d_local": [0.01, 0.02]}, "vary")
        [[('learner.d_local', [0.01, 0.02])]]
    """
    tables = [{key: values} for key, values in grid.items()] if isinstance(grid, Mapping) else grid
    wrong = f"{name} must be a dict such as {{'learner.d_local': [0.01, 0.02]}}, or a list of them"
    if not isinstance(tables, list | tuple) or not all(isinstance(t, Mapping) for t in tables):
        raise UserError(f"{wrong}, not {grid!r}")
    for key, values in itertools.chain(*(table.items() for table in tables)):
        if not isinstance(key, str) or not isinstance(values, list | tuple) or not values:
            raise UserError(f"{wrong}; {key!r} has {values!r}")
    return [[(key, list(values)) for key, values in table.items()] for table in tables]


def product_of(axes: Sequence[Axis], fixed: Collection[str], option: str) -> list[Candidate]:
    """The points of a grid, the values of the last axis changing fastest.

    Args:
        axes: of the grid.
        fixed: keys whose values all points share.
        option: that gave the grid, for messages.

    Raises:
        UserError: says what is wrong with the grid.

    Example:
        >>> axis = [("learner.optimiser", ["sgd", "adam"]), ("learner.learning_rate", [0.1, 0.2])]
        >>> product_of([axis], (), "--grid")  # doctest: +NORMALIZE_WHITESPACE
        [{'learner.optimiser': 'sgd', 'learner.learning_rate': 0.1},
         {'learner.optimiser': 'adam', 'learner.learning_rate': 0.2}]
    """
    columns, taken = [], {*fixed}
    for axis in axes:
        for key, values in axis:
            if key in taken:
                where = "in --set, too" if key in fixed else f"twice in {option}"
                raise UserError(f"{key} is given {where}; a setting has one place")
            taken.add(key)
            if len(values) != len(axis[0][1]):
                raise UserError(
                    f"the lists of one {option} must be of the same length: {axis[0][0]} has "
                    f"{counted(len(axis[0][1]), 'value')}, {key} has {len(values)}"
                )
        lists = [[(key, value) for value in values] for key, values in axis]
        columns.append(list(zip(*lists, strict=True)))
    candidates = [dict(itertools.chain(*point)) for point in itertools.product(*columns)]
    for i, candidate in enumerate(candidates):
        if candidate in candidates[:i]:
            raise UserError(f"{option} has the same twice: {describe(candidate)}")
    return candidates


def parse_values(text: str, option: str) -> tuple[str, list[Any]]:
    """A key and its values, each TOML or else a plain string.

    Args:
        text: as it was typed.
        option: that it was typed for, for messages.

    Raises:
        UserError: there is no key or no value.

    Example:
        >>> parse_values("learner.hidden=[32,32],[64,64]", "--grid")
        ('learner.hidden', [[32, 32], [64, 64]])
    """
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"'{text}' is not of the form dotted.key=value,value")
    pieces = _split(values)
    if not all(piece.strip() for piece in pieces):
        raise UserError(f"{option} {text} lacks a value")
    return key, [parse_assignment(f"{key}={piece}")[1] for piece in pieces]


def describe(candidate: Candidate) -> str:
    """A candidate in one line."""
    return " ".join(f"{key}={plain(value)}" for key, value in candidate.items())


def _split(text: str) -> list[str]:
    """Split at commas that are in no brackets and no quotes."""
    pieces, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == "," and depth == 0:
            pieces.append("")
            continue
        pieces[-1] += letter
    return pieces


def _check_key(key: str) -> None:
    group, dot, _ = key.partition(".")
    if key == "federation.rounds":
        raise UserError("federation.rounds cannot be in a grid: all get the same; see --rounds")
    if not dot or key in ("algorithm.name", "federation.clients") or group in _JUDGE:
        raise UserError(
            f"{key} cannot be in a grid: settings of an algorithm are chosen, not what it is "
            "judged by"
        )
