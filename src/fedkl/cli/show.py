"""`fedkl show`: show every setting of a preset, as a config file that can be used."""

from __future__ import annotations

import argparse
import dataclasses
import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedkl.cli import common, console, interrupts, output
from fedkl.core.settings import spelled
from fedkl.io.strict_toml import inline, key_text

if TYPE_CHECKING:
    from fedkl.config.config import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_config(parser)
    common.add_algorithm(parser)
    common.add_seed(parser)
    common.add_formats(parser)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.config import config

    settings = common.settings_of(options)
    chosen = config.preset(
        options.preset, options.algorithm, options.seed, settings, options.plugin
    )
    mapping = chosen.mapping()
    helps = dict(_helps(chosen))
    rows = [
        {"setting": key, "value": value, "help": helps.get(key, "")}
        for key, value in _flat(mapping).items()
    ]
    if output.answered(options, _for_json(mapping), rows):
        return
    console.out.print("\n".join(_lines(mapping, helps)), soft_wrap=True)


def _for_json(value: Any) -> Any:
    """Spell infinity out: JSON has no word for it, and null would be none."""
    if isinstance(value, Mapping):
        return {key: _for_json(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_for_json(entry) for entry in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _lines(mapping: Mapping[str, Any], helps: Mapping[str, str]) -> Iterator[str]:
    """Write the config as TOML, a comment above each setting."""
    tables = {key: value for key, value in mapping.items() if isinstance(value, Mapping)}
    top = {key: value for key, value in mapping.items() if key not in tables}
    for name, table in ({"": top} | tables).items():
        if name:
            yield f"\n[{name}]"
        for key, value in table.items():
            if text := helps.get(f"{name}.{key}" if name else key):
                yield textwrap.fill(text, 100, initial_indent="# ", subsequent_indent="# ")
            yield f"{key_text(key)} = {inline(value)}"


def _flat(mapping: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in mapping.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        result |= {f"{name}.{key}": x for key, x in inner} if inner else {name: value}
    return result


def _helps(chosen: Config) -> Iterator[tuple[str, str]]:
    """Pair each setting with its explanation."""
    from fedkl.clients import upload
    from fedkl.config.config import TopLevel
    from fedkl.server.aggregation.settings import LinkNames

    yield from _of("", TopLevel)
    for field in dataclasses.fields(chosen):
        group = getattr(chosen, field.name)
        if hasattr(group, "name"):
            yield f"{field.name}.name", f"{group.name}: {group.summary}"
        if dataclasses.is_dataclass(group):
            yield from _of(f"{field.name}.", type(group))
    chain = chosen.aggregation
    for link in (*chain.each, chain.reduce, *chain.levels, chain.step):
        yield from _of("aggregation.", type(link))
    yield from _of("aggregation.", LinkNames)
    for link in chosen.upload.each:
        yield from _of("upload.", type(link))
    yield from _of("upload.", upload.LinkNames)


def _of(prefix: str, group: Any) -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(group):
        if "help" in field.metadata:
            yield f"{prefix}{spelled(field)}", field.metadata["help"] + _limits(field.metadata)


def _limits(metadata: Mapping[str, Any]) -> str:
    """Write the limits of a value in brackets."""
    limits = metadata["limits"]
    if (choices := limits["choices"]) is not None:
        return f" ({', '.join(choices)})"
    words = {"low": "at least", "above": "above", "high": "at most"}
    said = [f"{words[name]} {limits[name]}" for name in words if limits[name] is not None]
    return f" ({', '.join(said)})" if said else ""
