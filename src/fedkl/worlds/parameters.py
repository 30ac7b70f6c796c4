"""Parameters of a world: numbers that may differ between clients, with their limits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from jaxtyping import Array, Float

LONGEST_DELAY = 16
"""Steps that an action may be late at the most: every episode carries so many along."""


class Parameter(NamedTuple):
    """Something that may differ between clients."""

    name: str
    nominal: float | tuple[float, ...]
    """Its value where a config is silent; as many numbers as the parameter has entries."""
    low: float = -math.inf
    high: float = math.inf
    """Inclusive limits, of every entry."""
    help: str = ""
    whole: bool = False
    """True if it must be a whole number."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one client's value.

        Example:
            >>> Parameter("gravity", 9.8).shape, Parameter("target", (0.0, 0.0)).shape
            ((), (2,))
        """
        return (len(self.nominal),) if isinstance(self.nominal, tuple) else ()


class About(NamedTuple):
    """Help and limits of a parameter."""

    help: str
    low: float = -math.inf
    high: float = math.inf


INITIAL_STATE = Parameter(
    "initial_state",
    1,
    1,
    10_000,
    "where episodes start, cut into boxes, { boxes = Q }: Reacher's squares; elsewhere all entries "
    "of a first state move together, from box to box",
    True,
)
"""A parameter of worlds that can cut up where episodes start (`HeterogeneousWorld.boxes`). It
stands for the parameters that are the ends of a box."""


def parameters_from(nominal: Any, **about: About) -> tuple[Parameter, ...]:
    """Return the parameters of a named tuple, in its order.

    Args:
        nominal: a number, or a tuple of numbers, for each field.
        about: help and limits of each field.

    Example:
        >>> class Params(NamedTuple):
        ...     gravity: float = 9.8
        >>> parameters_from(Params(), gravity=About("pulls down", low=0.0))[0].nominal
        9.8
    """
    if about.keys() != set(nominal._fields):
        raise TypeError(
            f"{type(nominal).__name__} and what is said of it have different parameters"
        )
    return tuple(
        Parameter(name, getattr(nominal, name), about[name].low, about[name].high, about[name].help)
        for name in nominal._fields
    )


def distortions(action_size: int | None) -> tuple[Parameter, ...]:
    """Return the parameters that any world in JAX has, because a wrapper gives them to it.

    Args:
        action_size: how many real numbers an action has; None: actions are discrete, and nothing
            can be added to them.
    """
    any_action = (
        Parameter("observation_noise", 0.0, 0.0, help="deviation of noise on every observation"),
        Parameter("action_delay", 0, 0, LONGEST_DELAY, "steps by which actions come late", True),
    )
    if action_size is None:
        return any_action
    return (
        Parameter("action_offset", (0.0,) * action_size, help="added to every action"),
        Parameter("action_noise", 0.0, 0.0, help="deviation of fresh noise on every action"),
        *any_action,
    )


Scalar = Float[Array, ""]
Quantity = Float[Array, "*n"] | float
"""A physical quantity: one number for each client, or for all of them."""

SMALL = 1e-6
"""The least mass and length: the equations divide by them."""
