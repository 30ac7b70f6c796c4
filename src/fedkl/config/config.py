"""A run's config: read, checked, resolved.

A config is a TOML file or a preset. Presets may build on others (`extends`) and may say what is
different for an algorithm (`[per_algorithm.fedprox.algorithm]`), see `fedkl.config.presets`; the
resolved config, which a run directory keeps, has neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from fedkl.algorithms import ALGORITHMS, Algorithm
from fedkl.clients.learner import LEARNERS, Learner
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import ClientState, Model, Task, first_states
from fedkl.clients.upload import UploadChain, build_upload
from fedkl.config import presets
from fedkl.config.checks import check
from fedkl.config.pretrained import Pretrained
from fedkl.core import settings
from fedkl.core.errors import UserError
from fedkl.core.plugins import load_plugin
from fedkl.core.settings import setting
from fedkl.core.text import did_you_mean, our_word
from fedkl.heterogeneity import HeterogeneitySettings
from fedkl.io import strict_toml
from fedkl.io.arrays import to_arrays
from fedkl.learning.randomness import Purpose, key_for
from fedkl.learning.settings import CriticSettings
from fedkl.server.aggregation import AggregationSettings, build_aggregation
from fedkl.server.selection import SELECTORS, Selector
from fedkl.server.settings import CheckpointSettings, EvaluationSettings, FederationSettings
from fedkl.worlds import WORLDS, AnyWorld, SharedWorld
from fedkl.worlds.distorted import distorted, without_table
from fedkl.worlds.heterogeneous import TABLE, HeterogeneousWorld

_GROUPS = {
    "federation": FederationSettings,
    "critic": CriticSettings,
    "evaluation": EvaluationSettings,
    "checkpoint": CheckpointSettings,
    "heterogeneity": HeterogeneitySettings,
}
_NAMED = {"algorithm": ALGORITHMS, "world": WORLDS, "selection": SELECTORS, "learner": LEARNERS}
_DEFAULTS = {"selection": "uniform", "learner": PolicyOptimisation.name}
_WORDS = re.compile(r"""\[[^][{}"',]+(,[^][{}"',]+)*\]""")
"""A list whose entries are neither lists nor tables, and have no quotes."""
_TABLES = {*_GROUPS, *_NAMED, "aggregation", "upload"}
_AGENTS = "agents"
"""What a preset or file may say for a number of clients: as many as a shared world has agents."""


@dataclass(frozen=True)
class TopLevel:
    """The settings that belong to no group."""

    preset: str = setting("", "where the config came from; says nothing about the run")
    seed: int = setting(0, "of all randomness", low=0, high=2**31 - 1)
    world_seed: int = setting(
        -1,
        "of the clients' worlds (what each draws of `world.clients`) and of the simulation that "
        "clients share while they train, so that runs of different seeds can have the same; -1: "
        "the seed",
        low=-1,
        high=2**31 - 1,
    )
    plugins: tuple[str, ...] = setting(
        (), "Python files that register algorithms, worlds or links of your own"
    )
    tuned_on: tuple[int, ...] = setting(
        (), "seeds that settings were chosen on; a comparison refuses them", low=0, high=2**31 - 1
    )
    start_from: str = setting(
        "",
        "checksum of the policy of another run that this one starts from (`fedkl train --from "
        "RUN`), which is in its `start/`; empty: a new policy",
    )


@dataclass(frozen=True)
class Config:
    """A resolved config: a run is a pure function of it."""

    preset: str
    seed: int
    world_seed: int
    plugins: tuple[str, ...]
    tuned_on: tuple[int, ...]
    start_from: str
    federation: FederationSettings
    learner: Learner
    critic: CriticSettings
    algorithm: Algorithm
    world: AnyWorld
    selection: Selector[Any]
    aggregation: AggregationSettings
    upload: UploadChain
    evaluation: EvaluationSettings
    checkpoint: CheckpointSettings
    heterogeneity: HeterogeneitySettings
    pretrained: Pretrained | None = field(default=None, compare=False, repr=False)
    """The policy that `start_from` is the checksum of."""

    @property
    def seed_of_worlds(self) -> int:
        """The seed of what belongs to the worlds, and not to learning."""
        return self.seed if self.world_seed < 0 else self.world_seed

    def mapping(self) -> dict[str, Any]:
        """The config as TOML can hold it; `from_mapping` reads it back."""
        top = TopLevel(**{f.name: getattr(self, f.name) for f in fields(TopLevel)})
        result = settings.as_mapping(top)
        if not self.start_from:  # so that a run that starts anew has the config that it always had
            del result["start_from"]
        for name in ("world", "algorithm", "selection"):
            group = getattr(self, name)
            result[name] = {"name": group.name} | settings.as_mapping(group)
        result["aggregation"] = self.aggregation.mapping()
        # Tables of before there were others have no name.
        which = {} if type(self.learner) is PolicyOptimisation else {"name": self.learner.name}
        result["learner"] = which | settings.as_mapping(self.learner)
        if self.upload.each:  # so that a run without links has the config that it always had
            result["upload"] = self.upload.mapping()
        return result | {name: settings.as_mapping(getattr(self, name)) for name in _GROUPS}

    @cached_property
    def task(self) -> Task:
        """The world, algorithm and settings that are the same for every client and round.

        The world is the one that clients act in: with the wrapper around it that its table asks
        for.
        """
        world = without_table(distorted(self.world))
        return Task(world, self.algorithm, self.learner, self.critic, self.upload)

    @cached_property
    def client_params(self) -> PyTree:
        """The parameters of all clients' worlds, stacked; none where all share one.

        Raises:
            UserError: a client's parameters do not go together.
        """
        key = key_for(self.seed_of_worlds, Purpose.WORLDS)
        return distorted(self.world).clients(self.federation.clients, key)

    @cached_property
    def first_states(self) -> tuple[Model, ClientState]:
        """The model and every client's state before the first round."""
        key, sharing = key_for(self.seed, Purpose.MODEL), self.federation.sharing()
        if self.pretrained is not None:
            return self.pretrained.first_states(self.task, sharing, key, self.preset)
        return first_states(self.task, sharing, key)

    def clients(self) -> dict[str, np.ndarray]:
        """Return the parameters that clients differ in, or that the config names.

        Returns:
            By parameter, a row for each client; nothing where all clients share one simulation.

        Example:
            >>> settings = {"world.clients.gravity": {"linspace": [5, 15]}, "federation.clients": 3}
            >>> preset("cartpole", set=settings).clients()["gravity"].tolist()
            [5.0, 10.0, 15.0]
        """
        world = self.world
        if not isinstance(world, HeterogeneousWorld):
            return {}
        named, params = world.differences.drawn(), to_arrays(self.client_params)
        rows = {name.removeprefix("world."): x for name, x in params.items()}
        # A dict's names come sorted; a world lists what belongs together side by side.
        order = [parameter.name for parameter in world.all_parameters if parameter.name in rows]
        rows = {name: rows[name] for name in order} | rows
        return {name: x for name, x in rows.items() if name in named or (x != x[:1]).any()}


def from_mapping(values: Mapping[str, Any], pretrained: Pretrained | None = None) -> Config:
    """Check a mapping, as read from TOML, and make a config of it.

    Args:
        values: the mapping.
        pretrained: what its `start_from` is the checksum of.

    Raises:
        UserError: names the field and what is allowed.
    """
    for name in _TABLES & values.keys():
        if not isinstance(values[name], Mapping):
            raise UserError(f"{name} must be a table of settings, not {values[name]!r}")
    flat = {name: value for name, value in values.items() if name not in _TABLES}
    if unknown := flat.keys() - {f.name for f in fields(TopLevel)}:
        allowed = ", ".join([f.name for f in fields(TopLevel)] + sorted(_TABLES))
        hint = _meant(min(unknown))
        raise UserError(f"{min(unknown)} is not a setting{hint}; available: {allowed}")
    top = settings.build(TopLevel, flat, "")
    for path in top.plugins:
        load_plugin(Path(path))
    parts: dict[str, Any] = {
        name: settings.build(cls, values.get(name, {}), name) for name, cls in _GROUPS.items()
    }
    parts |= {name: _build(name, values.get(name, {})) for name in _NAMED}
    parts["aggregation"] = build_aggregation(values.get("aggregation", {}))
    parts["upload"] = build_upload(values.get("upload", {}))
    config = Config(**vars(top), **parts, pretrained=pretrained)
    check(config)
    return config


def preset(
    name: str | Path,
    algorithm: str | None = None,
    seed: int | None = None,
    set: Mapping[str, Any] | None = None,
    plugins: Iterable[str | Path] = (),
) -> Config:
    """The config of a preset or of a TOML file, with changes.

    Args:
        name: a preset's name, `gym:` and the id of a Gymnasium environment, `pettingzoo:` and a
            module of PettingZoo, or the path of a file that ends in .toml.
        algorithm: instead of the preset's own.
        seed: instead of the preset's own.
        set: dotted key to value, such as {"learner.d_local": 0.02}.
        plugins: Python files with algorithms, worlds or links of your own.

    Example:
        >>> preset("reacher-init-state-paper", algorithm="fedprox").algorithm.mu
        0.02
    """
    if isinstance(name, Path):
        name = str(name)
    if not isinstance(name, str):
        raise UserError(f"a preset must be a name or a file that ends in .toml, not {name!r}")
    set = {} if set is None else set
    if not isinstance(set, Mapping):
        raise UserError(f"set must be a dict such as {{'learner.d_local': 0.02}}, not {set!r}")
    for key, given in (("seed", seed), ("algorithm.name", algorithm), ("plugins", plugins or None)):
        if given is not None and key in set:
            raise UserError(f"{key} is given twice: as {set[key]!r} and as {given!r}")
    layers = [*presets.layers(name).values()]
    values = reduce(presets.merged, layers)
    files = _load_plugins(layers, plugins)
    own = presets.table(values, "algorithm")
    which = _which("algorithm", own) if algorithm is None else algorithm
    ALGORITHMS[which]
    values = presets.for_algorithm(layers, which)
    values |= {"preset": name, "plugins": files, "tuned_on": presets.united(layers, "tuned_on")}
    if seed is not None:
        values["seed"] = seed
    if "learner.name" in set:  # a preset's settings are those of its own learner
        known = settings.defaults(LEARNERS.find(set["learner.name"], "learner.name"))
        table = presets.table(values, "learner")
        values["learner"] = {name: value for name, value in table.items() if name in known}
    for key, value in set.items():
        put(values, key, value)
    _count_agents(values)
    return from_mapping(values)


def lacks(
    name: str, algorithm: str, keys: Iterable[str], plugins: Iterable[str | Path] = ()
) -> list[str]:
    """Return those of some settings that other algorithms have, but not this one.

    Args:
        name: a preset, as `preset` takes it.
        algorithm: which.
        keys: dotted.
        plugins: as `preset` takes them.

    Example:
        >>> lacks("demo", "fedavg", ["algorithm.d_global", "learner.d_local"])
        ['algorithm.d_global']
    """
    _load_plugins(presets.layers(name).values(), plugins)
    own = {f"algorithm.{field.name}" for field in fields(ALGORITHMS[algorithm])}
    return [key for key in keys if key.startswith("algorithm.") and key not in own]


def parse_assignment(text: str) -> tuple[str, Any]:
    """ "learner.d_local=0.02" as key and value; the value is TOML, or else a plain string, and so
    is an entry of a list: shells take quotes away.

    Example:
        >>> parse_assignment("algorithm.distance=kl")
        ('algorithm.distance', 'kl')
        >>> parse_assignment("learner.hidden=[32, 32]")
        ('learner.hidden', [32, 32])
        >>> parse_assignment("aggregation.each=[clip, sign]")
        ('aggregation.each', ['clip', 'sign'])
    """
    key, equals, value = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UserError(f"'{text}' is not of the form dotted.key=value")
    return key.strip(), _value(value.strip())


def _load_plugins(layers: Iterable[dict[str, Any]], plugins: Iterable[str | Path]) -> list[str]:
    """Load the plugins of a preset, and others; return their files."""
    files = [str(Path(p).resolve()) for p in (*presets.united(layers, "plugins"), *plugins)]
    for path in files:
        load_plugin(Path(path))
    return files


def _value(text: str) -> Any:
    try:
        return strict_toml.parse(f"value = {text}")["value"]
    except ValueError:
        if _WORDS.fullmatch(text):
            return [_value(entry.strip()) for entry in text[1:-1].split(",")]
        return text


def _which(kind: str, table: Mapping[str, Any]) -> str:
    """The name of the algorithm, world or selector that a table is for."""
    if not isinstance(name := table.get("name", _DEFAULTS.get(kind)), str):
        available = ", ".join(_NAMED[kind])
        raise UserError(f"{kind}.name must say which {kind}; available: {available}")
    return name


def _build(kind: str, table: Mapping[str, Any]) -> Any:
    """The algorithm, world or selector that a table is for."""
    cls = _NAMED[kind].find(_which(kind, table), f"{kind}.name")
    rest = {key: value for key, value in table.items() if key != "name"}
    return settings.build(cls, rest, kind)


def _count_agents(values: dict[str, Any]) -> None:
    """Put numbers where a preset leaves them to the world."""
    federation = presets.table(values, "federation")
    left = [k for k in ("clients", "clients_per_round") if federation.get(k) == _AGENTS]
    if not left:
        return
    world = _build("world", presets.table(values, "world"))
    if not isinstance(world, SharedWorld):
        raise UserError(
            f"federation.{left[0]} must be a whole number, not {_AGENTS!r}: the clients of the "
            f"world {world.name} are not agents of one simulation"
        )
    federation |= dict.fromkeys(left, world.agents)


def _meant(name: str) -> str:
    """Suggest the group, or the setting in a group, that an unknown setting may have meant."""
    groups = {"learner": PolicyOptimisation, **_GROUPS}
    ours = our_word(name)
    homes = [g for g, cls in groups.items() if ours in settings.defaults(cls)]
    if homes:
        return f" (did you mean {homes[0]}.{ours}?)"
    return did_you_mean(name, [*(f.name for f in fields(TopLevel)), *_TABLES])


def put(values: dict[str, Any], key: str, value: Any) -> None:
    """Put a setting into a mapping that `from_mapping` reads.

    Args:
        values: the mapping, which is changed.
        key: the setting's dotted name.
        value: its value.

    Raises:
        UserError: no setting has such a name.

    Example:
        >>> values = {"learner": {"d_local": 0.1}}
        >>> put(values, "learner.d_local", 0.2)
        >>> values
        {'learner': {'d_local': 0.2}}
    """
    if key.startswith(f"{TABLE}."):  # a parameter may have dots of its own
        world = presets.table(values, "world")
        parameter = {key.removeprefix(f"{TABLE}."): value}
        world["clients"] = presets.table(world, "clients") | parameter
        return
    *group, name = key.split(".")
    if len(group) > 1:
        raise UserError(f"{key} is not a setting; settings are of the form group.name")
    table = presets.table(values, group[0]) if group else values
    table[name] = value
