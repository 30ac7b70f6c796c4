"""Settings: dataclass fields that carry their help and limits, and their validation.

A group of settings is a frozen dataclass (usually an `equinox.Module`) whose fields are made with
`setting`. `build` turns a mapping, as read from TOML, into such a group and answers every mistake
with one sentence that names the field and what is allowed. A setting that is a table itself has a
type of its own, which reads and writes it (`Table`).
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from fedkl.core.errors import UserError
from fedkl.core.registry import Registry
from fedkl.core.text import did_you_mean

_MOST = 2**31 - 1
"""Of a whole number that has no other limit: compiled code counts in 32 bits."""
_NOUN = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


@runtime_checkable
class TableType(Protocol):
    """The type of a setting that is a table."""

    @classmethod
    def from_table(cls, table: Any, where: str) -> Self:
        """Check and read what a config says; `where` names the setting for messages."""

    def table(self) -> dict[str, Any]:
        """Write it as TOML can hold it; `from_table` reads it back."""


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Iterable[str] | None = None,
    infinite: bool = False,
    path: bool = False,
    static: bool = False,
    key: str = "",
) -> Any:
    """Make a dataclass field with a default, one line of help, and its limits.

    Args:
        default: the value when the config is silent.
        help: one line for the configuration reference.
        low: inclusive lower limit (of every entry, for tuples).
        high: inclusive upper limit.
        above: exclusive lower limit.
        choices: the strings allowed; of a registry, those that it has when a config is built.
        infinite: True if inf is a sensible value.
        path: True if the value is the path of a file; a run keeps it absolute.
        static: True if the value shapes the compiled code (sizes, switches, names); False if it
            is a number that compiled code takes as an argument, so that changing it does not
            compile anything again.
        key: how a config spells it, where the field's name is taken; such a field is given by its
            name only, also in Python.
    """
    limits = {"low": low, "high": high, "above": above, "choices": choices, "infinite": infinite}
    return dataclasses.field(
        default=default,
        kw_only=bool(key),
        metadata={"help": help, "static": static, "path": path, "limits": limits, "key": key},
    )


def spelled(field: dataclasses.Field[Any]) -> str:
    """The name of a setting in a config."""
    return field.metadata["key"] or field.name


def build(cls: type, values: Mapping[str, Any], where: str) -> Any:
    """Make a settings group from a mapping, or raise `UserError` naming the field.

    Args:
        cls: a dataclass made of `setting` fields.
        values: field name to value.
        where: the name of the group, for messages ("learner"); empty at the top level.
    """
    known = {spelled(f): f for f in dataclasses.fields(cls) if "help" in f.metadata}
    hints = typing.get_type_hints(cls)
    prefix, group = (f"{where}.", f"{where} has") if where else ("", "available")
    if isinstance(which := getattr(cls, "name", None), str):
        # Of an algorithm, a world, a selector others have other settings.
        group = f"the {where} {which} has"
    for name in values:
        if name not in known:
            allowed = ", ".join(known) or "nothing"
            hint = did_you_mean(name, known, prefix)
            raise UserError(f"{prefix}{name} is not a setting{hint}; {group}: {allowed}")
    return cls(
        **{
            known[name].name: _checked(prefix + name, value, hints[known[name].name], known[name])
            for name, value in values.items()
        }
    )


def build_names(cls: type, values: Mapping[str, Any], where: str) -> tuple[Any, dict[str, Any]]:
    """Make the settings of a chain's table that name its links, and return the others beside them.

    Args:
        cls: of those that name links, with an `each` of several.
        values: the table.
        where: the table's name, for messages.

    Raises:
        UserError: names the setting and what is allowed.
    """
    own = {f.name for f in dataclasses.fields(cls)}
    names = build(cls, {name: value for name, value in values.items() if name in own}, where)
    if len(set(names.each)) < len(names.each):
        raise UserError(f"{where}.each must name a link only once")
    return names, {name: value for name, value in values.items() if name not in own}


def build_links(
    classes: Sequence[type], values: Mapping[str, Any], names: type, where: str
) -> list[Any]:
    """Make the links of a chain, whose settings stand flat in one table beside their names.

    A setting goes to every link that has one of its name; where the table is silent, the default of
    the first of them goes to all, so that a table says the same when it is read back.

    Args:
        classes: of the links.
        values: the table's settings, without those that name links.
        names: the class of the settings that name links.
        where: the table's name, for messages.

    Raises:
        UserError: names the setting and what is allowed.
    """
    own = defaults(names)
    known: dict[str, Any] = {}
    for cls in classes:
        known = defaults(cls) | known
    if taken := known.keys() & own.keys():
        raise UserError(
            f"{where}.{min(taken)} is the name of a link, and cannot be the name of a setting"
        )
    for name in values:
        if name not in known:
            allowed = ", ".join([*sorted(own), *known])
            hint = did_you_mean(name, [*own, *known], f"{where}.")
            raise UserError(
                f"{where}.{name} is not a setting{hint}; with these links {where} has: {allowed}"
            )
    return [build(cls, of_link(cls, {**known, **values}), where) for cls in classes]


def of_link(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one link, from the table of all."""
    return {name: value for name, value in values.items() if name in defaults(cls)}


def registered(group: Any) -> list[Any]:
    """Look up what the settings of a group name in a registry."""
    named = []
    for f in dataclasses.fields(group):
        choices = f.metadata.get("limits", {}).get("choices")
        if isinstance(choices, Registry):
            named.append(choices[getattr(group, f.name)])
    return named


def defaults(cls: type) -> dict[str, Any]:
    """The names of a group's settings, and what they are when the config is silent."""
    return {spelled(f): f.default for f in dataclasses.fields(cls) if "help" in f.metadata}


def as_mapping(group: Any) -> dict[str, Any]:
    """The settings of a group as TOML can hold them."""
    result = {}
    for f in dataclasses.fields(group):
        if "help" in f.metadata:
            value = getattr(group, f.name)
            if f.metadata["path"] and value:
                value = str(Path(value).resolve())
            if isinstance(value, TableType):
                value = value.table()
            result[spelled(f)] = list(value) if isinstance(value, tuple) else value
    return result


def _checked(path: str, value: Any, hint: Any, field: dataclasses.Field[Any]) -> Any:
    if isinstance(hint, type) and issubclass(hint, TableType):
        return hint.from_table(value, path)
    if typing.get_origin(hint) is tuple:
        value = _tuple(path, value, typing.get_args(hint))
        entries = value
    else:
        value = _scalar(path, value, hint)
        entries = (value,)
    for entry in entries:
        _check_limits(path, entry, field.metadata.get("limits", {}))
    return value


def _tuple(path: str, value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise UserError(f"{path} must be a list, not {value!r}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise UserError(f"{path} must be a list of {len(kinds)}, not of {len(value)}")
    return tuple(_scalar(path, v, k) for v, k in zip(value, kinds, strict=True))


def _scalar(path: str, value: Any, kind: Any) -> Any:
    if isinstance(kind, types.UnionType):
        raise TypeError(f"{path}: a setting has one type")
    numpy = sys.modules.get("numpy")  # who gives a number of NumPy's has imported it
    if numpy is not None and isinstance(value, numpy.generic):  # a sweep's np.logspace, say
        value = value.item()
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
    if type(value) is not kind:
        raise UserError(f"{path} must be {_NOUN[kind]}, not {value!r}")
    if kind is float and math.isnan(value):
        raise UserError(f"{path} must be a number, not nan")
    return value


def _check_limits(path: str, value: Any, limits: Mapping[str, Any]) -> None:
    if isinstance(value, float) and math.isinf(value) and not limits.get("infinite"):
        raise UserError(f"{path} must be finite, not {value}")
    if (choices := limits.get("choices")) is not None and value not in choices:
        hint = did_you_mean(str(value), choices)
        raise UserError(f"{path} must be one of {', '.join(choices)}, not {value!r}{hint}")
    if (low := limits.get("low")) is not None and value < low:
        raise UserError(f"{path} must be at least {low}, not {value}")
    high = limits.get("high")
    if high is None and type(value) is int:
        high = _MOST
    if high is not None and value > high:
        raise UserError(f"{path} must be at most {high}, not {value}")
    if (above := limits.get("above")) is not None and value <= above:
        raise UserError(f"{path} must be above {above}, not {value}")
