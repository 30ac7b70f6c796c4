"""Distributions of actions, Gaussian or categorical, and their distances.

A distribution object holds a batch of distributions, one for each state; every function below
answers for each of them.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, PRNGKeyArray

from fedkl.core.registry import Registry
from fedkl.io.arrays import Array

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)

# Compiled code knows a distance by its name alone.
DISTANCES = Registry("distance", replaced=jax.clear_caches)
register_distance = DISTANCES.register
"""Adds a function of pi^t and pi, batches of distributions, to one number for each state, under its
own name, for `algorithm.distance`; decorates it. It is differentiated: mind roots at 0."""


class Gaussian(eqx.Module):
    """Independent normals for the entries of a continuous action."""

    mean: Float[Array, "*b a"]
    log_std: Float[Array, "*#b a"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*b a"]:
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Float[Array, "*b a"]:
        return self.mean

    def log_prob(self, action: Float[Array, "*b a"]) -> Float[Array, "*b"]:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - _HALF_LOG_TWO_PI, axis=-1)

    def kl(self, other: Distribution) -> Float[Array, "*b"]:
        """KL(self || other) of each state."""
        assert isinstance(other, Gaussian)
        shift = (self.mean - other.mean) * jnp.exp(-other.log_std)
        log_ratio = self.log_std - other.log_std
        # expm1 keeps the difference of nearly equal deviations, which is where KL matters most.
        return 0.5 * jnp.sum(jnp.expm1(2 * log_ratio) - 2 * log_ratio + shift**2, axis=-1)

    def entropy(self) -> Float[Array, "*b"]:
        """Differential entropy of each state, in nats; below 0 where it is narrow."""
        log_std = jnp.broadcast_to(self.log_std, self.mean.shape)
        return jnp.sum(log_std + (0.5 + _HALF_LOG_TWO_PI), axis=-1)


class Categorical(eqx.Module):
    """One of finitely many actions."""

    logits: Float[Array, "*b n"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*b"]:
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, "*b"]:
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Int[Array, "*b"]) -> Float[Array, "*b"]:
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_p, action[..., None], axis=-1)[..., 0]

    def kl(self, other: Distribution) -> Float[Array, "*b"]:
        """KL(self || other) of each state."""
        assert isinstance(other, Categorical)
        log_p = jax.nn.log_softmax(self.logits)
        log_q = jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)

    def entropy(self) -> Float[Array, "*b"]:
        """Entropy of each state, in nats."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


Distribution = Gaussian | Categorical


def safe_sqrt(x: Float[Array, "*b"], floor: float = 1e-8) -> Float[Array, "*b"]:
    """Square root with gradient 0 at and below `floor`.

    The first gradient of a round is taken at pi = pi^t, where KL is 0 and d sqrt(x)/dx infinite:
    infinity times KL's own zero gradient would be NaN. Zero is a subgradient there, because KL has
    its minimum. The inner `where` keeps the infinite branch out of the backward pass altogether
    (a single outer `where` would still multiply 0 by infinity).
    """
    large = ~(x <= floor)  # so that NaN stays NaN
    return jnp.where(large, jnp.sqrt(jnp.where(large, x, 1.0)), 0.0)


@register_distance
def sqrt_kl(p: Distribution, q: Distribution) -> Float[Array, "*b"]:
    """sqrt(KL(p || q) / 2): Pinsker's bound on the total variation, the paper's choice."""
    return safe_sqrt(p.kl(q) / 2)


@register_distance
def sqrt_kl_unhalved(p: Distribution, q: Distribution) -> Float[Array, "*b"]:
    """sqrt(KL(p || q)): what the authors' released code uses."""
    return safe_sqrt(p.kl(q))


@register_distance
def kl(p: Distribution, q: Distribution) -> Float[Array, "*b"]:
    """KL(p || q)."""
    return p.kl(q)


@register_distance
def tv(p: Distribution, q: Distribution) -> Float[Array, "*b"]:
    """Total variation: exact for categoricals, for Gaussians the smaller of two upper bounds.

    The bounds are Pinsker's sqrt(KL/2) and Bretagnolle-Huber's sqrt(1 - exp(-KL)), so that the
    result never passes 1.
    """
    if isinstance(p, Categorical):
        assert isinstance(q, Categorical)
        return 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(p.logits) - jax.nn.softmax(q.logits)), axis=-1)
    divergence = p.kl(q)
    return safe_sqrt(jnp.minimum(divergence / 2, -jnp.expm1(-divergence)))


@register_distance
def mahalanobis(p: Distribution, q: Distribution) -> Float[Array, "*b"]:
    """Distance of the means in standard deviations of p (chi distance for categoricals)."""
    if isinstance(p, Categorical):
        assert isinstance(q, Categorical)
        a, b = jax.nn.softmax(p.logits), jax.nn.softmax(q.logits)
        return safe_sqrt(jnp.sum((a - b) ** 2 / a, axis=-1))
    assert isinstance(q, Gaussian)
    return safe_sqrt(jnp.sum(((p.mean - q.mean) * jnp.exp(-p.log_std)) ** 2, axis=-1))


@register_distance
def wasserstein(p: Distribution, q: Distribution) -> Float[Array, "*b"]:
    """2-Wasserstein distance; for categoricals with unit cost between actions, whose square is
    the total variation."""
    if isinstance(p, Categorical):
        assert isinstance(q, Categorical)
        return safe_sqrt(tv(p, q))
    assert isinstance(q, Gaussian)
    deviations = (jnp.exp(p.log_std) - jnp.exp(q.log_std)) ** 2
    return safe_sqrt(jnp.sum((p.mean - q.mean) ** 2 + deviations, axis=-1))
