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

from fedkl.io.arrays import Array

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
    return jnp.matmul(_written(a.T), b, precision=precision)


@jax.custom_jvp
def dense(
    x: Float[Array, "*b i"], weight: Float[Array, "i o"], bias: Float[Array, " o"]
) -> Float[Array, "*b o"]:
    """x @ weight + bias.

    The gradients of weight and bias are one `sum_of_products`, of x beside a one and the gradient
    of the result: a sum of its own for the bias takes longer than a row more in a product.
    """
    return x @ weight + bias


@dense.defjvp
def _dense_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    (x, weight, bias), (dx, dweight, dbias) = primals, tangents
    flat = x.reshape(-1, x.shape[-1])
    turned = _written(jnp.concatenate([flat.T, jnp.ones_like(flat, shape=(1, len(flat)))]))
    both = jnp.concatenate([dweight, dbias[None]])
    moved = jax.lax.dot_general(turned, both, _FIRST_AXES)
    return dense(x, weight, bias), dx @ weight + moved.reshape(*x.shape[:-1], -1)


def _written(turned: Float[Array, "i s"]) -> Float[Array, "i s"]:
    """The same, written to memory: else XLA would make one a.T @ b of x.T and its product again."""
    return jax.lax.optimization_barrier(turned)  # type: ignore[no-untyped-call]  # JAX's own
