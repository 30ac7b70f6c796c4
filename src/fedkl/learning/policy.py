"""The policy: a tanh MLP that gives a distribution over actions."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float, PRNGKeyArray

from fedkl.arrays import Array
from fedkl.learning.distributions import Categorical, Distribution, Gaussian
from fedkl.learning.networks import MLP
from fedkl.learning.settings import LearnerSettings
from fedkl.worlds.base import AnyWorld, Continuous


class Policy(eqx.Module):
    """Standardised observations in, a distribution for each out.

    Continuous worlds get a Gaussian whose log standard deviation does not depend on the state,
    discrete ones a categorical distribution (`log_std` is None).
    """

    network: MLP
    log_std: Float[Array, " a"] | None

    def __init__(self, world: AnyWorld, settings: LearnerSettings, key: PRNGKeyArray) -> None:
        actions = world.actions
        continuous = isinstance(actions, Continuous)
        outputs = actions.size if isinstance(actions, Continuous) else actions.number
        sizes = (world.observation_size, *settings.hidden, outputs)
        self.network = MLP(sizes, key, settings.output_scale)
        self.log_std = (
            jnp.full(outputs, settings.initial_log_std, jnp.float32) if continuous else None
        )

    def __call__(self, observation: Float[Array, "*b o"]) -> Distribution:
        return self.distribution(self.network(observation))

    def distribution(self, output: Float[Array, "*b n"]) -> Distribution:
        """The distribution that an output of this policy's network stands for."""
        return Categorical(output) if self.log_std is None else Gaussian(output, self.log_std)
