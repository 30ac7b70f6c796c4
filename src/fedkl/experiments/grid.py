"""A grid of settings, as the command line gives it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

from fedkl.config.config import parse_assignment
from fedkl.core.errors import UserError
from fedkl.core.text import plain

Candidate = dict[str, Any]
"""Dotted key to value."""

_JUDGE = ("world", "evaluation")
"""Groups that say what the candidates are judged by."""


def parse_grids(grids: Sequence[Sequence[str]], fixed: Collection[str]) -> list[Candidate]:
    """The candidates that an algorithm's settings are chosen from.

    Args:
        grids: as for `product_of`.
        fixed: likewise.

    Raises:
        UserError: says what is wrong with the grid.
    """
    for text in (text for texts in grids for text in texts):
        _check_key(parse_values(text, "--grid")[0])
    return product_of(grids, fixed, "--grid")


def product_of(
    grids: Sequence[Sequence[str]], fixed: Collection[str], option: str
) -> list[Candidate]:
    """The points of a grid, the values of the last axis changing fastest.

    Args:
        grids: an axis each: texts such as "learner.d_local=0.01,0.02", whose values move together.
        fixed: keys whose values all points share.
        option: that gave the grid, for messages.

    Raises:
        UserError: says what is wrong with the grid.

    Example:
        >>> axis = ["learner.optimiser=sgd,adam", "learner.learning_rate=0.1,0.2"]
        >>> product_of([axis], (), "--grid")  # doctest: +NORMALIZE_WHITESPACE
        [{'learner.optimiser': 'sgd', 'learner.learning_rate': 0.1},
         {'learner.optimiser': 'adam', 'learner.learning_rate': 0.2}]
    """
    axes, taken = [], {*fixed}
    for texts in grids:
        lists = [parse_values(text, option) for text in texts]
        for key, values in lists:
            if key in taken:
                where = "in --set, too" if key in fixed else f"twice in {option}"
                raise UserError(f"{key} is given {where}; a setting has one place")
            taken.add(key)
            if len(values) != len(lists[0][1]):
                raise UserError(
                    f"the lists of one {option} must be of the same length: {lists[0][0]} has "
                    f"{len(lists[0][1])} values, {key} has {len(values)}"
                )
        columns = [[(key, value) for value in values] for key, values in lists]
        axes.append(list(zip(*columns, strict=True)))
    candidates = [dict(itertools.chain(*point)) for point in itertools.product(*axes)]
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
