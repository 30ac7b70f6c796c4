"""Running means and variances that can be merged exactly, on a client and on the server.

The functions use plain arithmetic only, so they serve JAX arrays inside a client's jitted round
and float64 NumPy arrays on the server alike.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Shaped

from fedkl.io.arrays import AnyArray, Array, Scalar
from fedkl.learning.products import sum_of_products

NARROWEST = 1e-3
"""The least variance of a density in any direction, beside 1 of a feature that varies."""
BROKEN = 0.2
"""Largest share of a batch that may be outliers; what is more common is how things are."""


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
) -> tuple[Float[Array, "*d"], Bool[Array, "*d"]]:
    """Put the mean of the others in the place of each outlier of a batch, and say which they were.

    Without any, the numbers are the very same.

    A broken sensor must not set the scale that everybody sees with. What it says is set apart by a
    gap: a reading is an outlier if it is over `limit` times as large as the largest usual one (a
    size below 1 counts as 1, so that what is constant but for honest jumps of an ordinary size has
    no outlier). Usual is what four fifths of the batch agree on, and whatever is connected to that
    without such a gap: the seldom large readings of a movement that begins fast, say. So outliers,
    however large and many, do not stretch what they are measured by, as they would a deviation.
    A NaN is none: a client that gives one is to be refused.
    """
    mask = weights.reshape(weights.shape + (1,) * (x.ndim - weights.ndim)).astype(bool)
    axes = tuple(range(weights.ndim))

    def find(now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, _ = now
        size = jnp.where(mask, jnp.abs(x), 0.0)
        enough = (1 - BROKEN) * jnp.sum(mask)

        def grow(usual: Array) -> Array:
            few = jnp.sum(mask & (size <= usual), axis=axes) < enough
            return jnp.where(few, usual * limit, usual)

        def connect(usual: Array) -> Array:
            return jnp.max(jnp.where(size <= limit * usual, size, 1.0), axis=axes, initial=1.0)

        usual = _settled(grow, jnp.ones(x.shape[weights.ndim :], x.dtype))
        # Growing overshoots: back to the largest reading that is as usual as that.
        usual = jnp.max(jnp.where(size <= usual, size, 1.0), axis=axes, initial=1.0)
        outlier = mask & (size > limit * _settled(connect, usual))
        usual_ones = mask & ~outlier
        total = jnp.sum(jnp.where(usual_ones, x, 0.0), axis=axes)
        mean = total / jnp.maximum(jnp.sum(usual_ones, axis=axes), 1)
        return jnp.where(outlier, mean, x), outlier, jnp.asarray(False)

    # What is not larger than this is no outlier, whatever is usual: most batches need no more.
    suspicious = jnp.max(jnp.where(mask, jnp.abs(x), 0.0)) > limit
    unsearched = (x, jnp.zeros(x.shape, bool), suspicious)
    cleaned, outlier, _ = jax.lax.while_loop(lambda now: now[2], find, unsearched)
    return cleaned, outlier


def _settled(step: Callable[[Array], Array], usual: Array) -> Array:
    """Repeat a step, which only ever enlarges, until it changes nothing."""

    def going_on(now: tuple[Array, Array]) -> Array:
        before, after = now
        return jnp.any(before != after)

    return jax.lax.while_loop(going_on, lambda now: (now[1], step(now[1])), (usual, step(usual)))[1]


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


def excess(together: Moments, own: Moments, x: Float[Array, "*b o"]) -> Float[Array, "*b"]:
    """The excess of all clients' visits over those of one of them, relative to all, from 0 to 1.

    max(0, 1 - p_own(x) / p_all(x)), both normal densities: 0 where the client is at least as often,
    nearly 1 where it never is. Its mean over states of all is the total variation between the two.

    Args:
        together: of all clients.
        own: of the one.
        x: states, standardised by `together`.
    """
    spread = deviation(together)
    centre = jnp.asarray((own.mean - together.mean) / spread)
    scale = deviation(own) / spread
    own_density = _log_density(centre, correlation(own) * jnp.outer(scale, scale), x)
    density = _log_density(jnp.zeros_like(centre), correlation(together), x)
    # In this form neither an overflow nor what underflows gives anything but a number.
    return -jnp.expm1(jnp.minimum(own_density - density, 0.0))


def _log_density(
    mean: Float[Array, " o"], covariance: Float[Array, "o o"], x: Float[Array, "*b o"]
) -> Float[Array, "*b"]:
    """Of a normal distribution, but for a constant; never narrower than NARROWEST.

    By eigenvalues, for which a covariance may be singular, or (of medians) none at all.
    """
    scale = jnp.sqrt(jnp.maximum(jnp.diag(covariance), NARROWEST))
    values, vectors = jnp.linalg.eigh(covariance / jnp.outer(scale, scale))
    variances = jnp.maximum(values, NARROWEST)
    away = ((x - mean) / scale) @ vectors
    volume = jnp.sum(jnp.log(scale)) + jnp.sum(jnp.log(variances)) / 2
    return -jnp.sum(away**2 / variances, axis=-1) / 2 - volume


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
