"""Aggregation as a chain: transform each client's move, reduce, step (Algorithm 2, line 11).

Each network of the model is transformed, reduced and stepped by itself, so that what a client does
to one cannot hide behind the size of the other. `PARTS` in `clients.records` says what becomes of
the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray, PyTree

from fedkl.clients.records import PARTS, Kind, Model, Update
from fedkl.core.errors import UserError
from fedkl.learning.statistics import Moments, merge, pairs
from fedkl.server.aggregation.base import Reducer, Step, Transform
from fedkl.server.aggregation.reducers import Mean
from fedkl.server.aggregation.steps import NoStep


class Aggregated(NamedTuple):
    """The result of a round's aggregation."""

    model: Model
    state: PyTree
    bytes_up: int = 0
    """From the regions' servers to the global one, where there are regions."""
    bytes_down: int = 0
    """And back."""


@runtime_checkable
class Aggregation(Protocol):
    """From accepted updates to the next global model. All memory is in its state."""

    def init(self, model: Model) -> PyTree:
        """The state before the first round, of NumPy arrays."""

    def start(self, state: PyTree, client: int) -> Model | None:
        """Return the model that a client starts from, if not the global one: the same object for
        all that share it."""

    def __call__(
        self,
        state: PyTree,
        round: int,
        model: Model,
        updates: Mapping[int, Update],
        key: Any,
        refused: Collection[int] = (),
    ) -> Aggregated:
        """The next model and state.

        Args:
            state: before the round.
            round: the round's number, from 0.
            model: the global model.
            updates: of the clients that were accepted; at least one.
            key: of the round, for transforms that draw random numbers.
            refused: clients of this round that were not believed.
        """


class AggregationChain(eqx.Module):
    """Transform each, reduce, step. The default is the paper's weighted mean, to the bit."""

    each: tuple[Transform, ...] = ()
    reduce: Reducer = Mean()
    step: Step = NoStep()

    def init(self, model: Model) -> PyTree:
        """The server optimiser's state for each network."""
        optimiser = self.step.optimiser()
        if optimiser is None:
            return {}
        state = jax.device_get({n: optimiser.init(part) for n, part in model.networks().items()})
        if any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(state)):
            raise UserError(
                f"aggregation.step = {self.step.name} keeps a key in its state, which cannot be "
                "saved; take the one that `update` is given as `key`"
            )
        return state

    def start(self, state: PyTree, client: int) -> None:
        """Everybody starts from the global model."""
        return None

    def __call__(
        self,
        state: PyTree,
        round: int,
        model: Model,
        updates: Mapping[int, Update],
        key: PRNGKeyArray,
        refused: Collection[int] = (),
    ) -> Aggregated:
        if refused:
            left = replace(self, reduce=self.reduce.after_refusing(len(refused)))
            return left(state, round, model, updates, key)
        clients = sorted(updates)
        weights = np.asarray([float(updates[c].weight) for c in clients])
        parts: dict[str, Any] = {"shared": model.shared}
        state = dict(state)
        for number, (name, kind) in enumerate(PARTS.items()):
            known = getattr(model, name)
            sent = [getattr(updates[c].model, name) for c in clients]
            if not jax.tree.leaves(known):
                parts[name] = known  # all of it stays on the clients, or there is none
            elif kind is Kind.NETWORK:
                points = _points(sent)
                own = jax.random.fold_in(key, number) if self._may_draw else key
                if self.each:
                    points = self._transformed(points, _points([known])[0], clients, own)
                reduced = _like(known, self._reduced(points, weights))
                parts[name], state[name] = self._stepped(known, reduced, state.get(name), own)
            elif kind is Kind.COEFFICIENTS:
                parts[name] = _like(known, self._reduced(_points(sent), weights))
            elif kind is Kind.MOMENTS:
                parts[name] = self._merged(known, sent)
        return Aggregated(Model(**parts), {n: s for n, s in state.items() if s is not None})

    @property
    def _may_draw(self) -> bool:
        return bool(self.each) or not isinstance(self.step, NoStep)

    def _reduced(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        result = np.asarray(self.reduce(points, weights), np.float64)
        if result.shape != points.shape[1:]:
            raise UserError(
                f"aggregation.reduce = {self.reduce.name} must make one point of "
                f"{points.shape[1]} numbers, not an array of shape {result.shape}"
            )
        return result

    def _transformed(
        self,
        points: Float[np.ndarray, "k p"],
        start: Float[np.ndarray, " p"],
        clients: list[int],
        key: PRNGKeyArray,
    ) -> Float[np.ndarray, "k p"]:
        rows = []
        for client, point in zip(clients, points, strict=True):
            own = jax.random.fold_in(key, client)
            move = point - start
            for number, transform in enumerate(self.each):
                move = transform(move, jax.random.fold_in(own, number))
            rows.append(start + move)
        return np.stack(rows)

    def _stepped(
        self, known: PyTree, reduced: PyTree, state: PyTree, key: PRNGKeyArray
    ) -> tuple[PyTree, PyTree]:
        optimiser = self.step.optimiser()
        if optimiser is None:
            return reduced, None
        gradient = jax.tree.map(np.subtract, known, reduced)
        optimiser = optax.with_extra_args_support(optimiser)
        moves, state = optimiser.update(gradient, state, known, key=key)
        return jax.device_get((optax.apply_updates(known, moves), state))

    def _merged(self, known: Moments, news: list[Moments]) -> Moments:
        """Merge known moments with new ones.

        `mean` merges exactly: the result is that of one stream with everybody's data in it. Other
        reducers are chosen because a client may lie, and an exact merge would let it: they reduce
        the clients' means, mean squares and variances like parameters, and merge the one sample
        that these describe. Where clients agree that is the same.
        """
        exact = [jax.tree.map(lambda x: np.asarray(x, np.float64), n) for n in news]
        if not self.reduce.merges_moments:
            exact = [self._one_sample(exact)]
        return reduce(merge, exact, known)

    def _one_sample(self, news: list[Moments]) -> Moments:
        some = [n for n in news if n.count > 0]
        if not some:
            return news[0]
        counts = np.asarray([float(n.count) for n in some])
        means = np.stack([np.asarray(n.mean) for n in some])
        variances = np.stack([np.asarray(n.squares / n.count) for n in some])

        def reduced(rows: Float[np.ndarray, " k *f"]) -> Float[np.ndarray, "*f"]:
            return self._reduced(rows.reshape(len(rows), -1), counts).reshape(rows.shape[1:])

        mean = reduced(means)
        # A median of squares may be below the square of a median of means.
        variance = np.maximum(reduced(variances + means**2) - mean**2, reduced(variances))
        count = np.asarray(counts.sum())
        between = [np.asarray(n.products / n.count) for n in some if n.products is not None]
        products = None
        if between:
            i, j = pairs(len(mean))
            seconds = reduced(np.stack(between) + means[:, i] * means[:, j])
            # Of medians, a covariance may be more than the two deviations allow.
            most = np.sqrt(variance[i] * variance[j])
            products = np.clip(seconds - mean[i] * mean[j], -most, most) * count
        return Moments(count, mean, variance * count, products)


def _points(parts: list[PyTree]) -> Float[np.ndarray, "k p"]:
    """Each part as a vector in float64."""
    vectors = [[np.ravel(x) for x in jax.tree.leaves(part)] for part in parts]
    return np.stack([np.concatenate(v, dtype=np.float64) for v in vectors])


def _like(known: PyTree, point: Float[np.ndarray, " p"]) -> PyTree:
    """A vector in the shape and precision of what is known."""
    leaves, structure = jax.tree.flatten(known)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    return jax.tree.unflatten(
        structure,
        [
            np.asarray(part.reshape(np.shape(leaf)), np.asarray(leaf).dtype)
            for part, leaf in zip(np.split(point, ends), leaves, strict=True)
        ],
    )
