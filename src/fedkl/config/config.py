"""A run's config: read, checked, resolved.

A config is a TOML file or a preset. Presets may build on others (`extends`) and may say what is
different for an algorithm (`[per_algorithm.fedprox.algorithm]`), see `fedkl.config.presets`; the
resolved config, which a run directory keeps, has neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.algorithms import ALGORITHMS, Algorithm
from fedkl.config import presets
from fedkl.core import settings
from fedkl.core.errors import UserError
from fedkl.core.plugins import load_plugin
from fedkl.core.settings import setting
from fedkl.core.text import did_you_mean
from fedkl.heterogeneity import HeterogeneitySettings
from fedkl.io import strict_toml
from fedkl.learning.settings import ALL, FEDERATED, LOCAL, NONE, CriticSettings, LearnerSettings
from fedkl.server.aggregation import AggregationSettings, Grouped, build_aggregation
from fedkl.server.averaging import check_averaging
from fedkl.server.heterogeneity import check_basis
from fedkl.server.selection import SELECTORS, Selector
from fedkl.server.selection.selectors import Measured
from fedkl.server.settings import CheckpointSettings, EvaluationSettings, FederationSettings
from fedkl.server.setup import clients_of
from fedkl.worlds import WORLDS, AnyWorld, SharedWorld
from fedkl.worlds.heterogeneous import TABLE, HeterogeneousWorld

_GROUPS = {
    "federation": FederationSettings,
    "learner": LearnerSettings,
    "critic": CriticSettings,
    "evaluation": EvaluationSettings,
    "checkpoint": CheckpointSettings,
    "heterogeneity": HeterogeneitySettings,
}
_NAMED = {"algorithm": ALGORITHMS, "world": WORLDS, "selection": SELECTORS}
_DEFAULTS = {"selection": "uniform"}
_WORDS = re.compile(r"""\[[^][{}"',]+(,[^][{}"',]+)*\]""")
"""A list whose entries are neither lists nor tables, and have no quotes."""
_TABLES = {*_GROUPS, *_NAMED, "aggregation"}
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
        (), "Python files that register algorithms, worlds or links of the server of your own"
    )
    tuned_on: tuple[int, ...] = setting(
        (), "seeds that settings were chosen on; a comparison refuses them", low=0, high=2**31 - 1
    )


@dataclass(frozen=True)
class Config:
    """A resolved config: a run is a pure function of it."""

    preset: str
    seed: int
    world_seed: int
    plugins: tuple[str, ...]
    tuned_on: tuple[int, ...]
    federation: FederationSettings
    learner: LearnerSettings
    critic: CriticSettings
    algorithm: Algorithm
    world: AnyWorld
    selection: Selector[Any]
    aggregation: AggregationSettings
    evaluation: EvaluationSettings
    checkpoint: CheckpointSettings
    heterogeneity: HeterogeneitySettings

    @property
    def seed_of_worlds(self) -> int:
        """The seed of what belongs to the worlds, and not to learning."""
        return self.seed if self.world_seed < 0 else self.world_seed

    def mapping(self) -> dict[str, Any]:
        """The config as TOML can hold it; `from_mapping` reads it back."""
        top = TopLevel(**{f.name: getattr(self, f.name) for f in fields(TopLevel)})
        result = settings.as_mapping(top)
        for name in ("world", "algorithm", "selection"):
            group = getattr(self, name)
            result[name] = {"name": group.name} | settings.as_mapping(group)
        result["aggregation"] = self.aggregation.mapping()
        return result | {name: settings.as_mapping(getattr(self, name)) for name in _GROUPS}

    def clients(self) -> dict[str, np.ndarray]:
        """What each client has of the words that they differ in, or that the config names.

        Returns:
            By word, a row for each client; nothing where all clients share one simulation.

        Example:
            >>> settings = {"world.clients.gravity": {"linspace": [5, 15]}, "federation.clients": 3}
            >>> preset("cartpole", set=settings).clients()["gravity"].tolist()
            [5.0, 10.0, 15.0]
        """
        return clients_of(self)


def from_mapping(values: Mapping[str, Any]) -> Config:
    """Checks a mapping, as read from TOML, and makes a config of it.

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
        raise UserError(f"{min(unknown)} is not a setting{hint}; there is: {allowed}")
    top = settings.build(TopLevel, flat, "")
    for path in top.plugins:
        load_plugin(Path(path))
    parts: dict[str, Any] = {
        name: settings.build(cls, values.get(name, {}), name) for name, cls in _GROUPS.items()
    }
    parts |= {name: _build(name, values.get(name, {})) for name in _NAMED}
    parts["aggregation"] = build_aggregation(values.get("aggregation", {}))
    config = Config(**vars(top), **parts)
    _check(config)
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
        plugins: Python files with algorithms, worlds or links of the server of your own.

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
    which = algorithm or _which("algorithm", presets.table(values, "algorithm"))
    ALGORITHMS[which]
    values = presets.for_algorithm(layers, which)
    values |= {"preset": name, "plugins": files, "tuned_on": presets.united(layers, "tuned_on")}
    if seed is not None:
        values["seed"] = seed
    for key, value in set.items():
        _set(values, key, value)
    _count_agents(values)
    return from_mapping(values)


def lacks(
    name: str, algorithm: str, keys: Iterable[str], plugins: Iterable[str | Path] = ()
) -> list[str]:
    """Which of some settings are of an algorithm, but not of this one.

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
    if not equals or not key.strip():
        raise UserError(f"'{text}' is not of the form dotted.key=value")
    return key.strip(), _value(value.strip())


def _load_plugins(layers: Iterable[dict[str, Any]], plugins: Iterable[str | Path]) -> list[str]:
    """Loads those of a preset, and others; returns their files."""
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
        there_is = ", ".join(_NAMED[kind])
        raise UserError(f"{kind}.name must say which {kind}; there is: {there_is}")
    return name


def _build(kind: str, table: Mapping[str, Any]) -> Any:
    """The algorithm, world or selector that a table is for."""
    cls = _NAMED[kind].find(_which(kind, table), f"{kind}.name")
    rest = {key: value for key, value in table.items() if key != "name"}
    return settings.build(cls, rest, kind)


def _count_agents(values: dict[str, Any]) -> None:
    """Puts numbers where a preset leaves them to the world."""
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


def _check(config: Config) -> None:
    """What no field can check by itself."""
    n, k = config.federation.clients, config.federation.clients_per_round
    if k > n:
        raise UserError(
            f"federation.clients_per_round must be at most federation.clients ({n}), not {k}"
        )
    if (selected := config.federation.selected) > n:
        raise UserError(
            f"federation.extra must be at most {n - k} (federation.clients less "
            f"federation.clients_per_round), not {config.federation.extra}"
        )
    if isinstance(config.world, SharedWorld) and n != config.world.agents:
        raise UserError(
            f"federation.clients must be {config.world.agents}, as many as there are agents in the "
            f"world, not {n}"
        )
    if config.federation.quorum > k:
        raise UserError(
            f"federation.quorum must be at most federation.clients_per_round ({k}), "
            f"not {config.federation.quorum}"
        )
    if config.evaluation.clients > n:
        raise UserError(
            f"evaluation.clients must be at most federation.clients ({n}), "
            f"not {config.evaluation.clients}"
        )
    if config.critic.sees_time and config.learner.bootstrap_truncation:
        raise UserError(
            "critic.sees_time needs learner.bootstrap_truncation = false: a critic that knows the "
            "time left takes the time limit for the end"
        )
    if isinstance(config.world, HeterogeneousWorld) and config.world.differences:
        config.clients()  # the words of each client must go together
    config.algorithm.check(config.learner, config.federation.sharing())
    if config.federation.personal == ALL:
        _check_alone(config)
    if config.federation.pools_data:
        _check_pooled(config)
    config.selection.check(n, selected)
    if config.heterogeneity.every or isinstance(config.selection, Measured):
        check_basis(config.federation)
    if config.evaluation.averaging:
        check_averaging(config)
    config.aggregation.check(n, k)
    own_first = config.learner.personal_iterations
    if own_first and config.federation.personal == NONE:
        raise UserError(
            "learner.personal_iterations must be 0 where federation.personal is none: there is no "
            "personal part to train"
        )
    if own_first >= config.learner.iterations:
        raise UserError(
            f"learner.personal_iterations must be below learner.iterations "
            f"({config.learner.iterations}), not {own_first}: nothing shared would be trained"
        )
    if config.federation.personal == "last-layer" and not config.learner.hidden:
        raise UserError(
            "federation.personal must not be last-layer if learner.hidden is empty: of one layer "
            "that stays at home nothing is left to share"
        )
    if config.algorithm.shares and isinstance(config.aggregation.reduce, Grouped):
        raise UserError(
            f"aggregation.reduce must not be grouped with {config.algorithm.name}: regions "
            f"exchange models, and this algorithm shares more than a model through the server"
        )


def _check_alone(config: Config) -> None:
    """Refuse what would still reach a client from the others where it keeps its whole policy."""
    why = "where federation.personal is all, not {}: each client is to learn alone"
    federation = config.federation
    for name, allowed in (
        ("critic", "local"),
        ("observation_statistics", "local or none"),
        ("reward_statistics", "local or none"),
    ):
        if (given := getattr(federation, name)) == FEDERATED:
            raise UserError(f"federation.{name} must be {allowed} {why.format(given)}")
    if config.algorithm.shares:
        raise UserError(
            f"federation.personal must not be all for {config.algorithm.name}, which shares more "
            "than a policy through the server: each client is to learn alone"
        )
    for group in ("learner", "algorithm"):
        for name, coefficient in getattr(config, group).coefficients().items():
            if (given := coefficient.across_rounds) == "averaged":
                key = f"{group}.{name}_across_rounds"
                raise UserError(f"{key} must be kept or reset {why.format(given)}")
    if config.learner.personal_iterations:
        raise UserError(
            "learner.personal_iterations must be 0 where federation.personal is all: there is "
            "nothing shared to hold fixed meanwhile"
        )
    if config.aggregation.mapping() != build_aggregation({}).mapping():
        raise UserError(
            "aggregation must be as it is by default where federation.personal is all: there is "
            "nothing to aggregate"
        )


def _check_pooled(config: Config) -> None:
    """Refuse what would keep from others what was learnt from everybody's data."""
    federation = config.federation
    if isinstance(config.world, SharedWorld):
        raise UserError(
            f"federation.data must be own in the world {config.world.title}: its clients are "
            "agents of one simulation, and none can be put in another's place"
        )
    if federation.personal != NONE:
        raise UserError(
            f"federation.personal must be none where federation.data is pooled, not "
            f"{federation.personal}: what is learnt from everybody's data is for everybody"
        )
    if federation.observation_statistics == LOCAL:
        raise UserError(
            "federation.observation_statistics must be federated or none where federation.data is "
            "pooled, not local: who never trains would have none to see with"
        )


def _meant(name: str) -> str:
    """What somebody may have meant by a setting that there is not: a group, or one in a group."""
    homes = [g for g, cls in _GROUPS.items() if name in settings.defaults(cls)]
    if homes:
        return f" (did you mean {homes[0]}.{name}?)"
    return did_you_mean(name, [*(f.name for f in fields(TopLevel)), *_TABLES])


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    if key.startswith(f"{TABLE}."):  # a word may have dots of its own
        world = presets.table(values, "world")
        word = {key.removeprefix(f"{TABLE}."): value}
        world["clients"] = presets.table(world, "clients") | word
        return
    *group, name = key.split(".")
    if len(group) > 1:
        raise UserError(f"{key} is not a setting; settings are of the form group.name")
    table = presets.table(values, group[0]) if group else values
    table[name] = value
