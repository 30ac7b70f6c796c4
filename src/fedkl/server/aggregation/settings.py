"""The config's table `[aggregation]`: the names of the links, and beside them their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkl.core import settings
from fedkl.core.settings import setting
from fedkl.server.aggregation.base import REDUCERS, STEPS, TRANSFORMS, Reducer, Step, Transform
from fedkl.server.aggregation.chain import Aggregation, AggregationChain
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
            return AggregationChain(self.each, self.reduce, self.step)
        within, across = self.levels
        return Regions(
            self.reduce.assignment(clients),
            self.reduce.region_rounds,
            AggregationChain(self.each, within),
            AggregationChain((), across, self.step),
        )

    def _links(self) -> tuple[Any, ...]:
        return (*self.each, self.reduce, *self.levels, self.step)


def build_aggregation(values: Mapping[str, Any]) -> AggregationSettings:
    """Make the links that a table names.

    Raises:
        UserError: names the setting and what is allowed.
    """
    names, rest = settings.build_names(LinkNames, values, "aggregation")
    classes = [
        *(TRANSFORMS.find(name, "aggregation.each") for name in names.each),
        REDUCERS.find(names.reduce, "aggregation.reduce"),
        STEPS.find(names.step, "aggregation.step"),
    ]
    inner = []
    if issubclass(cls := REDUCERS[names.reduce], Grouped):
        two: Grouped = settings.build(cls, settings.of_link(cls, rest), "aggregation")
        inner = [REDUCERS[two.within], REDUCERS[two.across]]
    made = settings.build_links([*classes, *inner], rest, LinkNames, "aggregation")
    *each, reduce, step = made[: len(classes)]
    return AggregationSettings(tuple(each), reduce, step, tuple(made[len(classes) :]))
