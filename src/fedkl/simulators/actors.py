"""Policies on the host: those of all agents at once, in NumPy.

A simulator asks for actions thousands of times a second. A JAX call for each step would cost more
than the simulator; a few batched matrix products of NumPy cost less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import add, matmul, maximum, minimum, subtract, tanh

from fedkl.simulators.base import Seed


class Actor(NamedTuple):
    """What one agent acts with: its Gaussian policy, and how it sees.

    It acts with NumPy's arrays. Whoever prepares many may first hold JAX's, stacked, in the same
    fields; exploration and seed come last because they are only known when an episode is planned.
    """

    weights: tuple[Float[Any, "_in _out"], ...]
    biases: tuple[Float[Any, " _out"], ...]
    deviation: Float[Any, " a"]
    """Of its actions; 0 acts with the mean."""
    centre: Float[Any, " o"]
    """Subtracted from observations."""
    scale: Float[Any, " o"]
    """What they are divided by then."""
    clip: float | Float[Any, ""]
    """The limit of the result."""
    exploration: float | Float[Any, ""] = 0.0
    """The probability of an action uniform in [0, 1] instead."""
    seed: Seed = Seed(())
    """Of the noise on its actions."""


class Actors:
    """All agents of a simulation, ready for an episode of so many steps.

    An agent's noise is drawn from its own seed, so it does not depend on who else takes part.
    """

    def __init__(self, actors: list[Actor], steps: int) -> None:
        """Args:
        actors: one for each agent; the networks have the same shape.
        steps: the length of an episode.
        """
        layers = range(len(actors[0].weights))
        weights = [np.stack([a.weights[k] for a in actors]) for k in layers]
        biases = [np.stack([a.biases[k][None] for a in actors]) for k in layers]
        # Calls of NumPy are what an action costs: the first layer does the scaling, too.
        scale = np.stack([a.scale for a in actors])
        weights[0] = weights[0] / scale[:, :, None]
        self._centre = np.stack([a.centre for a in actors])
        self._high = np.array([[a.clip] for a in actors], np.float32) * scale
        self._low = -self._high
        outputs = [np.empty(bias.shape, np.float32) for bias in biases]
        *self._hidden, self._last = zip(weights, biases, outputs, strict=True)
        self._seen = np.empty(self._low.shape, np.float32)
        keep, offset = zip(*(_noise(actor, steps) for actor in actors), strict=True)
        explores = any(actor.exploration for actor in actors)
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


def _noise(actor: Actor, steps: int) -> tuple[Float[np.ndarray, "h 1"], Float[np.ndarray, "h a"]]:
    """What to multiply an agent's mean actions by, and what to add."""
    random = actor.seed.generator()
    size = (steps, actor.deviation.shape[0])
    offset = random.standard_normal(size, np.float32) * actor.deviation
    uniform = random.random((steps, 1)) < actor.exploration
    return (~uniform).astype(np.float32), np.where(uniform, random.random(size, np.float32), offset)
