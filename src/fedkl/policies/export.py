"""A policy as a file for others: ONNX for inference engines, .npz for NumPy.

docs/policies.md has a reader of the latter, and says what is in both.
"""

from __future__ import annotations

import io
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedkl.errors import UserError
from fedkl.policies.policy import Policy
from fedkl.runs import write_atomically
from fedkl.simulators.actuators import Box, Motor

SUFFIXES = (".onnx", ".npz")


def check_target(path: Path) -> None:
    """Finds out, before anything costs time, whether a policy can be written to a path.

    Raises:
        UserError: it is no kind of file that we write, its folder is missing or closed to us, or a
            package is.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"a policy is written to a file that ends in .onnx or .npz, not to {path}")
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a directory")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: permission is denied")
    if path.suffix == ".onnx" and find_spec("onnx") is None:
        raise UserError(
            "ONNX files need the package onnx; install it with `pip install -e '.[onnx]'`"
        )


def export(policy: Policy, path: str | Path) -> None:
    """Writes a policy to a file, all at once.

    Args:
        policy: what to write.
        path: ends in .onnx or .npz; a file of that name is replaced.

    Raises:
        UserError: it cannot be written; what was there is still there.
    """
    path = Path(path)
    check_target(path)
    arrays = arrays_of(policy)
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # its own options, says the stub
        write_atomically(path, buffer.getvalue())
        return
    # What it needs is an extra.
    from fedkl.policies.onnx_graph import graph_bytes

    write_atomically(path, graph_bytes(arrays, policy.round))


def arrays_of(policy: Policy) -> dict[str, np.ndarray]:
    """A policy as named arrays: all that is needed to act."""
    actor, actions = policy.actor, policy.spaces.actions
    arrays = {"mean": actor.centre, "scale": actor.scale, "clip": np.float32(actor.clip)}
    for k, (weight, bias) in enumerate(zip(actor.weights, actor.biases, strict=True)):
        arrays |= {f"weight_{k}": weight, f"bias_{k}": bias}
    arrays["layers"] = np.int64(len(actor.weights))
    arrays["round"] = np.int64(policy.round)
    if not isinstance(actions, Box):
        return arrays | {"first_action": np.asarray(actions.first, actions.dtype)}
    motor = Motor(actions)
    return arrays | {
        "deviation": actor.deviation,
        "action_scale": motor.scale,
        "action_centre": motor.centre,
        "action_low": motor.low,
        "action_high": motor.high,
        "action_shape": np.asarray(actions.shape, np.int64),
    }
