"""The server's whole state: what is trained on, saved and resumed. Clients keep their own."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int, PyTree

from fedkl.arrays import AnyArray
from fedkl.clients.state import PARTS, Kind, Model
from fedkl.server.outliers import Usual


class State(eqx.Module):
    """Everything the server needs to go on, apart from its config. All leaves are NumPy arrays."""

    round: Int[AnyArray, ""]
    """Rounds finished."""
    env_steps: Int[AnyArray, ""]
    """Training steps of all accepted updates so far."""
    empty_rounds: Int[AnyArray, ""]
    """Rounds in a row, up to now, that left the model as it was."""
    model: Model
    selector: PyTree
    aggregation: PyTree
    usual: Usual
    """What clients said in the last rounds, which answers are compared with."""


def at_the_server(model: Model) -> Model:
    """A fresh model as the server keeps it: moments in float64.

    Beyond 2^24 samples float32 no longer counts exactly.
    """
    names = [n for n, kind in PARTS.items() if kind is Kind.MOMENTS]
    return eqx.tree_at(
        lambda m: [getattr(m, n) for n in names],
        model,
        [jax.tree.map(lambda x: np.asarray(x, np.float64), getattr(model, n)) for n in names],
        is_leaf=lambda x: x is None,
    )


def broadcast(model: Model) -> Model:
    """The model as it is sent: clients take float32."""

    def narrow(x: AnyArray) -> np.ndarray:
        return np.asarray(x, np.float32 if np.issubdtype(x.dtype, np.floating) else x.dtype)

    return jax.tree.map(narrow, model)
