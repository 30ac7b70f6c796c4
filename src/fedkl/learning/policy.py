"""The policy: an MLP that gives a distribution over actions, and its personal part."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, PRNGKeyArray

from fedkl.io.arrays import Array, Scalar
from fedkl.learning.distributions import Categorical, Distribution, Gaussian
from fedkl.learning.products import dense
from fedkl.learning.settings import ALL, NONE, RoundSettings
from fedkl.worlds.base import AnyWorld, Continuous


class MLP(eqx.Module):
    """Dense layers with tanh or ReLU between them.

    It takes whole batches: the last axis is the feature axis. Weights start Glorot-normal, biases
    at zero.
    """

    weights: tuple[Float[Array, "i o"], ...]
    biases: tuple[Float[Array, " o"], ...]
    activation: str = eqx.field(static=True)
    """Of the hidden layers, one of `ACTIVATIONS`."""

    def __init__(
        self,
        sizes: Sequence[int],
        key: PRNGKeyArray,
        output_scale: Scalar = 1.0,
        activation: str = "tanh",
    ) -> None:
        """Args:
        sizes: width of the input, of every hidden layer, and of the output.
        key: for the initial weights.
        output_scale: factor on the last layer's initial weights.
        activation: between the layers, one of `ACTIVATIONS`.
        """
        glorot = jax.nn.initializers.glorot_normal()
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = list(itertools.pairwise(sizes))
        weights = [glorot(k, shape, jnp.float32) for k, shape in zip(keys, shapes, strict=True)]
        weights[-1] = weights[-1] * output_scale
        self.weights = tuple(weights)
        self.biases = tuple(jnp.zeros(o) for _, o in shapes)
        self.activation = activation

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        *hidden, (weight, bias) = zip(self.weights, self.biases, strict=True)
        activate = {"tanh": jnp.tanh, "relu": jax.nn.relu}[self.activation]
        for w, b in hidden:
            x = activate(dense(x, w, b))
        return dense(x, weight, bias)


class Policy(eqx.Module):
    """Standardised observations in, a distribution for each out.

    Continuous worlds get a Gaussian whose log standard deviation does not depend on the state,
    discrete ones a categorical distribution (`log_std` is None).
    """

    network: MLP
    log_std: Float[Array, " a"] | None

    def __init__(self, world: AnyWorld, settings: RoundSettings, key: PRNGKeyArray) -> None:
        actions = world.actions
        continuous = isinstance(actions, Continuous)
        outputs = actions.size if isinstance(actions, Continuous) else actions.number
        sizes = (world.observation_size, *settings.hidden, outputs)
        self.network = MLP(sizes, key, settings.output_scale, settings.activation)
        self.log_std = (
            jnp.full(outputs, settings.initial_log_std, jnp.float32) if continuous else None
        )

    def __call__(self, observation: Float[Array, "*b o"]) -> Distribution:
        return self.distribution(self.network(observation))

    def distribution(self, output: Float[Array, "*b n"]) -> Distribution:
        """The distribution that an output of this policy's network stands for."""
        return Categorical(output) if self.log_std is None else Gaussian(output, self.log_std)


def personal_part(policy: Policy, which: str) -> Policy | None:
    """The part of a policy that stays on its client, everything else None.

    Args:
        policy: a whole one.
        which: one of `settings.PERSONAL`; there is no such part if it is `NONE`.
    """
    if which == NONE:
        return None
    if which == ALL:
        return policy

    def own(p: Policy) -> list[Any]:
        layer = [p.network.biases[-1], p.network.weights[-1]]
        return layer if which == "last-layer" else layer[:1]

    nothing = jax.tree.map(lambda _: None, policy)
    return eqx.tree_at(own, nothing, own(policy), is_leaf=_is_none)


def without(policy: Policy, personal: Policy | None) -> Policy:
    """Return the part of a policy that the server sees: None where `personal` is something."""
    if personal is None:
        return policy
    return jax.tree.map(
        lambda own, leaf: leaf if own is None else None, personal, policy, is_leaf=_is_none
    )


def only(policy: Policy, personal: Policy | None) -> Policy | None:
    """The part of a policy that `personal` is."""
    if personal is None:
        return None
    return jax.tree.map(
        lambda own, leaf: None if own is None else leaf, personal, policy, is_leaf=_is_none
    )


def whole(shared: Policy, personal: Policy | None) -> Policy:
    """The policy that a client has: what is shared, and its own part."""
    return shared if personal is None else eqx.combine(shared, personal)


def _is_none(x: object) -> bool:
    return x is None
