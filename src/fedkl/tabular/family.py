"""A family of finite MDPs: N agents that share states, actions and gamma, and differ in the rest.

All arrays may carry leading batch axes, written `...` in the shapes: a batch of families is one
object, and everything computed from it is computed for all of them at once.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedkl.tabular.validation import (
    FloatArray,
    InvalidFamily,
    as_array,
    check_discount,
    check_distributions,
    check_finite,
)


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
        P = as_array("transitions", transitions, axes=4)
        N, S, A, _ = P.shape[-4:]
        batch = P.shape[:-4]
        if weights is None:
            weights = np.full((*batch, N), 1.0 / N)
        arrays = {
            "transitions": (P, (*batch, N, S, A, S)),
            "initial": (as_array("initial", initial, axes=2), (*batch, N, S)),
            "rewards": (as_array("rewards", rewards, axes=3), (*batch, N, S, A)),
            "weights": (as_array("weights", weights, axes=1), (*batch, N)),
        }
        for name, (array, shape) in arrays.items():
            if array.shape != shape:
                raise InvalidFamily(
                    f"{name} must have the shape {shape} for {N} agents, {S} states and {A} "
                    f"actions, not {array.shape}"
                )
        discount = check_discount(gamma, batch)
        check_finite("rewards", arrays["rewards"][0], ("agent", "state", "action"))
        check_distributions("initial", arrays["initial"][0], ("agent",), "state")
        check_distributions("transitions", P, ("agent", "state", "action"), "next state")
        check_distributions("weights", arrays["weights"][0], (), "agent")
        self._set({name: array for name, (array, _) in arrays.items()})
        self._set({"gamma": discount})

    def __setstate__(self, arrays: dict[str, FloatArray]) -> None:
        self._set(arrays)  # else a copy or an unpickled family could be written to

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
        shapes = {family.transitions.shape for family in families}
        if len(shapes) != 1:
            raise InvalidFamily(f"a batch needs families of one size, not of {len(shapes)}")
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


def check_policy(
    family: Family, policy: ArrayLike, axes: tuple[str, ...] = ("state",)
) -> FloatArray:
    """A policy pi(a | s) for a family, as a float64 array [..., S, A] of its own.

    Args:
        family: what it is a policy for.
        policy: the probabilities.
        axes: what the axes before the actions are called in a message.

    Raises:
        ValueError: if it has another shape, or a state's probabilities are not a distribution.
    """
    pi = as_array("the policy", policy, len(axes) + 1, first=axes[0])
    if pi.shape[-2:] != (family.states, family.actions):
        raise InvalidFamily(
            f"a policy for {family.states} states and {family.actions} actions must end in the "
            f"shape {(family.states, family.actions)}, not {pi.shape[-2:]}"
        )
    check_distributions("the policy", pi, axes, "action")
    return pi


def check_weights(family: Family, weights: ArrayLike) -> FloatArray:
    """The server's weights for the agents of a family, as a float64 array [..., N].

    Raises:
        ValueError: if there is not one for each agent, or they are not a distribution.
    """
    w = as_array("weights", weights, 1)
    if w.shape[-1] != family.agents:
        raise InvalidFamily(f"weights are needed for {family.agents} agents, not {w.shape[-1]}")
    check_distributions("weights", w, (), "agent")
    return w


def load(path: Path | str) -> Family:
    """Read a family from an `.npz` file with the arrays of `Family` under their names.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it lacks an array, or holds no valid family.
    """
    with open(path, "rb") as file:
        try:
            contents = np.load(file, allow_pickle=False)
            if not isinstance(contents, np.lib.npyio.NpzFile):
                raise ValueError("a single array")
            arrays = {name: contents[name] for name in contents.files}
        except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise InvalidFamily(f"{path} is not an .npz file of arrays") from error
    known = [f.name for f in fields(Family)]
    for name in known:
        if name not in arrays and name != "weights":
            raise InvalidFamily(f"{path} lacks the array {name}")
    for name in arrays:
        if name not in known:
            raise InvalidFamily(f"{path} has an array {name}; a family has {', '.join(known)}")
    return Family(**arrays)


def save(family: Family, path: Path | str) -> None:
    """Write a family so that `load` reads it back."""
    # Given a name, NumPy would append .npz to it.
    with open(path, "wb") as file:
        np.savez_compressed(file, **{f.name: getattr(family, f.name) for f in fields(family)})
