"""What may come between a policy and its environment: delay, offset and noise."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

WORDS = ("action_delay", "action_offset", "action_noise", "observation_noise")


class Distortion:
    """What a client's params do to actions and observations.

    Actions come late, then an offset and noise are added to them, as in
    `fedkl.worlds.distorted`. Until the first action has arrived, zeros act.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Args:
        params: a client's row; words that it does not have do nothing.
        """
        self._delay = int(params.get("action_delay", 0))
        offset = params.get("action_offset")
        self._offset = None if offset is None else np.asarray(offset, np.float32)
        self._action_noise = float(params.get("action_noise", 0.0))
        self._observation_noise = float(params.get("observation_noise", 0.0))
        self._waiting: deque[Any] = deque()
        self._random = np.random.default_rng(0)

    def begin(self, random: np.random.Generator) -> None:
        """An episode starts, with nothing on its way."""
        self._random = random
        self._waiting.clear()

    def acted(self, action: Any) -> Any:
        """What reaches the environment when the policy takes an action."""
        if self._delay:
            self._waiting.append(action)
            late = len(self._waiting) > self._delay
            action = self._waiting.popleft() if late else np.zeros_like(action)
        if self._offset is not None:
            action = action + self._offset
        if self._action_noise:
            noise = self._random.standard_normal(action.shape, np.float32)
            action = action + np.float32(self._action_noise) * noise
        return action

    def seen(self, observation: Float[np.ndarray, " o"]) -> Float[np.ndarray, " o"]:
        """What the policy sees of an observation."""
        if not self._observation_noise:
            return observation
        noise = self._random.standard_normal(observation.shape, np.float32)
        return observation + np.float32(self._observation_noise) * noise
