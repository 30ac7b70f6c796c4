"""Running means and variances that can be merged exactly, on a client and on the server.

The functions use plain arithmetic only, so they serve JAX arrays inside a client's jitted round
and float64 NumPy arrays on the server alike.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Moments(eqx.Module):
    """Count, mean, and sum of squared deviations from the mean."""

    count: Float[Array, ""]
    mean: Float[Array, "*f"]
    squares: Float[Array, "*f"]


def empty(*shape: int) -> Moments:
    """The moments of nothing."""
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def of_batch(x: Float[Array, "*b *f"], weights: Bool[Array, "*b"]) -> Moments:
    """The moments of a batch, over the entries whose weight is true."""
    axes = tuple(range(weights.ndim))
    w = weights.reshape(weights.shape + (1,) * (x.ndim - weights.ndim)).astype(x.dtype)
    count = jnp.sum(w)
    mean = jnp.sum(w * x, axis=axes) / jnp.maximum(count, 1)
    return Moments(count, mean, jnp.sum(w * (x - mean) ** 2, axis=axes))


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of both samples together (Chan, Golub and LeVeque's formula; exact).

    Example:
        >>> import numpy as np
        >>> one = Moments(np.array(2.0), np.array(1.0), np.array(2.0))  # 0 and 2
        >>> two = Moments(np.array(1.0), np.array(4.0), np.array(0.0))  # 4
        >>> both = merge(one, two)
        >>> float(both.mean), float(both.squares)  # 0, 2, 4
        (2.0, 8.0)
    """
    count = a.count + b.count
    share = b.count / (count + (count == 0))
    shift = b.mean - a.mean
    return Moments(
        count,
        a.mean + share * shift,
        a.squares + b.squares + a.count * share * shift**2,
    )


def deviation(moments: Moments, floor: float = 1e-4) -> Float[Array, "*f"]:
    """The standard deviation, never below `floor`; 1 while fewer than two samples were seen."""
    variance = moments.squares / jnp.maximum(moments.count, 1)
    return jnp.where(moments.count > 1, jnp.maximum(jnp.sqrt(variance), floor), 1.0)


def standardise(
    moments: Moments | None, x: Float[Array, "*b *f"], clip: Float[Array, ""] | float
) -> Float[Array, "*b *f"]:
    """x with the moments' mean taken away, in deviations, clipped; x itself if there are none."""
    if moments is None:
        return x
    return jnp.clip((x - moments.mean) / deviation(moments), -clip, clip)


def rescale(
    moments: Moments | None, x: Float[Array, "*b"], clip: Float[Array, ""] | float
) -> Float[Array, "*b"]:
    """x in deviations, clipped, its mean left where it is; x itself if there are none."""
    if moments is None:
        return x
    return jnp.clip(x / deviation(moments), -clip, clip)
