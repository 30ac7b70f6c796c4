"""Policies on the host: those of all agents at once, in NumPy.

A simulator asks for actions thousands of times a second. A JAX call for each step would cost more
than the simulator; a few batched matrix products of NumPy cost less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import add, matmul, maximum, minimum, subtract, tanh

from fedkl.simulators.base import Seed


class Mind(NamedTuple):
    """What one agent acts with: its Gaussian policy, and how it sees."""

    weights: tuple[Float[np.ndarray, "i o"], ...]
    biases: tuple[Float[np.ndarray, " o"], ...]
    deviation: Float[np.ndarray, " a"]
    """Of its actions; 0 acts with the mean."""
    centre: Float[np.ndarray, " o"]
    """Subtracted from observations."""
    scale: Float[np.ndarray, " o"]
    """What they are divided by then."""
    clip: float
    """The limit of the result."""
    exploration: float
    """The probability of an action uniform in [0, 1] instead."""
    seed: Seed
    """Of the noise on its actions."""


class Actors:
    """The minds of all agents, ready for an episode of so many steps.

    An agent's noise is drawn from its own seed, so it does not depend on who else takes part.
    """

    def __init__(self, minds: list[Mind], steps: int) -> None:
        """Args:
        minds: of each agent; the networks have the same shape.
        steps: the length of an episode.
        """
        layers = range(len(minds[0].weights))
        weights = [np.stack([m.weights[k] for m in minds]) for k in layers]
        biases = [np.stack([m.biases[k][None] for m in minds]) for k in layers]
        # Calls of NumPy are what an action costs: the first layer does the scaling, too.
        scale = np.stack([m.scale for m in minds])
        weights[0] = weights[0] / scale[:, :, None]
        self._centre = np.stack([m.centre for m in minds])
        self._high = np.float32(minds[0].clip) * scale
        self._low = -self._high
        outputs = [np.empty(bias.shape, np.float32) for bias in biases]
        *self._hidden, self._last = zip(weights, biases, outputs, strict=True)
        self._seen = np.empty(self._low.shape, np.float32)
        keep, offset = zip(*(_noise(mind, steps) for mind in minds), strict=True)
        explores = any(mind.exploration for mind in minds)
        self._keep = np.stack(keep, axis=1) if explores else None
        self._offset = np.stack(offset, axis=1)

    def __call__(
        self, observation: Float[np.ndarray, "n o"], step: int
    ) -> Float[np.ndarray, "n a"]:
        """Every agent's action in a step of the episode."""
        seen = subtract(observation, self._centre, self._seen)
        maximum(seen, self._low, out=seen)
        minimum(seen, self._high, out=seen)
        x = seen[:, None]
        for weight, bias, output in self._hidden:
            matmul(x, weight, output)
            add(output, bias, output)
            x = tanh(output, output)
        weight, bias, output = self._last
        matmul(x, weight, output)
        add(output, bias, output)
        mean = output[:, 0]
        return (mean if self._keep is None else mean * self._keep[step]) + self._offset[step]


def _noise(mind: Mind, steps: int) -> tuple[Float[np.ndarray, "h 1"], Float[np.ndarray, "h a"]]:
    """What to multiply an agent's mean actions by, and what to add."""
    random = mind.seed.generator()
    size = (steps, mind.deviation.shape[0])
    offset = random.standard_normal(size, np.float32) * mind.deviation
    uniform = random.random((steps, 1)) < mind.exploration
    return (~uniform).astype(np.float32), np.where(uniform, random.random(size, np.float32), offset)
