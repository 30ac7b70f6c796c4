"""The config's table `[aggregation]`: the names of the links, and beside them their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedkl.core import settings
from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.core.text import did_you_mean
from fedkl.server.aggregation.base import REDUCERS, STEPS, TRANSFORMS, Reducer, Step, Transform
from fedkl.server.aggregation.chain import Aggregation, Chain
from fedkl.server.aggregation.grouped import Grouped, Regions


@dataclass(frozen=True)
class LinkNames:
    """The links that the chain is made of."""

    each: tuple[str, ...] = setting((), "transforms of each client's move, by name, in their order")
    reduce: str = setting("mean", "the reducer: how clients' parameters become one")
    step: str = setting("none", "the server's step from the old model towards the reduced one")


@dataclass(frozen=True)
class AggregationSettings:
    """The links of the chain, made."""

    each: tuple[Transform, ...]
    reduce: Reducer
    step: Step
    levels: tuple[Reducer, ...] = ()
    """Within and across regions, if the reducer is `grouped`."""

    def mapping(self) -> dict[str, Any]:
        """The table as TOML can hold it."""
        result: dict[str, Any] = {
            "each": [transform.name for transform in self.each],
            "reduce": self.reduce.name,
            "step": self.step.name,
        }
        for link in self._links():
            result |= settings.as_mapping(link)
        return result

    def check(self, clients: int, clients_per_round: int) -> None:
        """Refuse links that this federation is too small for, or regions that do not cover it.

        Raises:
            UserError: names the setting and what is allowed.
        """
        self.reduce.check(clients_per_round)
        if isinstance(self.reduce, Grouped):
            sizes = np.bincount(self.reduce.assignment(clients))
            within, across = self.levels
            within.check(min(clients_per_round, int(sizes.min())))
            across.check(len(sizes))

    @property
    def reducers(self) -> tuple[Reducer, ...]:
        """Those that see what clients send: one, or those within and across regions."""
        return self.levels or (self.reduce,)

    def aggregation(self, clients: int) -> Aggregation:
        """The chain, or the two of them that regions make."""
        if not isinstance(self.reduce, Grouped):
            return Chain(self.each, self.reduce, self.step)
        within, across = self.levels
        return Regions(
            self.reduce.assignment(clients),
            self.reduce.region_rounds,
            Chain(self.each, within),
            Chain((), across, self.step),
        )

    def _links(self) -> tuple[Any, ...]:
        return (*self.each, self.reduce, *self.levels, self.step)


def build_aggregation(values: Mapping[str, Any]) -> AggregationSettings:
    """Make the links that a table names.

    A setting goes to every link that has one of its name; where the table is silent, the default of
    the first of them goes to all, so that a table says the same when it is read back.

    Raises:
        UserError: names the setting and what is allowed.
    """
    own = {f.name for f in fields(LinkNames)}
    names = settings.build(LinkNames, {n: v for n, v in values.items() if n in own}, "aggregation")
    rest = {name: value for name, value in values.items() if name not in own}
    if len(set(names.each)) < len(names.each):
        raise UserError("aggregation.each must name a transform only once")
    classes = [
        *(TRANSFORMS.find(name, "aggregation.each") for name in names.each),
        REDUCERS.find(names.reduce, "aggregation.reduce"),
        STEPS.find(names.step, "aggregation.step"),
    ]
    reduce = _made(REDUCERS[names.reduce], rest)
    inner = []
    if isinstance(reduce, Grouped):
        inner = [REDUCERS[reduce.within], REDUCERS[reduce.across]]
    known: dict[str, Any] = {}
    for cls in [*classes, *inner]:
        known = settings.defaults(cls) | known
    if taken := own & known.keys():
        raise UserError(
            f"aggregation.{min(taken)} is the name of a link, and cannot be the name of a setting"
        )
    for name in rest:
        if name not in known:
            allowed = ", ".join([*sorted(own), *known])
            hint = did_you_mean(name, [*own, *known])
            raise UserError(
                f"aggregation.{name} is not a setting{hint}; with these links aggregation has: "
                f"{allowed}"
            )
    *each, reduce, step = (_made(cls, known | rest) for cls in classes)
    levels = tuple(_made(cls, known | rest) for cls in inner)
    return AggregationSettings(tuple(each), reduce, step, levels)


def _made(cls: type, values: Mapping[str, Any]) -> Any:
    own = {name: value for name, value in values.items() if name in settings.defaults(cls)}
    return settings.build(cls, own, "aggregation")
