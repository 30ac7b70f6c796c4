"""A family of finite MDPs: N agents that share states, actions and gamma, and differ in the rest.

All arrays may carry leading batch axes, written `...` in the shapes: a batch of families is one
object, and everything computed from it is computed for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkl.errors import UserError

FloatArray = NDArray[np.float64]

# How far a distribution may be from summing to one: what rounding in a user's own code leaves.
_SUM_TOLERANCE = 1e-9


class InvalidFamily(UserError, ValueError):  # noqa: N818 - it is named for what is wrong
    """Arrays that are no family of MDPs, or no policy for it; the message says where and why."""


@dataclass(frozen=True, eq=False)
class Family:
    """N finite MDPs over the same states and actions, and the weights of their agents.

    Anything array-like may be passed; what is kept are validated, read-only float64 arrays.

    Attributes:
        initial: the initial distributions mu_n(s), of shape [..., N, S].
        transitions: P_n(s' | s, a), of shape [..., N, S, A, S].
        rewards: the expected rewards R_n(s, a), of shape [..., N, S, A].
        gamma: the discount, strictly between 0 and 1; one number, or one for each family [...].
        weights: q_n, of shape [..., N]; they sum to one. Equal by default.

    Raises:
        ValueError: naming the agent, the state and the rule that is broken.

    Example:
        A bandit is an MDP of one state.

        >>> bandit = Family([[1.0]], np.ones((1, 1, 2, 1)), rewards=[[[1.0, -1.0]]], gamma=0.5)
        >>> bandit.agents, bandit.states, bandit.actions
        (1, 1, 2)
    """

    initial: FloatArray
    transitions: FloatArray
    rewards: FloatArray
    gamma: FloatArray
    weights: FloatArray

    def __init__(
        self,
        initial: ArrayLike,
        transitions: ArrayLike,
        rewards: ArrayLike,
        gamma: ArrayLike,
        weights: ArrayLike | None = None,
    ) -> None:
        P = _array("transitions", transitions, axes=4)
        N, S, A, _ = P.shape[-4:]
        batch = P.shape[:-4]
        if weights is None:
            weights = np.full((*batch, N), 1.0 / N)
        arrays = {
            "initial": (_array("initial", initial, axes=2), (*batch, N, S)),
            "transitions": (P, (*batch, N, S, A, S)),
            "rewards": (_array("rewards", rewards, axes=3), (*batch, N, S, A)),
            "weights": (_array("weights", weights, axes=1), (*batch, N)),
        }
        for name, (array, shape) in arrays.items():
            if array.shape != shape:
                raise InvalidFamily(
                    f"{name} must have the shape {shape} for {N} agents, {S} states and {A} "
                    f"actions, not {array.shape}"
                )
        _check_discount(np.asarray(gamma), batch)
        _check_finite("rewards", arrays["rewards"][0], ("agent", "state", "action"))
        _check_distributions("initial", arrays["initial"][0], ("agent",), "state")
        _check_distributions("transitions", P, ("agent", "state", "action"), "next state")
        _check_distributions("weights", arrays["weights"][0], (), "agent")
        self._set({name: array for name, (array, _) in arrays.items()})
        self._set({"gamma": np.broadcast_to(np.array(gamma, dtype=np.float64), batch)})

    def _set(self, arrays: dict[str, FloatArray]) -> None:
        for name, array in arrays.items():
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    @property
    def agents(self) -> int:
        """N."""
        return self.transitions.shape[-4]

    @property
    def states(self) -> int:
        """|S|."""
        return self.transitions.shape[-3]

    @property
    def actions(self) -> int:
        """|A|."""
        return self.transitions.shape[-2]

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of the batch; () for a single family."""
        return self.transitions.shape[:-4]

    def __getitem__(self, index: Any) -> Family:
        """A part of a batch: `batch[3]`, `batch[:10]`, and `batch[..., None]` for another axis."""
        inner = {"gamma": 0, "weights": 1, "initial": 2, "rewards": 3, "transitions": 4}
        axes = index if isinstance(index, tuple) else (index,)
        if not any(axis is Ellipsis for axis in axes):
            axes = (*axes, ...)
        return self.changed(lambda name, array: array[(*axes, *(slice(None),) * inner[name])])

    def changed(self, change: Callable[[str, FloatArray], FloatArray]) -> Family:
        """The family with every array replaced by `change(name, array)`, which is not validated."""
        family = object.__new__(Family)
        family._set({f.name: change(f.name, getattr(self, f.name)) for f in fields(self)})
        return family

    @staticmethod
    def stack(families: Sequence[Family]) -> Family:
        """A batch of families of equal sizes."""
        first = families[0]
        return first.changed(lambda name, _: np.stack([getattr(f, name) for f in families]))

    def alone(self) -> Family:
        """Each agent as a family of its own: a batch [..., N] of one agent each."""

        def change(name: str, array: FloatArray) -> FloatArray:
            if name == "gamma":
                return np.broadcast_to(array[..., None], (*self.batch, self.agents))
            if name == "weights":
                return np.ones((*array.shape, 1))
            return np.expand_dims(array, len(self.batch) + 1)

        return self.changed(change)

    def uniform_policy(self) -> FloatArray:
        """The policy that takes every action with the same probability, [..., S, A]."""
        return np.full((*self.batch, self.states, self.actions), 1.0 / self.actions)


def check_policy(family: Family, policy: ArrayLike) -> FloatArray:
    """A policy pi(a | s) for a family, as a float64 array [..., S, A].

    Raises:
        ValueError: if it has another shape, or a state's probabilities are not a distribution.
    """
    pi = np.asarray(policy, dtype=np.float64)
    if pi.shape[-2:] != (family.states, family.actions):
        raise InvalidFamily(
            f"a policy for {family.states} states and {family.actions} actions must end in the "
            f"shape {(family.states, family.actions)}, not {pi.shape[-2:]}"
        )
    _check_distributions("the policy", pi, ("state",), "action")
    return pi


def load(path: Path | str) -> Family:
    """Reads a family from an `.npz` file with the arrays of `Family` under their names.

    Raises:
        ValueError: if the file cannot be read, lacks an array, or holds no valid family.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, EOFError) as error:
        raise InvalidFamily(f"cannot read a family from {path}: not an .npz file of arrays") from (
            error
        )
    known = [f.name for f in fields(Family)]
    for name in known:
        if name not in arrays and name != "weights":
            raise InvalidFamily(f"{path} lacks the array {name}")
    for name in arrays:
        if name not in known:
            raise InvalidFamily(f"{path} has an array {name}; a family has {', '.join(known)}")
    return Family(**arrays)


def save(family: Family, path: Path | str) -> None:
    """Writes a family so that `load` reads it back."""
    np.savez_compressed(path, **{f.name: getattr(family, f.name) for f in fields(family)})


def _array(name: str, value: Any, axes: int) -> FloatArray:
    try:
        array = np.array(value, dtype=np.float64)
    except (ValueError, TypeError) as error:
        shapes = [np.shape(part) for part in value] if _agents_differ(value) else []
        for agent, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise InvalidFamily(
                    f"agent {agent}: {name} has the shape {shape}, but agent 0's has {shapes[0]}"
                ) from error
        raise InvalidFamily(f"{name} is no array of numbers") from error
    if array.ndim < axes or 0 in array.shape:
        raise InvalidFamily(
            f"{name} needs {axes} axes that are not empty, not the shape {array.shape}"
        )
    return array


def _agents_differ(value: Any) -> bool:
    """Whether a list of one array for each agent failed because the arrays differ in shape."""
    try:
        return len({np.shape(part) for part in value}) > 1
    except (ValueError, TypeError):
        return False


def _check_discount(gamma: NDArray[Any], batch: tuple[int, ...]) -> None:
    if gamma.dtype.kind not in "fiu" or not ((gamma > 0) & (gamma < 1)).all():
        raise InvalidFamily(f"gamma must be a number strictly between 0 and 1, not {gamma}")
    if gamma.shape not in ((), batch):
        raise InvalidFamily(f"gamma must be one number or have the shape {batch} of the batch")


def _check_finite(name: str, array: FloatArray, axes: tuple[str, ...]) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        where = np.argwhere(bad)[0]
        raise InvalidFamily(f"{_place(where, axes)}: {name} is {array[tuple(where)]}, not finite")


def _check_distributions(name: str, array: FloatArray, axes: tuple[str, ...], over: str) -> None:
    """Every vector along the last axis must be finite, non-negative, and sum to one."""
    _check_finite(name, array, (*axes, over))
    if (array < 0).any():
        where = np.argwhere(array < 0)[0]
        value = array[tuple(where)]
        raise InvalidFamily(f"{_place(where, (*axes, over))}: {name} is negative, {value:g}")
    sums = array.sum(axis=-1)
    bad = abs(sums - 1) > _SUM_TOLERANCE
    if bad.any():
        where = np.argwhere(bad)[0]
        total = sums[tuple(where)]
        place = f"{_place(where, axes)}: " if where.size else ""
        raise InvalidFamily(f"{place}{name} must sum to 1 over {over}s, not to {total:.10g}")


def _place(where: NDArray[np.intp], axes: tuple[str, ...]) -> str:
    """Words for an index, of which the first numbers are those of a batch."""
    extra = len(where) - len(axes)
    batch = [f"family {', '.join(str(i) for i in where[:extra])}"] if extra else []
    named = [f"{axis} {i}" for axis, i in zip(axes, where[extra:], strict=True)]
    return ", ".join(batch + named)
