"""Checks of a world before the first round, with a sentence that names the world.

A world of a plugin's that gives observations of another size than it says would otherwise end in
an error of a matrix product, far from where the mistake is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from fedkl.core.errors import UserError
from fedkl.core.own_code import explained, place_in, shortened
from fedkl.learning.randomness import Purpose, key_for
from fedkl.worlds.base import Continuous, Transition, World

if TYPE_CHECKING:
    from fedkl.config.config import Config


_NOT_JAX = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""Errors of what asks a traced array for its numbers."""
_LOOKED_AT = 1000
"""Clients in whose worlds a cause is looked for."""


def require_sound(config: Config) -> None:
    """Check that a world has as many clients as it should, and show what it says.

    Nothing is computed but shapes.

    Raises:
        UserError: it does not.
    """
    world, clients = config.task.world, config.federation.clients
    params = config.client_params
    for leaf in jax.tree.leaves(params):
        if np.shape(leaf)[:1] != (clients,):
            raise UserError(
                f"the world {world.name} gives params of shape {np.shape(leaf)} for {clients} "
                "clients: `clients` must give a row for each"
            )
    if isinstance(world, World):
        _require_shapes(world, config, params)


@contextlib.contextmanager
def written_in_jax(cannot: str, method: str) -> Iterator[None]:
    """Name a method of a plugin's that cannot be compiled or differentiated.

    Args:
        cannot: begins the sentence: what cannot be done, and with what.
        method: its name.
    """
    try:
        yield
    except jax.errors.UnexpectedTracerError as error:
        raise explained(
            f"{cannot}: `{method}` keeps what it computes, or finds what was kept, in Python (a "
            "list, an attribute, a global), which is gone once it is compiled: what is to last "
            "must be in what it is given and gives",
            error,
        ) from error
    except _NOT_JAX as error:
        raise explained(
            f"{cannot}: `{method}` must be written in JAX, to be compiled and differentiated: jnp "
            "in the place of NumPy and math, jnp.where in that of `if`, no float() of what it is "
            "given",
            error,
        ) from error
    except TypeError as error:
        if "JAX type" not in str(error):
            raise
        raise UserError(
            f"{cannot}: what `{method}` gives must be made of arrays and numbers "
            f"({shortened(error)})"
        ) from error


def _require_shapes(world: World, config: Config, params: PyTree) -> None:
    seen, moved = jax.eval_shape(lambda p: _begin(world, config, p), _row(params, 0))
    for method, what, found, said in (
        ("reset", "an observation", seen, (world.observation_size,)),
        ("step", "an observation", moved.observation, (world.observation_size,)),
        ("step", "a reward", moved.reward, ()),
        ("step", "`terminated`", moved.terminated, ()),
    ):
        if found.shape != said:
            hint = f" (observation_size = {world.observation_size})" if said else ""
            raise UserError(
                f"the world {world.name} is not what it says: `{method}` gives {what} of shape "
                f"{found.shape}, not {said}{hint}"
            )


def require_finite(config: Config) -> None:
    """Find the cause where no return is a number.

    Raises:
        UserError: a client's world gives NaN or infinity in its first step.
    """
    world = config.task.world
    if not isinstance(world, World):
        return
    params = config.client_params
    begin = jax.jit(lambda p: _begin(world, config, p))
    for client in range(min(config.federation.clients, _LOOKED_AT)):
        seen, moved = jax.device_get(begin(_row(params, client)))
        for method, what, found in (
            ("reset", "an observation", seen),
            ("step", "an observation", moved.observation),
            ("step", "a reward", moved.reward),
        ):
            if not np.isfinite(found).all():
                raise UserError(
                    f"the world {world.name} gives no finite numbers: {what} of client {client} "
                    f"from `{method}` has NaN or infinity in it"
                )


def _begin(world: World, config: Config, params: PyTree) -> tuple[Any, Transition]:
    """The first observation of an episode, and its first step, with an action of zeros."""
    key = key_for(config.seed, Purpose.EVALUATION)
    cannot = f"the world {world.name} cannot be simulated"
    with _called(cannot, "reset"):
        begun = world.reset(params, key)
    if not isinstance(begun, tuple) or len(begun) != 2:
        raise UserError(
            f"{cannot}: `reset` must give two things, a state and an observation, not "
            f"{type(begun).__name__}"
        )
    state, seen = begun
    actions = world.actions
    action = jnp.zeros(actions.size) if isinstance(actions, Continuous) else jnp.zeros((), int)
    with _called(cannot, "step"):
        moved = world.step(params, state, action, key)
    if not isinstance(moved, Transition):
        raise UserError(
            f"{cannot}: `step` must give fedkl.Transition(state, observation, reward, terminated), "
            f"not {type(moved).__name__}"
        )
    return seen, moved


@contextlib.contextmanager
def _called(cannot: str, method: str) -> Iterator[None]:
    """Name a method that cannot be compiled, or does not take what it is given."""
    with written_in_jax(cannot, method):
        try:
            yield
        except TypeError as error:
            if isinstance(error, _NOT_JAX) or place_in(error):
                raise
            raise UserError(f"{cannot}: `{method}`: {shortened(error)}") from error


def _row(params: PyTree, client: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[client], params)
