"""The records of a run: read, and checked for what they must look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from fedkl.core.arguments import run_path
from fedkl.core.errors import UserError
from fedkl.training.directory import RunDirectory
from fedkl.training.metrics import MetricsLog

if TYPE_CHECKING:
    from fedkl.server.records import Record

_NUMBERS = (
    "return_mean",
    "return_min",
    "return_std",
    "deterministic_return_mean",
    "kl_local",
    "distance_global",
    "guarded",
    "env_steps",
    "bytes_down",
    "bytes_up",
    "bytes_down_regions",
    "bytes_up_regions",
    "seconds",
)


def records(run: str | Path) -> list[Record]:
    """Return the record of each round so far, the first one first; `pandas.DataFrame` takes it.

    Args:
        run: the run's directory; it may still be training.

    Raises:
        UserError: it is not a run, or its log is damaged.
    """
    return cast("list[Record]", RunDirectory.open(run_path(run)).metrics.read())


def is_number(value: Any) -> bool:
    """Return True for a number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)


def warm_seconds(records: Iterable[Mapping[str, Any]]) -> list[float | None]:
    """Return the seconds that each of a run's rounds takes once everything is compiled and warm.

    Rounds with and without an evaluation are two kinds. The first round of a kind compiles, so a
    round counts as the median of the others of its kind; if it is the only one, of the other kind.

    Args:
        records: of the rounds, in their order.

    Returns:
        None for a round whose time is not known, and for all if no kind has two of them.

    Example:
        >>> warm_seconds([{"seconds": 9.0}, {"seconds": 2.0}, {"seconds": 2.5}])
        [2.25, 2.25, 2.25]
    """
    times = [(record.get("return_mean") is not None, record.get("seconds")) for record in records]
    kinds: dict[bool, list[float]] = {}
    for kind, seconds in times:
        if seconds is not None:
            kinds.setdefault(kind, []).append(seconds)
    usual = {kind: median(found[1:]) for kind, found in kinds.items() if len(found) > 1}
    other = max(usual.values(), default=None)
    return [None if seconds is None else usual.get(kind, other) for kind, seconds in times]


def training_seconds(records: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the seconds of a run's rounds without compilation (see `warm_seconds`), if known.

    Example:
        >>> training_seconds([{"seconds": 9.0}, {"seconds": 2.0}, {"seconds": 2.5}])
        6.75
    """
    known = [seconds for seconds in warm_seconds(records) if seconds is not None]
    return sum(known) if known else None


def _perhaps(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _is_client(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_rejection(value: Any) -> bool:
    whole = isinstance(value, dict) and {"client", "reason"} <= value.keys()
    return whole and _is_client(value["client"]) and _is_text(value["reason"])


def _is_broken(value: Any) -> bool:
    whole = isinstance(value, dict) and {"client", "share"} <= value.keys()
    return whole and _is_client(value["client"]) and is_number(value["share"])


def _is_coefficients(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_perhaps(is_number), value.values()))


_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_NUMBERS, _perhaps(is_number)),
    "round": _is_client,
    "return_per_client": _perhaps(_list_of(_perhaps(is_number))),
    "evaluated": _perhaps(_list_of(_is_client)),
    "rejected": _perhaps(_list_of(_is_rejection)),
    "retried": _perhaps(_list_of(_is_rejection)),
    "held_back": _perhaps(_list_of(_is_rejection)),
    "outliers": _perhaps(_list_of(_is_broken)),
    "coefficients": _perhaps(_is_coefficients),
    "note": _perhaps(_is_text),
    "returns_file": _perhaps(_is_text),
    "returns_sha256": _perhaps(_is_text),
}


def require_sensible(
    log: MetricsLog, record: Mapping[str, Any], needed: Iterable[str] = ("round",)
) -> None:
    """Refuse a record that cannot be computed with.

    Args:
        log: where it is from.
        record: as read.
        needed: what it must have.

    Raises:
        UserError: something is missing, or is not what it should be.
    """
    for name in needed:
        if name not in record:
            where = f"round {record['round']}" if "round" in record else "a record"
            raise UserError(f"{log.path}: {where} has no {name}")
    for name, fits in _FITS.items():
        if name in record and not fits(record[name]):
            raise UserError(
                f"{log.path}: {name} of round {record.get('round')!r:.20} cannot be "
                f"{record[name]!r:.40}"
            )
