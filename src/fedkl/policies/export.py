"""A policy in a file that needs no fedkl: arrays, or its most probable action as an ONNX graph."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.core.arguments import file_path
from fedkl.core.errors import MissingPackageError, UserError
from fedkl.io.files import require_writable, write_atomically
from fedkl.policies.loader import load
from fedkl.simulators.actors import ACTIVATIONS
from fedkl.simulators.policy import Policy
from fedkl.simulators.spaces import Box, BoxAction

# An extra, which arrays do without; `check_target` asks for it.
with contextlib.suppress(ImportError):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

# Old enough for every engine of the last years.
_OPSET, _IR = 17, 8


class _Graph:
    """Nodes in a row, of which each takes what the one before gives."""

    def __init__(self, first: str) -> None:
        self.last = first
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def then(self, operator: str, *inputs: str, into: str = "", **attributes: Any) -> None:
        """Another node; `inputs` come after what the node before gives."""
        into = into or f"step_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.last, *inputs], [into], **attributes))
        self.last = into


def graph_bytes(arrays: Mapping[str, np.ndarray], round: int) -> bytes:
    """Return the graph: `observation`, several along the first axis, to the `action` for each.

    Args:
        arrays: as `export.arrays_of` has them.
        round: the round after which the policy was saved.
    """
    graph = _Graph("observation")
    graph.then("Sub", graph.constant("mean", arrays["mean"]))
    graph.then("Div", graph.constant("scale", arrays["scale"]))
    graph.then(
        "Clip",
        graph.constant("clip_low", -arrays["clip"]),
        graph.constant("clip_high", arrays["clip"]),
    )
    layers = int(arrays["layers"])
    for k in range(layers):
        graph.then("MatMul", graph.constant(f"weight_{k}", arrays[f"weight_{k}"]))
        graph.then("Add", graph.constant(f"bias_{k}", arrays[f"bias_{k}"]))
        if k < layers - 1:
            graph.then({"tanh": "Tanh", "relu": "Relu"}[str(arrays["activation"])])
    action = _discrete(graph, arrays) if "first_action" in arrays else _continuous(graph, arrays)
    size = arrays["mean"].shape[0]
    seen = helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["n", size])
    made = helper.make_graph(graph.nodes, "policy", [seen], [action], graph.constants)
    model = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="fedkl",
        producer_version=metadata.version("fedkl"),
    )
    helper.set_model_props(model, {"round": str(round)})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _discrete(graph: _Graph, arrays: Mapping[str, np.ndarray]) -> Any:
    first = arrays["first_action"].astype(np.int64)
    graph.then("ArgMax", axis=-1, keepdims=0)
    graph.then("Add", graph.constant("first_action", first), into="action")
    return helper.make_tensor_value_info("action", TensorProto.INT64, ["n"])


def _continuous(graph: _Graph, arrays: Mapping[str, np.ndarray]) -> Any:
    low = arrays["action_low"]
    kind = helper.np_dtype_to_tensor_dtype(low.dtype)
    graph.then("Cast", to=kind)
    graph.then("Mul", graph.constant("action_scale", arrays["action_scale"]))
    graph.then("Add", graph.constant("action_centre", arrays["action_centre"]))
    graph.then("Min", graph.constant("action_high", arrays["action_high"]))
    graph.then("Max", graph.constant("action_low", low))
    shape = arrays["action_shape"]
    graph.then("Reshape", graph.constant("shape", np.array([-1, *shape], np.int64)), into="action")
    return helper.make_tensor_value_info("action", kind, ["n", *shape.tolist()])


SUFFIXES = (".onnx", ".npz")


def check_target(path: Path) -> None:
    """Check, before anything costs time, that a policy can be written to a path.

    Raises:
        UserError: it is no kind of file that we write, its folder is missing or closed to us, or a
            package is.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"a policy is written to a file that ends in .onnx or .npz, not to {path}")
    require_writable(path)
    if path.suffix == ".onnx" and find_spec("onnx") is None:
        raise MissingPackageError("an ONNX file needs the package onnx", "onnx")


def export(
    run: str | Path | Policy,
    file: str | Path,
    client: int | None = None,
    best: bool = False,
    accept_changes: bool = False,
) -> Policy:
    """Write a run's policy to a file that needs no fedkl, all at once, as `fedkl export` does.

    Args:
        run: the run's directory; or a policy, of `fedkl.load` or `Federation.policy`.
        file: ends in .onnx or .npz; a file of that name is replaced.
        client: whose policy, of a run; None: the one that all share.
        best: that of the round with the highest mean return.
        accept_changes: also if config.toml is not the one that the checkpoint was made with.

    Returns:
        The policy.

    Raises:
        UserError: it cannot be loaded or written; what was there is still there.
    """
    path = file_path(file)
    check_target(path)
    if not isinstance(run, Policy):
        policy = load(run, client, best, accept_changes)
    elif client is None and not best and not accept_changes:
        policy = run
    else:
        raise UserError("client, best and accept_changes choose a policy of a run: give its path")
    arrays = arrays_of(policy)
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # its own options, says the stub
        write_atomically(path, buffer.getvalue())
    else:
        write_atomically(path, graph_bytes(arrays, policy.round))
    return policy


def arrays_of(policy: Policy) -> dict[str, np.ndarray]:
    """Return a policy as named arrays: all that is needed to act."""
    actor, actions = policy.actor, policy.spaces.actions
    arrays = {"mean": actor.centre, "scale": actor.scale, "clip": np.float32(actor.clip)}
    for k, (weight, bias) in enumerate(zip(actor.weights, actor.biases, strict=True)):
        arrays |= {f"weight_{k}": weight, f"bias_{k}": bias}
    arrays["layers"] = np.int64(len(actor.weights))
    arrays["activation"] = np.asarray(ACTIVATIONS[actor.activation])
    arrays["round"] = np.int64(policy.round)
    if not isinstance(actions, Box):
        return arrays | {"first_action": np.asarray(actions.first, actions.dtype)}
    motor = BoxAction(actions)
    return arrays | {
        "deviation": actor.deviation,
        "action_scale": motor.scale,
        "action_centre": motor.centre,
        "action_low": motor.low,
        "action_high": motor.high,
        "action_shape": np.asarray(actions.shape, np.int64),
    }
