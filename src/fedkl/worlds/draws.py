"""Draws of a parameter for each client: read from a config, checked, drawn.

A number: the same for all. A list: these values, one client after the other, and again from the
start. Or a table: `{ values = [...] }`, the same as a list; `{ choice = [...] }`, one of them at
random; `{ uniform = [a, b] }`; `{ loguniform = [a, b] }`; `{ normal = [mean, deviation] }`, with
`clip = c` no further than c from the mean; `{ linspace = [a, b] }`, evenly over the clients, with
vectors for a vector; `{ boxes = Q }`, for `initial_state`. Entries of a vector are drawn each by
itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Num, PRNGKeyArray
from numpy.typing import DTypeLike

from fedkl.core.errors import UserError
from fedkl.worlds.parameters import Parameter

SAME = "same"
FORMS = ("values", "choice", "uniform", "loguniform", "normal", "linspace", "boxes")
PER = ("client", "step")
LARGEST = 1e30
"""The largest size of a number: what single precision can still calculate with."""
LARGEST_WHOLE = 2**31 - 2
"""Of a whole number: it and the next one are 32-bit integers, and draws are up to the next one."""

Entry = float | tuple[float, ...]
"""A value of a parameter: a number for all its entries, or one for each."""


class Draw(NamedTuple):
    """The distribution of a parameter over clients."""

    form: str
    """One of `FORMS`, or `SAME`: one value for all."""
    numbers: tuple[Entry, ...]
    clip: float | None = None
    """The largest distance from the mean of a normal draw."""
    per: str = "client"
    """`client`: once for each; `step`: afresh at every step (noise)."""

    @property
    def boxes(self) -> int:
        """The number of boxes, of a draw by boxes."""
        return int(np.asarray(self.numbers[0]))

    def table(self) -> Any:
        """Return the draw as TOML can hold it; `read` reads it back."""
        plain = [list(x) if isinstance(x, tuple) else x for x in self.numbers]
        if self.form == SAME:
            return plain[0]
        if self.form == "values":
            return plain
        result: dict[str, Any] = {self.form: plain[0] if self.form == "boxes" else plain}
        if self.clip is not None:
            result["clip"] = self.clip
        if self.per != PER[0]:
            result["per"] = self.per
        return result

    def text(self) -> str:
        """Return the draw as a config would have it, in one line.

        Example:
            >>> read("gravity", {"normal": [9.8, 1], "clip": 2}).text()
            '{ normal = [9.8, 1], clip = 2 }'
        """
        table = self.table()
        if not isinstance(table, dict):
            return str(table)
        quoted = {k: f'"{v}"' if isinstance(v, str) else v for k, v in table.items()}
        return f"{{ {', '.join(f'{key} = {value}' for key, value in quoted.items())} }}"


def read(where: str, value: Any) -> Draw:
    """Read the draw of a parameter from a config.

    Args:
        where: the parameter as the config spells it, for messages.
        value: a number, a list or a table, as read from TOML.

    Raises:
        UserError: it is none of these, or not of the right form.

    Example:
        >>> read("world.clients.gravity", [7, 13]).numbers
        (7, 13)
    """
    value = _plain(value)
    if isinstance(value, list):
        value = {"values": value}
    if not isinstance(value, Mapping):
        if not _is_number(value):
            raise UserError(
                f"{where} must be a number, a list, or a table with one of {', '.join(FORMS)}, "
                f"not {value!r}"
            )
        return Draw(SAME, (_finite(where, value),))
    forms = [form for form in FORMS if form in value]
    if len(forms) != 1:
        found = " and ".join(forms) or ", ".join(value) or "nothing"
        raise UserError(f"{where} must be drawn by one of {', '.join(FORMS)}, not by {found}")
    form = forms[0]
    if unknown := value.keys() - {form, "clip", "per"}:
        raise UserError(
            f"{where}.{min(unknown)} is not known: beside {form} there may be clip and per"
        )
    per = value.get("per", PER[0])
    if per not in PER:
        raise UserError(f"{where}.per must be client or step, not {per!r}")
    numbers = _numbers(f"{where}.{form}", form, value[form])
    return Draw(form, numbers, _clip(where, form, value), per)


def check(where: str, draw: Draw, parameter: Parameter) -> None:
    """Check that a draw fits the size and the limits of a parameter.

    Raises:
        UserError: it cannot.
    """
    if (draw.form == "boxes") != (parameter.name == "initial_state"):
        only = "boxes are of initial_state" if draw.form == "boxes" else "it must be { boxes = Q }"
        raise UserError(f"{where} cannot be {draw.text()}: {only}")
    if parameter.whole and draw.form in ("normal", "loguniform"):
        raise UserError(f"{where} must be a whole number, and a {draw.form} draw is none")
    size = parameter.shape[0] if parameter.shape else 1
    for entry in draw.numbers:
        if isinstance(entry, tuple) and not parameter.shape:
            raise UserError(f"{where} must be made of numbers, not of lists such as {list(entry)}")
        if isinstance(entry, tuple) and len(entry) != size:
            raise UserError(f"{where} must have {size} entries for a client, not {len(entry)}")
    lowest, highest = bounds(draw)
    flat = np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in draw.numbers])
    if parameter.whole and (flat != np.round(flat)).any():
        raise UserError(f"{where} must be a whole number, not {flat[flat != np.round(flat)][0]:g}")
    limits = _limits(parameter)
    if draw.form == "normal" and draw.clip is None and limits:
        raise UserError(
            f"{where} must be {limits}, and a normal draw may lie anywhere: give it a clip, the "
            "largest distance from its mean"
        )
    for end in (lowest, highest):
        if not parameter.low <= end <= parameter.high:
            raise UserError(f"{where} must be {limits}, not {end:g}")
    if parameter.whole and (large := flat[np.abs(flat) > LARGEST_WHOLE]).size:
        raise UserError(
            f"{where} must be between -{LARGEST_WHOLE} and {LARGEST_WHOLE}, not {large[0]:.16g}"
        )


def bounds(draw: Draw) -> tuple[float, float]:
    """Between what a draw may lie."""
    if draw.form == "normal":
        mean = np.asarray(draw.numbers[0]).item()
        reach = math.inf if draw.clip is None else draw.clip
        return mean - reach, mean + reach
    flat = np.concatenate([np.ravel(entry) for entry in draw.numbers])
    return float(flat.min()), float(flat.max())


def drawn(
    draw: Draw, parameter: Parameter, n: int, key: PRNGKeyArray, dtype: DTypeLike
) -> Num[np.ndarray, " n *entries"]:
    """Draw the values of n clients.

    Args:
        draw: how; not by boxes.
        parameter: of what.
        n: how many clients.
        key: of this parameter.
        dtype: of the result.

    Example:
        >>> drawn(read("", [1, 2]), Parameter("mass", 1.0), 3, jax.random.key(0), float).tolist()
        [1.0, 2.0, 1.0]
    """
    shape = (n, *parameter.shape)
    rows = np.stack([np.broadcast_to(np.asarray(x, dtype), parameter.shape) for x in draw.numbers])
    if draw.form in (SAME, "values"):
        return rows[np.arange(n) % len(rows)]
    if draw.form == "choice":
        together = any(isinstance(entry, tuple) for entry in draw.numbers)
        which = jax.random.randint(key, shape[:1] if together else shape, 0, len(rows))
        columns = () if together or not parameter.shape else (np.arange(*parameter.shape),)
        return rows[(np.asarray(which), *columns)]
    if draw.form == "linspace":
        first, last = (
            np.broadcast_to(np.asarray(end, np.float64), parameter.shape) for end in draw.numbers
        )
        # One client alone has the middle.
        spaced = np.linspace(first, last, n) if n > 1 else (first + last)[None] / 2
        return (np.round(spaced) if parameter.whole else spaced).astype(dtype)
    low, high = np.asarray(draw.numbers, dtype)
    if parameter.whole:
        return np.asarray(jax.random.randint(key, shape, int(low), int(high) + 1), dtype)
    if draw.form == "normal":
        values = low + high * np.asarray(jax.random.normal(key, shape), dtype)
        if draw.clip is None:
            return values
        reach = np.asarray(draw.clip, dtype)
        return np.clip(values, low - reach, low + reach)
    u = np.asarray(jax.random.uniform(key, shape), dtype)
    if draw.form == "uniform":
        return np.clip(low + (high - low) * u, low, high)
    # In double precision: the quotient of the ends may be too large for single.
    first, last = np.log(np.asarray(draw.numbers, np.float64))
    return np.clip(np.exp(first + (last - first) * u.astype(np.float64)).astype(dtype), low, high)


def spread_evenly(n: int, boxes: int) -> Num[np.ndarray, " n"]:
    """Return the index of each client's box.

    Fewer clients than boxes have the middles of n equal pieces of them; with more, client i has the
    box of client i - boxes.

    Example:
        >>> spread_evenly(2, 8).tolist(), spread_evenly(5, 3).tolist()
        ([2, 6], [0, 1, 2, 0, 1])
    """
    i = np.arange(n)
    return i % boxes if n > boxes else (2 * i + 1) * boxes // (2 * n)


def _numbers(where: str, form: str, value: Any) -> tuple[Entry, ...]:
    if form == "boxes":
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{where} must be a whole number of at least 1, not {value!r}")
        return (value,)
    if form in ("values", "choice"):
        if not isinstance(value, list) or not value:
            raise UserError(f"{where} must be a list with at least one value, not {value!r}")
        return tuple(_entry(where, entry) for entry in value)
    if form == "linspace" and isinstance(value, list) and len(value) == 2:
        return tuple(_entry(where, entry) for entry in value)
    what = {
        "normal": "a mean and a deviation of at least 0",
        "loguniform": "two numbers above 0, the smaller one first",
        "uniform": "two numbers, the smaller one first",
    }.get(form, "two numbers")
    pair = value if isinstance(value, list) and len(value) == 2 else []
    if not pair or not all(_is_number(x) and abs(x) <= LARGEST for x in pair):
        raise UserError(f"{where} must be {what}, not {value!r}")
    first, second = pair
    wrong = {
        "normal": second < 0,
        "loguniform": not 0 < first <= second,
        "uniform": first > second,
    }.get(form, False)
    if wrong:
        raise UserError(f"{where} must be {what}, not {value!r}")
    return (first, second)


def _clip(where: str, form: str, table: Mapping[str, Any]) -> float | None:
    if "clip" not in table:
        return None
    clip = table["clip"]
    if form != "normal":
        raise UserError(f"{where}.clip goes with a normal draw, not with {form}")
    if not _is_number(clip) or not 0 < clip <= LARGEST:
        raise UserError(f"{where}.clip must be a number above 0, not {clip!r}")
    return clip


def _entry(where: str, value: Any) -> Entry:
    if isinstance(value, list):
        if not value or not all(_is_number(x) for x in value):
            raise UserError(f"{where} must be made of numbers, or of lists of them, not {value!r}")
        return tuple(_finite(where, x) for x in value)
    if not _is_number(value):
        raise UserError(f"{where} must be made of numbers, or of lists of them, not {value!r}")
    return _finite(where, value)


def _finite(where: str, value: float) -> float:
    if not abs(value) <= LARGEST:
        raise UserError(f"{where} must be between -1e30 and 1e30, not {value}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and tuples, as TOML would have them."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, int) and abs(value) > LARGEST:
        return math.inf if value > 0 else -math.inf
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(entry) for entry in value]
    return value


def _limits(parameter: Parameter) -> str:
    """Return the limits as text; empty if there are none."""
    low = "" if math.isinf(parameter.low) else f"at least {parameter.low:g}"
    high = "" if math.isinf(parameter.high) else f"at most {parameter.high:g}"
    return " and ".join(filter(None, (low, high)))
