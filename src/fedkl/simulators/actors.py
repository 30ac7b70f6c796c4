"""Policies on the host: those of all agents at once, in NumPy.

A simulator asks for actions thousands of times a second. A JAX call for each step would cost more
than the simulator; a few batched matrix products of NumPy cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import add, dot, matmul, maximum, minimum, subtract, tanh

from fedkl.simulators.base import Seed

ACTIVATIONS = ("tanh", "relu")
"""The functions that there may be between the layers of a network."""

FEW = 2
"""Columns of one agent for which a `dot` each takes less time than a `matmul` of all: it does less
before it starts, which shows after a simulator's step. Both sum in the same order."""


class Actor(NamedTuple):
    """An agent's policy: a Gaussian or categorical network, and the scaling of observations.

    It acts with NumPy's arrays. While many are prepared, the fields may hold JAX's, stacked;
    exploration and seeds come last because they are only known when a job is planned.
    """

    weights: tuple[Float[Any, "_in _out"], ...]
    biases: tuple[Float[Any, " _out"], ...]
    deviation: Float[Any, " a"] | None
    """Of continuous actions; 0 acts with the mean. None: what the network gives are the logits of
    discrete ones."""
    centre: Float[Any, " o"]
    """Subtracted from observations."""
    scale: Float[Any, " o"]
    """The divisor after that."""
    clip: float | Float[Any, ""]
    """The limit of the result."""
    exploration: float | Float[Any, ""] = 0.0
    """The probability of a continuous action uniform in [0, 1] instead."""
    seeds: tuple[Seed, ...] = ()
    """Of the noise on its actions, one for each column of the job."""
    temperature: float | Float[Any, ""] = 1.0
    """The divisor of logits; 0 takes the most probable of discrete actions."""
    activation: int | Int[Any, ""] = 0
    """Between the layers, by its place in `ACTIVATIONS`: an array of JAX's holds no name."""


class Networks:
    """The networks of all agents, evaluated in all columns.

    Each is evaluated by itself, so an agent's output does not depend on who else takes part, nor on
    the columns beside its own.
    """

    def __init__(self, actors: list[Actor], columns: int) -> None:
        """Args:
        actors: one for each agent; the networks have the same shape.
        columns: observations of each that are looked at together.
        """

        def everywhere(each: list[Any]) -> Float[np.ndarray, "n c *f"]:
            """Repeat each agent's array in all columns: calls that broadcast take far longer."""
            return np.repeat(np.asarray(each, np.float32)[:, None], columns, axis=1)

        layers = range(len(actors[0].weights))
        weights = [np.stack([a.weights[k][None] for a in actors]) for k in layers]
        biases = [everywhere([a.biases[k][None] for a in actors]) for k in layers]
        # Calls of NumPy are what an action costs: the first layer does the scaling, too.
        scale = np.stack([a.scale for a in actors])
        weights[0] = np.asarray(weights[0] / scale[:, None, :, None], np.float32)
        self._centre = everywhere([a.centre for a in actors])
        self._high = everywhere([np.float32(a.clip) * a.scale for a in actors])
        self._low = -self._high
        outputs = [np.empty_like(bias) for bias in biases]
        self._seen = np.empty_like(self._centre)
        self._output = outputs[-1][:, :, 0]
        # A vector at a time: the rounding of a matrix product depends on how many there are.
        inputs = [self._seen[:, :, None], *outputs[:-1]]
        products = [[three] for three in zip(inputs, weights, outputs, strict=True)]
        self._product: Callable[..., Any] = matmul
        if len(actors) == 1:
            # An axis less saves a little in each call.
            products = [[(x[0], weight[0, 0], y[0])] for ((x, weight, y),) in products]
            if columns <= FEW:
                self._product = dot
                products = [
                    [(x[c, 0], weight, y[c, 0]) for c in range(columns)]
                    for ((x, weight, y),) in products
                ]
        between: dict[str, Callable[..., Any]] = {"tanh": tanh, "relu": _rectify}
        self._activate = between[ACTIVATIONS[actors[0].activation]]
        *self._hidden, self._last = zip(products, biases, outputs, strict=True)

    def __call__(self, observation: Float[np.ndarray, "n c o"]) -> Float[np.ndarray, "n c a"]:
        """Return means or logits; the next call writes over them."""
        seen = subtract(observation, self._centre, self._seen)
        maximum(seen, self._low, out=seen)
        minimum(seen, self._high, out=seen)
        product, activate = self._product, self._activate
        for products, bias, output in self._hidden:
            for three in products:
                product(*three)
            add(output, bias, output)
            activate(output, output)
        products, bias, output = self._last
        for three in products:
            product(*three)
        add(output, bias, output)
        return self._output


def _rectify(x: np.ndarray, out: np.ndarray) -> None:
    maximum(x, 0, out=out)


class Actors:
    """All agents in all columns of a job.

    An agent's noise in a column is drawn from a seed of its own, so an action does not depend on
    who else takes part, nor on the columns beside its own.
    """

    def __init__(self, actors: list[Actor], lengths: Sequence[int]) -> None:
        """Args:
        actors: one for each agent; the networks have the same shape.
        lengths: steps in each column.
        """
        size = (len(actors), len(lengths))
        self._actors = actors
        self._networks = Networks(actors, len(lengths))
        self._discrete = actors[0].deviation is None
        width = actors[0].biases[-1].shape[-1]
        keep = np.ones((max(lengths), *size, 1), np.float32)
        offset = np.zeros((max(lengths), *size, width), np.float32)
        for n, actor in enumerate(actors):
            for c, (seed, length) in enumerate(zip(actor.seeds, lengths, strict=True)):
                drawn = draw_noise(actor, seed.generator(), length)
                keep[:length, n, c], offset[:length, n, c] = drawn
        self._all_offsets = offset
        self._offset = list(offset)
        self._keep = keep if any(actor.exploration for actor in actors) else None

    def __call__(
        self, observation: Float[np.ndarray, "n c o"], row: int
    ) -> Float[np.ndarray, "n c a"] | Int[np.ndarray, "n c"]:
        """Return every agent's action in a row of all columns, or of those that `narrow` left."""
        mean = self._networks(observation)
        mean = mean if self._keep is None else mean * self._keep[row]
        result = add(mean, self._offset[row])
        return result.argmax(axis=-1) if self._discrete else result

    def narrow(self, columns: int) -> None:
        """Act in the first columns only from now on, because the others are over."""
        self._networks = Networks(self._actors, columns)
        self._offset = list(self._all_offsets[:, :, :columns])
        self._keep = None if self._keep is None else self._keep[:, :, :columns]


def draw_noise(
    actor: Actor, random: np.random.Generator, steps: int
) -> tuple[Float[np.ndarray, "h 1"], Float[np.ndarray, "h a"]]:
    """Draw the factor and the offset of an agent's outputs, for each step."""
    if actor.deviation is None:
        size = (steps, actor.biases[-1].shape[0])
        # The largest of logits plus Gumbel noise is a sample of their categorical distribution.
        gumbel = -np.log(random.standard_exponential(size, np.float32))
        noise = gumbel * np.float32(actor.temperature) if actor.temperature else np.zeros(size)
        return np.ones((steps, 1), np.float32), noise
    size = (steps, actor.deviation.shape[0])
    offset = random.standard_normal(size, np.float32) * actor.deviation
    if not actor.exploration:
        return np.ones((steps, 1), np.float32), offset
    uniform = random.random((steps, 1)) < actor.exploration
    return (~uniform).astype(np.float32), np.where(uniform, random.random(size, np.float32), offset)
