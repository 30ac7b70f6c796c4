"""A learner of your own: evolution strategies (Salimans et al. 2017), without any gradient.

Each iteration acts by the policy with noise on its parameters, an odd one with the noise of the one
before it reversed; at the round's end the policy moves along the noise, weighted by the returns.

    python examples/own_learner.py
    fedkl train probe-point --plugin examples/own_learner.py --algorithm fedavg \\
        --set learner.name=evolution federation.observation_statistics=none \\
        federation.reward_statistics=none
"""

import sys
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

import fedkl
from fedkl import clients


class Carry(NamedTuple):
    """What one iteration hands to the next: its number, and all returns so far."""

    iteration: Array
    returns: Array


@fedkl.register_learner
class EvolutionStrategies(fedkl.Learner):
    """Moves the policy along random directions, by the returns found there."""

    name: ClassVar[str] = "evolution"
    summary: ClassVar[str] = "evolution strategies: noise on parameters, weighted by returns"
    logged: ClassVar[tuple[str, ...]] = ("spread",)

    noise: float = fedkl.setting(0.1, "deviation of the noise on the policy's parameters", above=0)
    learning_rate: float = fedkl.setting(0.1, "step size of the policy", above=0)

    def check(self, algorithm: fedkl.Algorithm, sharing: clients.Sharing) -> None:
        super().check(algorithm, sharing)
        if sharing[1:] != ("none", "none", "none"):
            raise fedkl.UserError(
                "the learner evolution keeps no statistics and no personal part: set "
                "federation.observation_statistics and reward_statistics to none"
            )

    def networks(self, world, critic, key):
        return clients.Policy(world, self, key), None

    def begin(self, task, start):
        return Carry(jnp.zeros((), int), jnp.zeros(self.iterations))

    def behaviour(self, task, start, carry):
        noise = self._noise(start, carry.iteration)
        policy = jax.tree.map(lambda p, n: p + self.noise * n, start.model.policy, noise)
        return clients.Behaviour(self, policy, None, start.client.iterations)

    def improve(self, task, start, carry, data, cleaned, index):
        # What an episode was paid that did not end within T steps counts as well.
        total = jnp.sum(data.reward * data.mask) / data.reward.shape[1]
        returns = carry.returns.at[index].set(total)
        zero = jnp.zeros(())
        metrics = dict.fromkeys(("kl_local", "distance_global", "outliers"), zero)
        metrics |= {"guarded": jnp.array(False), "steps": jnp.sum(data.mask).astype(jnp.float32)}
        metrics |= {"train_return": data.mean_return(), "spread": jnp.std(returns)}
        return Carry(carry.iteration + 1, returns), (), metrics

    def finish(self, task, start, end, metrics):
        model, client, _ = start
        weights = (end.returns - end.returns.mean()) / (end.returns.std() + 1e-8)
        step = self.learning_rate / self.iterations
        policy = model.policy
        for i in range(self.iterations):
            along = self._noise(start, jnp.array(i))
            policy = jax.tree.map(lambda p, n, w=weights[i]: p + step * w * n, policy, along)
        sent = clients.Model(policy, None, None, None, {}, ())
        update = clients.Update(sent, jnp.sum(metrics["steps"]), ())
        metrics = metrics | {"coefficients": {}, "step_scale": jnp.ones(())}
        after = jax.tree.map(lambda x: x, client)
        return clients.Trained(update, metrics), after

    def _noise(self, start, iteration):
        """The noise of an iteration, in the shape of a policy."""
        leaves, structure = jax.tree.flatten(start.model.policy)
        keys = jax.random.split(jax.random.fold_in(start.key, iteration // 2), len(leaves))
        sign = 1 - 2.0 * (iteration % 2)
        noise = [sign * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, noise)


def main(preset: str = "probe-point", rounds: str = "5") -> None:
    """Trains it and prints what it does."""
    without = dict.fromkeys(
        ("federation.observation_statistics", "federation.reward_statistics"), "none"
    )
    changes = {"learner.name": "evolution", "federation.rounds": int(rounds), **without}
    for record in fedkl.Federation(fedkl.preset(preset, "fedavg", set=changes)):
        print("round {round}: return {return_mean:.3f}".format(**record), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
