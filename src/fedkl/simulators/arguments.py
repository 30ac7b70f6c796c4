"""Arguments of other people's functions, as a config gives them: `name=value`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedkl.core.errors import UserError
from fedkl.io import strict_toml


def read_arguments(entries: Sequence[str], where: str) -> dict[str, Any]:
    """Names and values; a value is TOML, or else a plain string.

    Args:
        entries: each of the form `name=value`.
        where: the setting that they come from, for messages.

    Raises:
        UserError: an entry is not of that form, or a name is there twice.

    Example:
        >>> read_arguments(["N=5", "mode=fast"], "world.arguments")
        {'N': 5, 'mode': 'fast'}
    """
    result: dict[str, Any] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise UserError(
                f"{where} must be a list of name=value, and '{entry}' is not of that form"
            )
        if name in result:
            raise UserError(f"{where} gives {name} twice")
        try:
            result[name] = strict_toml.parse(f"value = {value}")["value"]
        except ValueError:
            result[name] = value.strip()
    return result
