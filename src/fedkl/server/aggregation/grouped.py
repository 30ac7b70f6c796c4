"""Two levels: regions that average among themselves, and a global server that averages regions.

The paper's outlook asks for this. To its clients a region is a server; to the global server it is a
client, which reports after every few rounds: then all that it has learnt since crosses at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from fedkl.clients.records import PARTS, Kind, Model, Update
from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.io.arrays import size_in_bytes
from fedkl.learning.statistics import Moments, merge
from fedkl.server.aggregation.base import REDUCERS, Reducer, register_reducer
from fedkl.server.aggregation.chain import Aggregated, AggregationChain
from fedkl.server.state import broadcast


@register_reducer
class Grouped(Reducer):
    """The settings of regions; `Regions` does the work."""

    name: ClassVar[str] = "grouped"
    summary: ClassVar[str] = "two levels: regions reduce among themselves, then the server regions"

    regions: int = setting(
        2,
        "how many regions there are, of equal size, by the client's number (without region_of)",
        low=1,
    )
    region_of: tuple[int, ...] = setting(
        (),
        "the region of each client, from 0 on, by the client's number; regions is then not used",
        low=0,
    )
    region_rounds: int = setting(
        1, "r: rounds that regions reduce among themselves before the global server does", low=1
    )
    within: str = setting("mean", "the reducer within a region")
    across: str = setting("mean", "the reducer across regions")

    def __check_init__(self) -> None:
        for field in ("within", "across"):
            if getattr(self, field) == self.name:
                raise UserError(f"aggregation.{field} must be a reducer of one level, not grouped")
            REDUCERS.find(getattr(self, field), f"aggregation.{field}")
        if self.region_of and set(self.region_of) != set(range(max(self.region_of) + 1)):
            raise UserError("aggregation.region_of must name every region from 0 to the highest")

    def assignment(self, clients: int) -> Int[np.ndarray, " n"]:
        """The region of each client.

        Raises:
            UserError: the regions do not cover the clients.
        """
        if self.region_of:
            if len(self.region_of) != clients:
                raise UserError(
                    f"aggregation.region_of must name a region for each of federation.clients "
                    f"({clients}), not for {len(self.region_of)}"
                )
            return np.asarray(self.region_of)
        if self.regions > clients:
            raise UserError(
                f"aggregation.regions must be at most federation.clients ({clients}), "
                f"not {self.regions}"
            )
        return np.arange(clients) * self.regions // clients

    def __call__(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        raise TypeError("regions need to know whose points they are: see `Regions`")


class Region(NamedTuple):
    """A region between two reports."""

    model: Model
    """The model that its clients start from."""
    new: dict[str, Moments]
    """The moments of data that the global server does not know yet."""
    weight: Float[np.ndarray, ""]
    """Steps trained since the last report; 0: it has nothing to report."""


class RegionsState(NamedTuple):
    """The memory of two levels."""

    regions: tuple[Region, ...]
    above: PyTree
    """Of the global server's chain."""


class Regions(eqx.Module):
    """Reduces within regions in every round, and across them after every `region_rounds`."""

    assignment: Int[np.ndarray, " n"]
    region_rounds: int
    inner: AggregationChain
    outer: AggregationChain

    def init(self, model: Model) -> RegionsState:
        """Every region starts from the global model."""
        number = int(self.assignment.max()) + 1
        return RegionsState((_reported(model),) * number, self.outer.init(model))

    def start(self, state: RegionsState, client: int) -> Model | None:
        """The region's model; the global one as long as the region has added nothing to it."""
        region = state.regions[self.assignment[client]]
        return region.model if region.weight > 0 else None

    def __call__(
        self,
        state: RegionsState,
        round: int,
        model: Model,
        updates: Mapping[int, Update],
        key: PRNGKeyArray,
        refused: Collection[int] = (),
    ) -> Aggregated:
        regions = list(state.regions)
        for r, region in enumerate(regions):
            own = {c: update for c, update in updates.items() if self.assignment[c] == r}
            if own:
                bad = [c for c in refused if self.assignment[c] == r]
                regions[r] = self._after(region, round, own, key, bad)
        if (round + 1) % self.region_rounds:
            return Aggregated(model, RegionsState(tuple(regions), state.above))
        reports = {r: _report(region) for r, region in enumerate(regions) if region.weight > 0}
        if not reports:
            return Aggregated(model, RegionsState(tuple(regions), state.above))
        above = self.outer(state.above, round, model, reports, key)
        return Aggregated(
            above.model,
            RegionsState((_reported(above.model),) * len(regions), above.state),
            bytes_up=sum(
                size_in_bytes((broadcast(r.model), np.float32())) for r in reports.values()
            ),
            bytes_down=len(regions) * size_in_bytes(broadcast(above.model)),
        )

    def _after(
        self,
        region: Region,
        round: int,
        updates: Mapping[int, Update],
        key: PRNGKeyArray,
        refused: Collection[int],
    ) -> Region:
        blank = eqx.tree_at(
            lambda m: [getattr(m, name) for name in region.new],
            region.model,
            [jax.tree.map(np.zeros_like, moments) for moments in region.new.values()],
        )
        added = self.inner({}, round, blank, updates, key, refused).model
        merged = [merge(getattr(region.model, n), getattr(added, n)) for n in region.new]
        return Region(
            eqx.tree_at(lambda m: [getattr(m, name) for name in region.new], added, merged),
            {n: merge(known, getattr(added, n)) for n, known in region.new.items()},
            region.weight + sum(float(update.weight) for update in updates.values()),
        )


def _report(region: Region) -> Update:
    """Return the update that a region sends: its model, where the moments hold what is new."""
    parts: dict[str, Any] = {name: getattr(region.model, name) for name in PARTS}
    model = Model(**(parts | region.new | {"shared": ()}))
    return Update(model, region.weight, ())


def _reported(model: Model) -> Region:
    """A region that has nothing to report."""
    moments = {n: getattr(model, n) for n, kind in PARTS.items() if kind is Kind.MOMENTS}
    new = {n: jax.tree.map(np.zeros_like, m) for n, m in moments.items() if m is not None}
    return Region(model, new, np.zeros(()))
