"""What worlds have in common of which each client has one of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Num, PRNGKeyArray
from numpy.typing import DTypeLike

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.worlds import draws
from fedkl.worlds.differences import TABLE, Differences, key_of
from fedkl.worlds.parameters import INITIAL_STATE, Word

Rows = dict[str, Num[np.ndarray, "n ..."]]
"""Of each word, a row for each client."""


class Named(eqx.Module):
    """What has a name in a config."""

    name: ClassVar[str]

    @property
    def title(self) -> str:
        """What people read: the name, or which of the many that a name is for."""
        return self.name


class Family(Named):
    """Worlds that are alike but for their words: what may differ, and what does."""

    differences: Differences = setting(
        Differences(),
        "what differs between clients, and how it is drawn",
        key="clients",
        static=True,
    )

    @property
    def words(self) -> tuple[Word, ...]:
        """What may differ in this world, and is in a client's row of its params."""
        return ()

    @property
    def vocabulary(self) -> tuple[Word, ...]:
        """All that a config may name."""
        return self.words

    def boxes(self, number: int) -> Mapping[str, Num[np.ndarray, "b ..."]]:
        """Where episodes start, cut into so many boxes: of each word that says so, a row for each.

        A world that has `INITIAL_STATE` among its words has `initial_low` and `initial_high` beside
        it, whose range is cut into equal pieces; or it has boxes of its own.

        Raises:
            UserError: it cannot be cut into so many.
        """
        there = {word.name: word.nominal for word in self.words}
        ends = np.linspace(there["initial_low"], there["initial_high"], number + 1)
        return {"initial_low": ends[:-1], "initial_high": ends[1:]}

    def __check_init__(self) -> None:
        """Whether this world has the words that its table names."""
        if self.differences:
            self.differences.check(self.title, self.vocabulary, self.boxes)

    def drawn(self, words: Iterable[Word], n: int, key: PRNGKeyArray, dtype: DTypeLike) -> Rows:
        """What the table says of some words, for n clients.

        Args:
            words: those that are asked for.
            n: how many clients.
            key: of all clients' worlds.
            dtype: of numbers that need not be whole.

        Raises:
            UserError: there is no client, or a client's low end of a range is above its high end.
        """
        if n < 1:
            raise UserError(f"a federation needs at least one client, not {n}")
        named = self.differences.drawn()
        rows: Rows = {}
        for word in words:
            if word.name not in named:
                continue
            _, draw = named[word.name]
            if word == INITIAL_STATE:
                for name, ends in self.boxes(draw.boxes).items():
                    rows[name] = ends[draws.spread_evenly(n, len(ends))].astype(dtype)
            else:
                own = np.int32 if word.whole else dtype
                rows[word.name] = draws.drawn(draw, word, n, key_of(word.name, key), own)
        _check_ranges({word.name: word for word in words}, rows)
        return rows


def alike(words: Iterable[Word], n: int, dtype: DTypeLike) -> Rows:
    """The nominal values of some words, for n clients."""
    return {
        word.name: np.full((n, *word.shape), word.nominal, np.int32 if word.whole else dtype)
        for word in words
        if word != INITIAL_STATE
    }


def _check_ranges(words: Mapping[str, Word], rows: Rows) -> None:
    """Whether `..._low` is nowhere above `..._high`."""
    for name in words:
        other = f"{name.removesuffix('_low')}_high"
        if not name.endswith("_low") or other not in words or not {name, other} & rows.keys():
            continue
        low, high = np.broadcast_arrays(
            *(rows.get(end, np.asarray(words[end].nominal)[None]) for end in (name, other))
        )
        wrong = np.argwhere(low > high)
        if wrong.size:
            at = tuple(wrong[0])
            raise UserError(
                f"{TABLE}: client {at[0]} would have {name} = {low[at]:g}, above its {other} = "
                f"{high[at]:g}"
            )
