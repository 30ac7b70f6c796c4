"""A trained policy that acts, in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkl.core.errors import UserError
from fedkl.simulators.actors import Actor, Networks, draw_noise
from fedkl.simulators.spaces import Spaces, actuator

Key = int | np.integer[Any] | npt.NDArray[Any] | np.random.Generator

_NOT_REAL = "cSUmM"
"""Kinds of arrays that NumPy would turn into real numbers: complex ones, texts and times."""


class Policy:
    """Observations in, actions out, as the environment gives and takes them.

    Standardisation, and the limits of actions, are inside. It acts in the thread that calls it:
    threads that act at the same time need a policy each.

    Attributes:
        actor: its network, and how it sees.
        spaces: what it sees and does.
        round: the round after which it was saved.
        run: the directory that it is from; None if it is from none.
    """

    def __init__(self, actor: Actor, spaces: Spaces, round: int, run: Path | None = None) -> None:
        """Args:
        actor: arrays of NumPy, in single precision; its noise is that of a sample.
        spaces: what fits them.
        round: the round after which it was saved.
        run: the directory that it is from, if it is from one.
        """
        self.actor = actor
        self.spaces = spaces
        self.round = round
        self.run = run
        self._act = actuator(spaces.actions)
        self._discrete = actor.deviation is None
        self._one, self._several = Networks([actor], 1), Networks([actor], 1)
        self._columns = 1
        self._random = np.random.default_rng()

    def __repr__(self) -> str:
        whence = "" if self.run is None else f" of {self.run}"
        gives = f"one of {self.spaces.actions.size} actions"
        if not self._discrete:
            gives = f"an action of {self.spaces.actions.size} numbers"
        sees = f"sees {self.spaces.observation_size} numbers"
        return f"<Policy{whence} after round {self.round}: {sees}, gives {gives}>"

    def __call__(
        self, observation: npt.ArrayLike, deterministic: bool = True, key: Key | None = None
    ) -> Any:
        """Return the action for an observation, or one for each of several.

        Args:
            observation: a vector, or several along the first axis.
            deterministic: take the most probable action instead of a sample.
            key: of a sample: a number, or a generator of NumPy; the same key gives the same
                sample. None: the policy's own generator, which differs from process to process.

        Returns:
            A vector or a number, or an array of as many as there are observations.

        Raises:
            UserError: an observation is of another length, not real or not finite; `deterministic`
                is neither True nor False; or the key is no key.
        """
        # A text such as "no" would count as True.
        if not isinstance(deterministic, bool | np.bool_):
            raise UserError(f"deterministic must be True or False, not {deterministic!r}")
        seen = self._checked(observation)
        single = seen.ndim == 1
        output = self._networks(1 if single else len(seen))(
            seen[None, None] if single else seen[None]
        )[0]
        if not deterministic:
            _, noise = draw_noise(self.actor, self._generator(key), len(output))
            output = output + noise
        action = self._act(output.argmax(axis=-1) if self._discrete else output)
        return action[0] if single else action

    def _networks(self, columns: int) -> Networks:
        """Return networks for so many observations; the last batch size and 1 are kept."""
        if columns == 1:
            return self._one
        if columns != self._columns:
            self._several, self._columns = Networks([self.actor], columns), columns
        return self._several

    def _checked(self, observation: npt.ArrayLike) -> npt.NDArray[np.float32]:
        size = self.spaces.observation_size
        try:
            given = np.asarray(observation)
            if given.dtype.kind in _NOT_REAL:
                raise TypeError(f"these are of the type {given.dtype}")
            with np.errstate(over="ignore"):
                seen = np.asarray(given, np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(f"an observation must be real numbers: {error}") from error
        if seen.ndim not in (1, 2) or seen.shape[-1] != size:
            raise UserError(
                f"an observation of this policy has {size} numbers (several of them the shape "
                f"(number, {size})), and this one the shape {seen.shape}"
            )
        if not np.isfinite(seen).all():
            wrong = np.argwhere(~np.isfinite(seen))[0].tolist()
            where = f"entry {wrong[-1]}" + (f" of number {wrong[0]}" if seen.ndim == 2 else "")
            raise UserError(f"an observation must be finite, and {where} is {seen[tuple(wrong)]}")
        return seen

    def _generator(self, key: Key | None) -> np.random.Generator:
        if key is None:
            return self._random
        try:
            return np.random.default_rng(key)
        except (TypeError, ValueError) as error:
            raise UserError(
                "key must be a whole number from 0 on, several of them, or a generator of NumPy "
                f"(of a key of JAX, take jax.random.key_data), not {key!r}"
            ) from error
