"""Presets and config files: found, read, and laid over what they extend.

The presets themselves are the TOML files beside this one. One whose name starts with an underscore
is a part that presets share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from fedkl.core.errors import UserError
from fedkl.core.text import did_you_mean
from fedkl.io import files, strict_toml

SHORTHANDS = {"gym": ("gymnasium", "id"), "pettingzoo": ("pettingzoo", "module")}
"""What `gym:CartPole-v1` stands for: a preset, and the setting of its world that says which."""


def summaries() -> dict[str, str]:
    """Name and one line about each preset."""
    files = [f.name for f in _folder().iterdir() if f.name.endswith(".toml")]
    names = sorted(name.removesuffix(".toml") for name in files)
    return {
        name: _parse(_text(name), name).get("summary", "")
        for name in names
        if not name.startswith("_")
    }


def layers(name: str, within: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Return the presets that a preset or file extends, then itself, each by its name or absolute
    path.

    What two files extend is there once, below both: else the second would undo what the first says.

    Args:
        name: the preset or file.
        within: what extends it, and what extends that.
    """
    kind, _, which = name.partition(":")
    if kind in SHORTHANDS and which:
        base, key = SHORTHANDS[kind]
        return layers(base, within) | {name: {"world": {key: which}}}
    path = Path(name).resolve() if name.endswith(".toml") else None
    identity = name if path is None else str(path)
    if identity in within:
        raise UserError(f"{name} extends itself, by way of {', '.join(within)}")
    values = _preset(name, part=bool(within)) if path is None else _file(path, name)
    values.pop("summary", None)
    below: dict[str, dict[str, Any]] = {}
    for other in strings(values.pop("extends", []), f"{name}: extends"):
        if path is not None and other.endswith(".toml"):
            other = str(path.parent / other)
        below |= layers(other, (*within, identity))
    return below | {identity: values}


def united(layers: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """All that any of the layers lists under a name."""
    result: list[Any] = []
    for layer in layers:
        if not isinstance(entries := layer.get(name, []), list):
            raise UserError(f"{name} must be a list, not {entries!r}")
        result += [entry for entry in entries if entry not in result]
    return result


def for_algorithm(layers: list[dict[str, Any]], which: str) -> dict[str, Any]:
    """The layers merged as they stand for one algorithm.

    Each layer's `per_algorithm` part belongs to that layer, so that a file can overrule what a
    preset it extends says of an algorithm. Settings given for another algorithm, or for a world
    that a later layer replaces, are left out.
    """
    result: dict[str, Any] = {}
    named = None
    for layer in layers:
        layer = dict(layer)
        per_algorithm = table(layer, "per_algorithm")
        del layer["per_algorithm"]
        special = table(per_algorithm, which)
        own = table(layer, "algorithm")
        named = own.get("name", named)
        layer["algorithm"] = (own if named == which else {}) | {"name": which}
        world = result.get("world", {}).get("name")
        if table(layer, "world").get("name", world) != world:
            result["world"] = {}
        result = merged(merged(result, layer), special)
    return result


def merged(base: Mapping[str, Any], over: Mapping[str, Any], depth: int = 3) -> dict[str, Any]:
    """Merge tables: groups, and the parameters of `[world.clients]`, one by one.

    How a parameter is drawn is replaced whole: half a table of it would say something else.
    """
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        merge = both and depth > 1
        result[key] = merged(result[key], value, depth - 1) if merge else value
    return result


def table(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The table `name` of values, made if it is not there."""
    table = values.setdefault(name, {})
    if not isinstance(table, dict):
        raise UserError(f"{name} must be a table of settings, not {table!r}")
    return table


def strings(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise UserError(f"{where} must be a list of strings, not {value!r}")
    return value


def _file(path: Path, name: str) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"there is no config file '{name}'")
    try:
        text = files.read_bytes(path, strict_toml.LARGEST).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the config file {name} cannot be read: {error}") from error
    values = _parse(text, name)
    if "plugins" in values:
        plugins = strings(values["plugins"], f"{name}: plugins")
        values["plugins"] = [str(path.parent / plugin) for plugin in plugins]
    return values


def _preset(name: str, part: bool) -> dict[str, Any]:
    """Read a preset itself; also a part that presets share, if asked for."""
    names = summaries()
    if name not in names and not (part and (_folder() / f"{name}.toml").is_file()):
        _refuse_path(Path(name))
        short = ", ".join(f"{kind}:{key.upper()}" for kind, (_, key) in SHORTHANDS.items())
        _, _, which = name.partition(":")
        meant = [f"{kind}:{which}" for kind in SHORTHANDS] if which else names
        raise UserError(
            f"there is no preset '{name}'{did_you_mean(name, meant)}; available: "
            f"{', '.join(names)}, and {short}"
        )
    return _parse(_text(name), name)


_PLANS = ("compare.toml", "tune.toml", "tune-d-global.toml", "reproduce.toml")
"""Files that only a directory of several runs has."""


def _refuse_path(path: Path) -> None:
    """Say what is there instead of a preset, if anything is."""
    if (path / "config.toml").is_file():
        raise UserError(
            f"{path} is the directory of a run: `fedkl resume {path}` goes on with it, evaluate, "
            f"export, heterogeneity, report and check take it as well, and {path / 'config.toml'} "
            "in its place has its settings"
        )
    if any((path / plan).is_file() for plan in _PLANS):
        raise UserError(
            f"{path} holds several runs: `fedkl resume {path}` goes on with them, and `fedkl "
            f"compare ... --run {path} --add` adds to a comparison"
        )
    if path.name and path.is_dir():
        raise UserError(
            f"{path} is a directory, and neither a preset nor a file that ends in .toml"
        )
    if path.is_file():
        raise UserError(f"{path} is a file, and one of settings ends in .toml")


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return strict_toml.parse(text)
    except ValueError as error:
        raise UserError(f"{name} is not valid TOML: {error}") from error


def _folder() -> Any:
    return resources.files("fedkl.config.presets")


def _text(name: str) -> str:
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")
