"""Matrix products with the same bits whatever number of threads XLA has.

On a CPU XLA gives a @ b and a @ b.T to YNNPACK, which never splits a sum among threads. It gives
a.T @ b to Eigen, which does from some hundred terms on, by the number of threads, and which takes a
quarter longer. So a is turned first where the sum runs over samples: for gradients of weights and
for covariances.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedkl.arrays import Array

_FIRST_AXES = (((0,), (0,)), ((), ()))


def sum_of_products(
    a: Float[Array, "s i"], b: Float[Array, "s j"], precision: jax.lax.Precision | None = None
) -> Float[Array, "i j"]:
    """a.T @ b: the sum over samples of the products of every two features.

    Args:
        a: features of each sample.
        b: others of the same samples.
        precision: of an accelerator.
    """
    return jnp.matmul(_turned(a), b, precision=precision)


@jax.custom_jvp
def dense(x: Float[Array, "*b i"], weight: Float[Array, "i o"]) -> Float[Array, "*b o"]:
    """x @ weight; the gradient of the weight is `sum_of_products` of x and that of the result."""
    return x @ weight


@dense.defjvp
def _dense_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (x, weight), (dx, dweight) = primals, tangents
    turned = _turned(x.reshape(-1, x.shape[-1]))
    moved = jax.lax.dot_general(turned, dweight, _FIRST_AXES)
    return dense(x, weight), dx @ weight + moved.reshape(*x.shape[:-1], -1)


def _turned(x: Float[Array, "s i"]) -> Float[Array, "i s"]:
    """x.T in memory: without the barrier XLA would make one a.T @ b of it again."""
    return jax.lax.optimization_barrier(x.T)  # type: ignore[no-untyped-call]  # JAX's own
