"""The interface of a selector: from its state, the round and the run's key to K clients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import equinox as eqx
from jaxtyping import PRNGKeyArray

from fedkl.core.errors import UserError
from fedkl.core.registry import Registry
from fedkl.heterogeneity.level import Level
from fedkl.io.arrays import mismatch, to_arrays

SELECTORS = Registry("selector", "Selector")
register_selector = SELECTORS.register
"""Adds a selector under its `name`, for configs to ask for; decorates the class."""

S = TypeVar("S")


class Pool(NamedTuple):
    """The clients that can be selected, and how many are."""

    clients: int
    """N: clients are numbered 0 .. N - 1."""
    clients_per_round: int
    """K."""
    key: PRNGKeyArray
    """Of all selections of the run; a selector folds the round into it."""


class Selector(eqx.Module, Generic[S]):
    """Base of all selectors. The fields are its settings; they appear in a config as
    `selection.<field>`.

    All memory is in the state `S`, a pytree of NumPy arrays that is saved with the run, and all
    chance comes from the pool's key: a resumed run therefore selects what the run would have.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    def check(self, clients: int, clients_per_round: int) -> None:
        """Refuse settings that do not suit the federation.

        Raises:
            UserError: naming the setting and what is allowed.
        """

    def client_weights(self) -> Sequence[float] | None:
        """q_k: how much each client counts in the federation, of any scale; None: all alike."""
        return None

    def init(self, clients: int) -> S:
        """The state before the first round."""
        return cast(S, ())

    def to_measure(self, state: S, round: int, pool: Pool) -> list[int]:
        """Return the clients whose level of heterogeneity is to be measured before this round;
        usually none."""
        return []

    def measured(self, state: S, levels: Mapping[int, Level]) -> S:
        """The state with what was measured of those that `to_measure` named and that answered."""
        return state

    @abstractmethod
    def __call__(self, state: S, round: int, pool: Pool) -> list[int]:
        """K different clients in ascending order, the same whenever asked again."""

    def observe(
        self,
        state: S,
        round: int,
        selected: Sequence[int],
        reports: Mapping[int, Mapping[str, Any]],
    ) -> S:
        """The state after a round.

        Args:
            state: before the round; it must not be changed in place.
            round: its number.
            selected: who was asked.
            reports: what the record of the round says of each accepted client (`steps`,
                `kl_local`, `train_return` and so on).
        """
        return state


def select(selector: Selector[S], state: S, round: int, pool: Pool) -> list[int]:
    """Select the clients of a round, in ascending order.

    Raises:
        UserError: the selector names some that there are not, one twice, or none.
    """
    selected = selector(state, round, pool)
    known = all(0 <= client < pool.clients for client in selected)
    if not known or len({*selected}) != len(selected) or not selected:
        raise UserError(
            f"selection.name = {selector.name} must select different clients from 0 to "
            f"{pool.clients - 1}, not {selected}"
        )
    return sorted(selected)


def observe(
    selector: Selector[S],
    before: S,
    round: int,
    selected: Sequence[int],
    rows: Sequence[Mapping[str, Any]],
) -> S:
    """Return a selector's state after a round.

    Args:
        selector: of the config.
        before: its state before the round.
        round: its number.
        selected: who was asked.
        rows: of the accepted clients, in the record of the round.

    Raises:
        UserError: it is not of the structure that it was made with.
    """
    after = selector.observe(before, round, selected, {row["client"]: row for row in rows})
    if problem := mismatch(to_arrays({"state": before}), to_arrays({"state": after})):
        raise UserError(
            f"selection.name = {selector.name} must keep its state as it was made: {problem}"
        )
    return after
