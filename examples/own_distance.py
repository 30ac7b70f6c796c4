"""A distance and a schedule of your own: Hellinger's, and a target that is reached half-way.

    fedkl train demo --plugin examples/own_distance.py --algorithm fedkl \\
        --set algorithm.distance=hellinger algorithm.d_global=0.4 algorithm.c1_adapted=half_way
"""

import jax.numpy as jnp

import fedkl
from fedkl.algorithms import safe_sqrt


@fedkl.register_distance
def hellinger(p, q):
    """Hellinger's distance between two batches of diagonal Gaussians, a number for each state."""
    s, t = jnp.exp(p.log_std), jnp.exp(q.log_std)
    spread = s**2 + t**2
    logs = 0.5 * jnp.log(2 * s * t / spread) - (p.mean - q.mean) ** 2 / (4 * spread)
    return safe_sqrt(1 - jnp.exp(jnp.sum(logs, axis=-1)))


@fedkl.register_schedule
def half_way(iteration, iterations, d_global):
    """A target of c1 that grows from 0 to d_global in the first half of a round."""
    return d_global * jnp.minimum(1.0, 2 * (iteration + 1) / iterations)
