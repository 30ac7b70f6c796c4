"""What the params of the classic-control worlds share."""

from __future__ import annotations

from jaxtyping import Array, Float

Scalar = Float[Array, ""]
Quantity = Float[Array, "*n"] | float
"""A physical quantity: one number for each client, or for all of them."""

SMALL = 1e-6
"""The least mass and length: the equations divide by them."""
