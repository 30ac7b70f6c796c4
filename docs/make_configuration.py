"""Prints docs/configuration.md, the reference of every setting, from the settings themselves.

python docs/make_configuration.py > docs/configuration.md
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterable
from typing import Any

from fedkl.algorithms import ALGORITHMS, Algorithm
from fedkl.clients import LEARNERS, Learner, upload
from fedkl.clients.upload import UPLOADS
from fedkl.config import config
from fedkl.core.registry import Registry
from fedkl.core.settings import spelled
from fedkl.server.aggregation import REDUCERS, STEPS, TRANSFORMS
from fedkl.server.aggregation.settings import LinkNames
from fedkl.server.selection import SELECTORS
from fedkl.worlds import WORLDS, Parameter
from fedkl.worlds.heterogeneous import HeterogeneousWorld
from fedkl.worlds.parameters import distortions

INTRODUCTION = """\
# Configuration

Every setting, with its type, its default and its limits. This page is made by
`python docs/make_configuration.py > docs/configuration.md`.

Defaults hold where neither the preset nor you say otherwise; [presets](presets.md) tells what the
presets set. `config.toml` in a run directory has every setting of that run.

## How to change a setting

On the command line, after the preset; values are written as in TOML, and quotes around a string may
be left out:

    fedkl train demo --set learner.d_local=0.02 algorithm.distance=kl "learner.hidden=[32, 32]"

From Python:

```python
import fedkl

config = fedkl.preset("demo", set={"learner.d_local": 0.02, "algorithm.distance": "kl"})
```

In a file of your own, `fedkl train mine.toml`:

```toml
extends = ["reacher-init-state"]   # presets or files, the later over the earlier; may be left out
plugins = ["my_algorithm.py"]      # relative to this file; may be left out
seed = 1

[learner]
d_local = 0.02

[per_algorithm.fedprox.algorithm]  # holds only when the algorithm is fedprox
mu = 0.1
```

`--set` overrules the file, and the file what it extends. A mistake is answered with one sentence
that names the setting and what is allowed, and exit code 2. Beside the limits below, K must not
exceed N nor the quorum K, and the two numbers of a range must be in ascending order.
"""

ALGORITHM = """\
## `algorithm`

`algorithm.name` says which algorithm; `fedkl train --algorithm NAME` sets it.

### All algorithms
"""

LEARNER = """\
## `learner`

`learner.name` says how clients learn; `policy-optimisation` if nothing is said.

### All learners
"""

WORLD = """\
## `world`

`world.name` says which world.

A world's parameters may differ between clients. `world.clients`, a table within the table, says how
they are drawn:

```toml
[world.clients]
gravity = { uniform = [7.0, 13.0] }
length = [0.4, 0.5, 0.7]
```

On the command line it is `--set "world.clients.gravity={uniform=[7,13]}"`. A file that builds on a
preset replaces parameter by parameter. [Heterogeneous clients](heterogeneous-clients.md) has all
ways to draw.
Beside their own parameters, all worlds in JAX have:

{parameters}
Where actions are discrete there is neither `action_offset` nor `action_noise`.
"""

SELECTION = """\
## `selection`

`selection.name` says who is selected in a round; `uniform` if nothing is said.
"""

AGGREGATION = """\
## `aggregation`

The chain from the clients' parameters to the next model: see [aggregation](aggregation.md).
The settings of the links stand beside their names: `aggregation.reduce = "trimmed-mean"`,
`aggregation.trim = 0.3`. A setting goes to every chosen link that has one of its name; one that no
chosen link has is a mistake.

"""

UPLOAD = """\
## `upload`

What is done to an update before it leaves the client: see
[aggregation](aggregation.md#the-clients-chain). The settings of the links stand beside their names,
as those of `aggregation` do.

"""

_TYPES = {int: "whole number", float: "number", bool: "true or false", str: "string"}


def page() -> str:
    """The whole page."""
    hints = typing.get_type_hints(config.Config)
    top = dataclasses.fields(config.TopLevel)
    named = {"algorithm", "learner", "world", "selection", "aggregation", "upload"}
    groups = [name for name in hints if name not in named | _names(top) | {"pretrained"}]
    parts = [INTRODUCTION, _section("Top level", config.TopLevel, "")]
    parts += [_section(f"`{name}`", hints[name], f"{name}.") for name in groups]
    parts += [LEARNER, *_with_base(LEARNERS, Learner, "learner.")]
    parts += [ALGORITHM, *_with_base(ALGORITHMS, Algorithm, "algorithm.")]
    parts.append(WORLD.replace("{parameters}", _parameters(distortions(1))))
    parts += [_named(WORLDS[name], "world.", {"differences"}) + _world(name) for name in WORLDS]
    parts += [SELECTION, *_all_named(SELECTORS, "selection.")]
    parts.append(AGGREGATION + _table(dataclasses.fields(LinkNames), LinkNames, "aggregation."))
    for registry in (REDUCERS, TRANSFORMS, STEPS):
        parts += _all_named(registry, "aggregation.", f"{registry.kind} ")
    names = upload.LinkNames
    parts.append(UPLOAD + _table(dataclasses.fields(names), names, "upload."))
    parts += _all_named(UPLOADS, "upload.", f"{UPLOADS.kind} ")
    return "\n".join(parts)


def _names(fields: Iterable[dataclasses.Field[Any]]) -> set[str]:
    return {field.name for field in fields}


def _section(title: str, group: type, prefix: str) -> str:
    about = (group.__doc__ or "").strip() if prefix else ""
    text = f"{about}\n\n" if about else ""
    return f"## {title}\n\n{text}{_table(dataclasses.fields(group), group, prefix)}"


def _with_base(registry: Registry, base: type, prefix: str) -> list[str]:
    """The settings that all have, and those of each."""
    shared = dataclasses.fields(base)
    own = [_named(registry[name], prefix, _names(shared)) for name in registry]
    return [_table(shared, base, prefix), *own]


def _all_named(registry: Registry, prefix: str, kind: str = "") -> list[str]:
    return [_named(registry[name], prefix, set(), kind) for name in registry]


def _named(cls: Any, prefix: str, shared: set[str], kind: str = "") -> str:
    own = [f for f in dataclasses.fields(cls) if f.name not in shared]
    body = _table(own, cls, prefix) if own else "No settings of its own.\n"
    title = f"{kind}`{cls.name}`"
    return f"### {title[0].upper() + title[1:]}: {_escaped(cls.summary)}\n\n{body}"


def _world(name: str) -> str:
    """What may differ between clients of a world."""
    cls = WORLDS[name]
    if not issubclass(cls, HeterogeneousWorld):
        return ""
    if not isinstance(cls.parameters, tuple):  # a property, of a world that is made
        return "\nIts parameters depend on its settings: `fedkl describe` tells them.\n"
    return f"\n{_parameters(cls.parameters)}" if cls.parameters else ""


def _parameters(parameters: Iterable[Parameter]) -> str:
    lines = ["| parameter | nominal | limits | is |", "|---|---|---|---|"]
    for parameter in parameters:
        ends = {"at least": parameter.low, "at most": parameter.high}
        limits = ", ".join(
            f"{end} {value:g}" for end, value in ends.items() if math.isfinite(value)
        )
        nominal = _toml(parameter.nominal) if parameter.name != "initial_state" else "{ boxes = 1 }"
        lines.append(
            f"| `{parameter.name}` | `{nominal}` | {limits} | {_escaped(parameter.help)} |"
        )
    return "\n".join(lines) + "\n"


def _table(fields: Iterable[dataclasses.Field[Any]], group: type, prefix: str) -> str:
    hints = typing.get_type_hints(group)
    lines = ["| setting | type | default | limits | is |", "|---|---|---|---|---|"]
    for field in fields:
        cells = (
            f"`{prefix}{spelled(field)}`",
            _type(hints[field.name]),
            f"`{_toml(field.default)}`",
            _limits(field.metadata["limits"]),
            _escaped(field.metadata["help"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _type(hint: Any) -> str:
    if typing.get_origin(hint) is not tuple:
        return _TYPES[hint]
    kinds = typing.get_args(hint)
    noun = f"{_TYPES[kinds[0]]}s"
    return f"list of {noun}" if kinds[-1] is Ellipsis else f"list of {len(kinds)} {noun}"


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _limits(limits: dict[str, Any]) -> str:
    if (choices := limits["choices"]) is not None:
        return ", ".join(f"`{choice}`" for choice in choices)
    words = {"low": "at least", "above": "above", "high": "at most"}
    said = [f"{words[name]} {limits[name]}" for name in words if limits[name] is not None]
    return ", ".join(said)


def _escaped(text: str) -> str:
    for character in "|*<":
        text = text.replace(character, f"\\{character}")
    return text


if __name__ == "__main__":
    print(page(), end="")
