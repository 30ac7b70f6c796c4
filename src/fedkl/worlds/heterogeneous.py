"""What differs between the clients of a world: the table `[world.clients]` of a config, and the worlds
that have one.

A table says how some parameters are drawn; all others are nominal. A world turns it into params, and
nothing else knows of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Num, PRNGKeyArray
from numpy.typing import DTypeLike

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.core.text import did_you_mean
from fedkl.simulators.gymnasium.quantities import RAW
from fedkl.worlds import draws
from fedkl.worlds.draws import SAME, Draw
from fedkl.worlds.parameters import INITIAL_STATE, Word, distortions

TABLE = "world.clients"
"""How a config spells it."""

NOISES = ("action_noise", "observation_noise")

Boxes = Callable[[int], Mapping[str, np.ndarray]]
"""Cuts up where episodes start: of each word that says so, a row for each box."""


@dataclass(frozen=True)
class Differences:
    """How each word is drawn that a config names, in alphabetical order: TOML has none."""

    given: tuple[tuple[str, Draw], ...] = ()

    @classmethod
    def from_table(cls, table: Any, where: str = TABLE) -> Differences:
        """Reads a table, as TOML has it; which words there are is the world's business.

        Raises:
            UserError: it is no table, or says of a word what nobody can draw.

        Example:
            >>> Differences.from_table({"gravity": {"uniform": [7, 13]}}).table()
            {'gravity': {'uniform': [7, 13]}}
        """
        if not isinstance(table, Mapping):
            raise UserError(f"{where} must be a table of words, not {table!r}")
        named = sorted(_named(table).items())
        return cls(tuple((name, draws.read(f"{where}.{name}", value)) for name, value in named))

    def table(self) -> dict[str, Any]:
        """As TOML can hold it; `from_table` reads it back."""
        return {name: draw.table() for name, draw in self.given}

    def __bool__(self) -> bool:
        return bool(self.given)

    def drawn(self) -> dict[str, tuple[str, Draw]]:
        """The words that are drawn: by which name they were given, and how.

        A normal `action_noise` is the noise itself, not its deviation: drawn once for each client,
        it is an offset of all its actions; drawn at every step, it is fresh noise.

        Raises:
            UserError: a word is given twice, or a noise in a way that there is not.
        """
        result: dict[str, tuple[str, Draw]] = {}
        for name, draw in self.given:
            word, how = _as_noise(name, draw)
            if word in result:
                raise UserError(
                    f"{TABLE}.{name} and {TABLE}.{result[word][0]} both say what {word} is: leave "
                    "out one"
                )
            result[word] = (name, how)
        return result

    def check(self, world: str, words: Sequence[Word], boxes: Boxes) -> None:
        """Whether a world has these words, and they can be drawn like that.

        Args:
            world: its name.
            words: what it has.
            boxes: cuts up where its episodes start.

        Raises:
            UserError: names the word and what is allowed.
        """
        there = {word.name: word for word in words}
        named = self.drawn()
        for word, (name, draw) in named.items():
            if word not in there:
                raise UserError(_no_such_word(world, name, word, there))
            draws.check(f"{TABLE}.{name}", draw, there[word])
        if INITIAL_STATE.name not in named:
            return
        if twice := named.keys() & boxes(named[INITIAL_STATE.name][1].boxes).keys():
            raise UserError(
                f"{TABLE}.initial_state and {TABLE}.{min(twice)} both say where episodes start: "
                "leave out one"
            )


def key_of(word: str, key: PRNGKeyArray) -> PRNGKeyArray:
    """The key by which a word is drawn: its own, so that another word more changes nothing.

    Args:
        word: its name.
        key: of all clients' worlds.
    """
    # Results in the docs hang on Reacher's offsets, which were drawn by the worlds' key itself
    # before there were other words.
    if word == "action_offset":
        return key
    return jax.random.fold_in(key, zlib.crc32(word.encode()))


def _named(table: Mapping[str, Any]) -> dict[str, Any]:
    """What a table says of each word; `model.opt.timestep` is one, also where TOML sees tables."""
    result: dict[str, Any] = {}
    for name, value in table.items():
        inside = isinstance(value, Mapping) and f"{name}.".startswith(RAW)
        if inside and not value.keys() & set(draws.FORMS):
            result |= _named({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            result[name] = value
    return result


def _as_noise(name: str, draw: Draw) -> tuple[str, Draw]:
    """The word that is meant, and how it is drawn."""
    if draw.form != "normal" or name not in NOISES:
        if draw.per == "step":
            raise UserError(
                f"{TABLE}.{name} cannot be {draw.text()}: only a normal "
                f"{' or '.join(NOISES)} is drawn at every step"
            )
        return name, draw
    mean, deviation = draw.numbers
    if draw.per == "step":
        if mean != 0 or draw.clip is not None:
            raise UserError(
                f"{TABLE}.{name}: noise that is drawn at every step has a mean of 0 and no clip"
            )
        return name, Draw(SAME, (deviation,))
    if name != "action_noise":
        raise UserError(
            f'{TABLE}.{name} must be drawn at every step: say per = "step", or give its deviation '
            "as a number"
        )
    return "action_offset", draw


def _no_such_word(world: str, name: str, word: str, there: Iterable[str]) -> str:
    """What to answer somebody who names a word that a world lacks."""
    any_action = {w.name for w in distortions(None)}
    there = sorted(there)
    if word in {w.name for w in distortions(1)} - any_action and any_action <= set(there):
        return (
            f"{TABLE}.{name} is not a word of {world}: its actions are discrete, and nothing can "
            "be added to them"
        )
    has = ", ".join(there) or "nothing that may differ"
    meant = did_you_mean(name, there)
    return f"{TABLE}.{name} is not a word of {world}{meant}; it has: {has}"


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
