"""Checks of a world before the first round, with a sentence that names the world.

A world of a plugin's that gives observations of another size than it says would otherwise end in
an error of a matrix product, far from where the mistake is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from fedkl.core.errors import UserError
from fedkl.learning.randomness import Purpose, key_for
from fedkl.worlds.base import Continuous, SharedWorld, SoloWorld, Transition, World

if TYPE_CHECKING:
    from fedkl.config.config import Config


_LOOKED_AT = 1000
"""Clients in whose worlds a cause is looked for."""


def require_sound(config: Config) -> None:
    """Check that a world has as many clients as it should, and show what it says.

    Nothing is computed but shapes.

    Raises:
        UserError: it does not.
    """
    world, clients = config.task.world, config.federation.clients
    if isinstance(world, SharedWorld):
        return
    assert isinstance(world, World | SoloWorld)
    params = config.client_params
    for leaf in jax.tree.leaves(params):
        if np.shape(leaf)[:1] != (clients,):
            raise UserError(
                f"the world {world.name} gives params of shape {np.shape(leaf)} for {clients} "
                "clients: `clients` must give a row for each"
            )
    if isinstance(world, World):
        _require_shapes(world, config, params)


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
    state, seen = world.reset(params, key)
    actions = world.actions
    action = jnp.zeros(actions.size) if isinstance(actions, Continuous) else jnp.zeros((), int)
    return seen, world.step(params, state, action, key)


def _row(params: PyTree, client: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[client], params)
