"""Placements: the driver of each vehicle, and where the vehicles start."""

from __future__ import annotations

from fedkl.core.errors import UserError

VEHICLES = 14
ALTERNATING = "hrhrhrhrhrhrhr"
MIXED = "hrhhrrhrhhhrrr"
"""The paper's two placements."""

STARTS = (
    ("bottom", 0.0),
    ("top", 0.0),
    ("top", 28.767),
    ("upper_ring", 27.254),
    ("upper_ring", 56.021),
    ("upper_ring", 84.789),
    ("upper_ring", 113.556),
    ("right", 0.671),
    ("right", 29.438),
    ("left", 22.005),
    ("lower_ring", 20.493),
    ("lower_ring", 49.260),
    ("lower_ring", 78.027),
    ("lower_ring", 106.794),
)
"""Edge and position of each vehicle, at rest; vehicle i + 1 is ahead of vehicle i (Flow's own)."""


def check(placement: str) -> None:
    """Refuse all but a placement of 14 vehicles with at least one autonomous one.

    Raises:
        UserError: says what is wrong.

    Example:
        >>> check("hhh")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        fedkl.core.errors.UserError: world.placement must have 14 letters, one for each vehicle, ...
    """
    if wrong := sorted(set(placement) - {"h", "r"}):
        raise UserError(
            "world.placement is made of h (human) and r (autonomous vehicle), "
            f"and {wrong[0]!r} is neither"
        )
    if len(placement) != VEHICLES:
        raise UserError(
            f"world.placement must have {VEHICLES} letters, one for each vehicle, "
            f"not {len(placement)}"
        )
    if "r" not in placement:
        raise UserError("world.placement has no autonomous vehicle (r), so no agent would learn")


def autonomous(placement: str) -> list[int]:
    """Return the numbers of the autonomous vehicles.

    Example:
        >>> autonomous("hrhhrrhrhhhrrr")
        [1, 4, 5, 7, 11, 12, 13]
    """
    return [i for i, letter in enumerate(placement) if letter == "r"]
