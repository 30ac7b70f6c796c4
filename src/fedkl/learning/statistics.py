"""Running means and variances that can be merged exactly, on a client and on the server.

The functions use plain arithmetic only, so they serve JAX arrays inside a client's jitted round
and float64 NumPy arrays on the server alike.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Shaped

from fedkl.io.arrays import AnyArray, Array, Scalar
from fedkl.learning.products import sum_of_products

MOST_PASSES = 1000
"""Over a batch, in search of outliers; each takes at least a hundredth off the farthest."""
LARGEST_READING = 1e15
"""A reading beyond this is cut to it: the sum of squares must not overflow."""


class Moments(eqx.Module):
    """Count, mean, and sum of squared deviations from the mean."""

    count: Float[AnyArray, ""]
    mean: Float[AnyArray, "*f"]
    squares: Float[AnyArray, "*f"]
    products: Float[AnyArray, " p"] | None = None
    """Sum of the products of the deviations of each pair of features, in the order of `pairs`: what
    is missing to the covariance. Kept only if an algorithm asks for it."""


def empty(*shape: int, products: bool = False) -> Moments:
    """The moments of nothing.

    Args:
        shape: of an entry.
        products: keep the products of features, too; entries are vectors then.
    """
    number = jnp.zeros(len(pairs(*shape)[0])) if products else None
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape), number)


def pairs(features: int) -> tuple[np.ndarray, np.ndarray]:
    """The features i < j of each pair, row by row."""
    return np.triu_indices(features, 1)


def of_batch(
    x: Float[Array, "*d"], weights: Shaped[Array, "*b"], products: bool = False
) -> Moments:
    """The moments of a batch, over the entries whose weight is true, or 1.

    Args:
        x: the entries, along the first axes.
        weights: of each entry.
        products: the products of features, too.
    """
    axes = tuple(range(weights.ndim))
    w = weights.reshape(weights.shape + (1,) * (x.ndim - weights.ndim)).astype(x.dtype)
    count = jnp.sum(w)
    mean = jnp.sum(w * x, axis=axes) / jnp.maximum(count, 1)
    squares = jnp.sum(w * (x - mean) ** 2, axis=axes)
    if not products:
        return Moments(count, mean, squares)
    deviations = jnp.reshape(w * (x - mean), (-1, x.shape[-1]))
    # As exact as the squares, also where an accelerator would round more.
    whole = sum_of_products(deviations, deviations, jax.lax.Precision.HIGHEST)
    return Moments(count, mean, squares, whole[pairs(x.shape[-1])])


def without_outliers(
    x: Float[Array, "*d"], weights: Bool[Array, "*b"], limit: float
) -> Float[Array, "*d"]:
    """A batch whose outliers were pulled in; the very same numbers if there are none.

    One broken sensor reading must not set the scale that everybody sees with. An outlier is further
    from the mean than `limit` times the deviation and the size of the mean together (at least 1:
    what was constant but for one honest jump of an ordinary size has no outlier). It stretches the
    deviation that it is measured in, so it is pulled in again and again, until it is none. A batch
    of at most limit^2 entries has no outliers, whatever is in it.
    """
    if weights.size <= limit**2:
        return x
    mask = weights.reshape(weights.shape + (1,) * (x.ndim - weights.ndim)).astype(bool)

    def going_on(now: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        _, suspicious, passes = now
        return suspicious & (passes < MOST_PASSES)

    def pull_in(now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, passes = now
        x = jnp.clip(x, -LARGEST_READING, LARGEST_READING)
        moments = of_batch(x, weights)
        spread = jnp.sqrt(moments.squares / jnp.maximum(moments.count, 1))
        reach = limit * (spread + jnp.maximum(1.0, jnp.abs(moments.mean)))
        # A little more, so that a pass takes at least that little off the farthest.
        far = jnp.any(mask & (jnp.abs(x - moments.mean) > 1.01 * reach))
        pulled = jnp.where(far, jnp.clip(x, moments.mean - reach, moments.mean + reach), x)
        return pulled, far, passes + 1

    # Whatever the mean, what is not larger than this is no outlier: most batches need no more.
    suspicious = jnp.max(jnp.where(mask, jnp.abs(x), 0.0)) > limit - 1
    return jax.lax.while_loop(going_on, pull_in, (x, suspicious, jnp.zeros((), int)))[0]


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
    products = None
    assert (a.products is None) == (b.products is None)
    if a.products is not None and b.products is not None:
        i, j = pairs(shift.shape[-1])
        products = a.products + b.products + a.count * share * shift[i] * shift[j]
    return Moments(
        count,
        a.mean + share * shift,
        a.squares + b.squares + a.count * share * shift**2,
        products,
    )


def deviation(moments: Moments, floor: float = 1e-4) -> Float[Array, "*f"]:
    """The standard deviation, never below `floor`; 1 while fewer than two samples were seen."""
    variance = moments.squares / jnp.maximum(moments.count, 1)
    return jnp.where(moments.count > 1, jnp.maximum(jnp.sqrt(variance), floor), 1.0)


def correlation(moments: Moments) -> Float[Array, "o o"]:
    """The covariance of standardised features: 1 on the diagonal, but 0 for what never varied.

    Without products features are taken for independent.
    """
    spread = deviation(moments)
    count = jnp.maximum(moments.count, 1)
    result = jnp.diag(moments.squares / count / spread**2)
    if moments.products is None:
        return result
    i, j = pairs(spread.shape[0])
    between = moments.products / count / (spread[i] * spread[j])
    return result.at[i, j].set(between).at[j, i].set(between)


def standardise(moments: Moments | None, x: Float[Array, "*d"], clip: Scalar) -> Float[Array, "*d"]:
    """x with the moments' mean taken away, in deviations, clipped; x itself if there are none."""
    if moments is None:
        return x
    return jnp.clip((x - moments.mean) / deviation(moments), -clip, clip)


def rescale(moments: Moments | None, x: Float[Array, "*b"], clip: Scalar) -> Float[Array, "*b"]:
    """x in deviations, clipped, its mean left where it is; x itself if there are none."""
    if moments is None:
        return x
    return jnp.clip(x / deviation(moments), -clip, clip)
