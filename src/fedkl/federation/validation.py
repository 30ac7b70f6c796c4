"""No update reaches the average unchecked."""

from __future__ import annotations

import numpy as np

from fedkl.federation.arrays import mismatch, to_arrays
from fedkl.learning.state import ClientState, Model, Update


def problem_with(
    update: Update, state: ClientState, model: Model, max_relative_norm: float
) -> str | None:
    """Why a client's round must not count, or None if it may.

    Args:
        update: what a client sent back, as NumPy arrays.
        state: what it would keep; a number in it that is not finite would spoil all its rounds.
        model: what was broadcast to it, as NumPy arrays.
        max_relative_norm: how far policy and critic may move, in norms of the broadcast parameters
            (at least 1).
    """
    expected, sent = to_arrays(model), to_arrays(update.model)
    if problem := mismatch(expected, sent):
        return problem
    kept = {f"state.{name}": array for name, array in to_arrays(state).items()}
    for name, array in {**sent, **kept, "weight": np.asarray(update.weight)}.items():
        if not np.all(np.isfinite(array)):
            return f"{name} is not finite"
    if update.weight <= 0:
        return f"weight is {float(update.weight)}"
    for part in ("policy", "critic"):
        names = [name for name in expected if name.startswith(f"{part}.")]
        moved = _norm([sent[name] - expected[name] for name in names])
        allowed = max_relative_norm * max(1.0, _norm([expected[name] for name in names]))
        if moved > allowed:
            return f"{part} moved by {moved:.3g}, more than {allowed:.3g}"
    return None


def _norm(arrays: list[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(a, dtype=np.float64)) for a in arrays)))
