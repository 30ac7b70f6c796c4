"""Heterogeneous worlds: the table `[world.clients]` of a config, and the worlds that have one.

A table says how some parameters are drawn; all others are nominal. A world turns it into params,
and nothing else knows of it.
"""

from __future__ import annotations

import warnings
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
from fedkl.worlds.parameters import INITIAL_STATE, Parameter, distortions

TABLE = "world.clients"
"""Its name in a config."""

NOISES = ("action_noise", "observation_noise")

Boxes = Callable[[int], Mapping[str, np.ndarray]]
"""A function that cuts up where episodes start: by parameter, a row for each box."""


@dataclass(frozen=True)
class Differences:
    """The draw of each parameter that a config names, in alphabetical order, as TOML has none."""

    given: tuple[tuple[str, Draw], ...] = ()

    @classmethod
    def from_table(cls, table: Any, where: str = TABLE) -> Differences:
        """Read a table, as TOML has it; the world checks its names.

        Raises:
            UserError: it is no table, or gives a parameter a draw that there is not.

        Example:
            >>> Differences.from_table({"gravity": {"uniform": [7, 13]}}).table()
            {'gravity': {'uniform': [7, 13]}}
        """
        if not isinstance(table, Mapping):
            raise UserError(f"{where} must be a table of parameters, not {table!r}")
        named = sorted(_named(table).items())
        return cls(tuple((name, draws.read(f"{where}.{name}", value)) for name, value in named))

    def table(self) -> dict[str, Any]:
        """Return the table as TOML can hold it; `from_table` reads it back."""
        return {name: draw.table() for name, draw in self.given}

    def __bool__(self) -> bool:
        return bool(self.given)

    def drawn(self) -> dict[str, tuple[str, Draw]]:
        """Return the parameters that are drawn: the name each was given by, and its draw.

        A normal `action_noise` is the noise itself, not its deviation: drawn once for each client,
        it is an offset of all its actions; drawn at every step, it is fresh noise.

        Raises:
            UserError: a parameter is given twice, or a noise in a way that there is not.
        """
        result: dict[str, tuple[str, Draw]] = {}
        for name, draw in self.given:
            parameter, how = _as_noise(name, draw)
            if parameter in result:
                raise UserError(
                    f"{TABLE}.{name} and {TABLE}.{result[parameter][0]} both say what {parameter} "
                    "is: leave out one"
                )
            result[parameter] = (name, how)
        return result

    def check(self, world: str, parameters: Sequence[Parameter], boxes: Boxes) -> None:
        """Check that a world has these parameters, and that they can be drawn like that.

        Args:
            world: its name.
            parameters: what it has.
            boxes: cuts up where its episodes start.

        Raises:
            UserError: names the parameter and what is allowed.
        """
        there = {parameter.name: parameter for parameter in parameters}
        named = self.drawn()
        for parameter, (name, draw) in named.items():
            if parameter not in there:
                raise UserError(_no_such_parameter(world, name, parameter, there))
            draws.check(f"{TABLE}.{name}", draw, there[parameter])
        if INITIAL_STATE.name not in named:
            return
        if twice := named.keys() & boxes(named[INITIAL_STATE.name][1].boxes).keys():
            raise UserError(
                f"{TABLE}.initial_state and {TABLE}.{min(twice)} both say where episodes start: "
                "leave out one"
            )


def key_of(parameter: str, key: PRNGKeyArray) -> PRNGKeyArray:
    """Return the key by which a parameter is drawn: its own, so that one more changes no other.

    Args:
        parameter: its name.
        key: of all clients' worlds.
    """
    # Results in the docs hang on Reacher's offsets, which were drawn by the worlds' key itself
    # before there were other parameters.
    if parameter == "action_offset":
        return key
    return jax.random.fold_in(key, zlib.crc32(parameter.encode()))


def _named(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a table by parameter; `model.opt.timestep` is one, though TOML nests
    it."""
    result: dict[str, Any] = {}
    for name, value in table.items():
        inside = isinstance(value, Mapping) and f"{name}.".startswith(RAW)
        if inside and not value.keys() & set(draws.FORMS):
            result |= _named({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            result[name] = value
    return result


def _as_noise(name: str, draw: Draw) -> tuple[str, Draw]:
    """Return the parameter that is meant, and its draw."""
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


def _no_such_parameter(world: str, name: str, parameter: str, there: Iterable[str]) -> str:
    """Return the message for a parameter that a world lacks."""
    any_action = {w.name for w in distortions(None)}
    there = sorted(there)
    if parameter in {w.name for w in distortions(1)} - any_action and any_action <= set(there):
        return (
            f"{TABLE}.{name} is not a parameter of {world}: its actions are discrete, and nothing "
            "can be added to them"
        )
    has = ", ".join(there) or "nothing that may differ"
    meant = did_you_mean(name, there)
    return f"{TABLE}.{name} is not a parameter of {world}{meant}; available: {has}"


Rows = dict[str, Num[np.ndarray, "n ..."]]
"""By parameter, a row for each client."""


_FORMER = {"words": "parameters", "alike": "default_rows", "artist": "renderer"}
"""Former names of what a world defines, which still work."""


class Named(eqx.Module):
    """A thing with a name in a config."""

    name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for old, new in _FORMER.items():
            if old in vars(cls):
                message = f"`{old}` of {cls.__qualname__} is called `{new}` now"
                warnings.warn(message, DeprecationWarning, stacklevel=3)
                setattr(cls, new, vars(cls)[old])

    @property
    def title(self) -> str:
        """The name for people: the config's, or that of the environment behind it."""
        return self.name


class HeterogeneousWorld(Named):
    """A world of which each client has its own: identical but for the parameters."""

    differences: Differences = setting(
        Differences(),
        "what differs between clients, and how it is drawn",
        key="clients",
        static=True,
    )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in a client's row of the params."""
        return ()

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """All that a config may name."""
        return self.parameters

    def boxes(self, number: int) -> Mapping[str, Num[np.ndarray, "b ..."]]:
        """Cut up where episodes start into so many boxes; by parameter, a row for each box.

        A world with `INITIAL_STATE` among its parameters also has `initial_low` and `initial_high`,
        whose range is cut into equal pieces; or it has boxes of its own.

        Raises:
            UserError: it cannot be cut into so many.
        """
        there = {parameter.name: parameter.nominal for parameter in self.parameters}
        ends = np.linspace(there["initial_low"], there["initial_high"], number + 1)
        return {"initial_low": ends[:-1], "initial_high": ends[1:]}

    def __check_init__(self) -> None:
        """Check that this world has the parameters that its table names."""
        said, there = f"the world {self.name} is described wrongly: `parameters`", self.parameters
        if not isinstance(there, tuple | list) or not all(isinstance(p, Parameter) for p in there):
            raise UserError(f"{said} must be a tuple of fedkl.Parameter, not {there!r}")
        names = [parameter.name for parameter in there]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UserError(f"{said} has {', '.join(sorted(twice))} twice")
        if self.differences:
            self.differences.check(self.title, self.all_parameters, self.boxes)

    def drawn(
        self, parameters: Iterable[Parameter], n: int, key: PRNGKeyArray, dtype: DTypeLike
    ) -> Rows:
        """Draw some parameters for n clients, as the table says.

        Args:
            parameters: those that are asked for.
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
        for parameter in parameters:
            if parameter.name not in named:
                continue
            _, draw = named[parameter.name]
            if parameter == INITIAL_STATE:
                for name, ends in self.boxes(draw.boxes).items():
                    rows[name] = ends[draws.spread_evenly(n, len(ends))].astype(dtype)
            else:
                own = np.int32 if parameter.whole else dtype
                rows[parameter.name] = draws.drawn(
                    draw, parameter, n, key_of(parameter.name, key), own
                )
        _check_ranges({parameter.name: parameter for parameter in parameters}, rows)
        return rows


def identical(parameters: Iterable[Parameter], n: int, dtype: DTypeLike) -> Rows:
    """Return the nominal values of some parameters, for n clients."""
    return {
        parameter.name: np.full(
            (n, *parameter.shape), parameter.nominal, np.int32 if parameter.whole else dtype
        )
        for parameter in parameters
        if parameter != INITIAL_STATE
    }


def _check_ranges(parameters: Mapping[str, Parameter], rows: Rows) -> None:
    """Check that `..._low` is nowhere above `..._high`."""
    for name in parameters:
        other = f"{name.removesuffix('_low')}_high"
        if not name.endswith("_low") or other not in parameters or not {name, other} & rows.keys():
            continue
        low, high = np.broadcast_arrays(
            *(rows.get(end, np.asarray(parameters[end].nominal)[None]) for end in (name, other))
        )
        wrong = np.argwhere(low > high)
        if wrong.size:
            at = tuple(wrong[0])
            raise UserError(
                f"{TABLE}: client {at[0]} would have {name} = {low[at]:g}, above its {other} = "
                f"{high[at]:g}"
            )
