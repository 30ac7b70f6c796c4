"""No update reaches the model unchecked: not what a client sent, and not what is made of it.

A client may be broken or hostile. What it sends is compared with what is possible: the shapes that
the server asked for, how much a client can have trained, how far networks and coefficients may go.
What is possible and yet unlike what others say is found by `server.outliers`. docs/validation.md
says what that leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from fedkl.clients.records import PARTS, Kind, Metrics, Model, Trained, Update
from fedkl.io.arrays import AnyArray, to_arrays
from fedkl.learning.diagnostics import LARGEST
from fedkl.learning.statistics import Moments, pairs

COUNTED = 2**24
"""Up to here float32 counts exactly."""

ROUNDED = 1.001
"""How much larger than possible a correlation may be that float32 has added up."""

LARGEST_RETURN = 1e15
"""Beyond what an episode of any world pays: averages of such returns must not overflow."""

LONGEST = 160
"""Characters of a reason."""

Arrays = Mapping[str, AnyArray]


class Limits(NamedTuple):
    """The limits of an update."""

    max_weight: float
    """Steps that a client can have trained on in a round."""
    iterations: int
    """I, of which a client reports each."""
    max_relative_norm: float
    """The longest move of a network, in norms of the broadcast parameters (at least 1)."""
    max_statistics_factor: float
    """The distance of statistics from those of other clients, in what is usual among them."""
    max_move_factor: float
    """The largest move, message and averaged coefficient, in medians over clients."""
    max_magnitude: float
    """The largest parameter, mean, deviation or metric: with it clients must still be able to
    compute in float32, else everybody's next update might be invalid."""
    max_message_norm: float
    """The largest norm of an algorithm's message, in norms of what it shares (at least 1)."""
    coefficients: Mapping[str, tuple[float, float]]
    """The bounds of each."""
    growth: Mapping[str, float]
    """How many times as large as it was broadcast an averaged one may be after a round."""
    message: PyTree
    """A message of the right shapes."""
    logged: tuple[str, ...] = ()
    """The learner's own metrics, a number for each iteration."""
    sends_observations: bool = False
    """The message is some of the observations that the moments are of."""


def problem_with(trained: Any, model: Model, limits: Limits) -> str | None:
    """Return why a client's answer must not count, or None if it may.

    Args:
        trained: what a client sent back; anything at all, if it lies.
        model: what the client started from, as NumPy arrays.
        limits: what an update may be at the most.
    """
    expected = expected_of(model, limits)
    if _fits(expected, trained):
        problem = _excess(trained, model, limits)
    else:
        problem = _misfit("", expected, trained) or "it is not as expected"
    return problem and _readable(problem)


def problem_with_model(model: Model, max_magnitude: float) -> str | None:
    """Return why a new global model must not be taken, or None if it may: clients take float32."""
    if problem := problem_with_numbers(model):
        return problem
    for name, kind in PARTS.items():
        part = getattr(model, name)
        if kind is Kind.NETWORK and (problem := _too_large(name, part, max_magnitude)):
            return problem
    return None


def problem_with_numbers(tree: PyTree) -> str | None:
    """Return the number that would not be finite in float32, or None."""
    for name, array in to_arrays(tree).items():
        with np.errstate(over="ignore"):
            if not np.all(np.isfinite(np.asarray(array, np.float32))):
                return f"{name} would not be finite"
    return None


def expected_of(model: Model, limits: Limits) -> Trained:
    """A client's answer of the right structure, shapes and types, where it started from `model`."""
    number, each = np.zeros((), np.float32), np.zeros(limits.iterations, np.float32)
    metrics = {
        **dict.fromkeys(limits.logged, each),
        "kl_local": each,
        "distance_global": each,
        "guarded": each.astype(bool),
        "steps": each,
        "train_return": each,
        "outliers": each,
        "coefficients": dict.fromkeys(limits.coefficients, number),
        "step_scale": number,
    }
    return Trained(Update(replace(model, shared=()), number, limits.message), metrics)


def _fits(expected: PyTree, sent: Any) -> bool:
    """Return True if `_misfit` has nothing to say, in a tenth of its time."""
    if isinstance(expected, np.ndarray | np.generic):
        of_numpy = type(sent) is np.ndarray or type(sent) is expected.dtype.type
        return of_numpy and sent.shape == expected.shape and sent.dtype == expected.dtype
    if type(sent) is not type(expected):
        return False
    if sent is None:
        return True
    if type(sent) is dict and any(type(key) is not str for key in sent):
        return False
    one_level = jax.tree_util.default_registry.flatten_one_level
    try:
        (wanted, structure), (had, other) = one_level(expected), one_level(sent)
        if structure != other:
            return False
        pairs = zip(wanted, had, strict=True)
        return all(_fits(a, b) for a, b in pairs)
    except Exception:  # whatever is amiss in there: `_misfit` finds words for it
        return False


def _misfit(name: str, expected: PyTree, sent: Any) -> str | None:
    """Return where an answer has another structure, shape or type than is expected, or None.

    It descends into what is expected, and only where types are the very same: nothing that a client
    made up is called or followed, however deep it is, and if it contains itself.
    """
    if isinstance(expected, np.ndarray | np.generic):
        if type(sent) is not np.ndarray and type(sent) is not expected.dtype.type:
            return f"{name} is {'missing' if sent is None else 'not an array'}"
        if sent.shape == expected.shape and sent.dtype == expected.dtype:
            return None
        return (
            f"{name} is {sent.dtype} of shape {sent.shape}, "
            f"not {expected.dtype} of shape {expected.shape}"
        )
    what = name or "it"
    if type(sent) is not type(expected):
        return f"{what} is {'missing' if sent is None else 'of another type than expected'}"
    if type(sent) is dict and any(type(key) is not str for key in sent):
        return f"{what} has a key that is not a string"
    try:
        (wanted, structure), (had, other) = _opened(expected), _opened(sent)
        alike = structure == other
    except Exception:  # whatever is amiss in there, such as keys of a mapping that have no order
        return f"{what} cannot be read"
    for key in sorted(wanted.keys() | had.keys()):
        inside = f"{name}.{key}".removeprefix(".").removeprefix("update.").removeprefix("model.")
        if key not in had:
            return f"{inside} is missing"
        if key not in wanted:
            return f"{inside} is not expected"
        if problem := _misfit(inside, wanted[key], had[key]):
            return problem
    return None if alike else f"{what} is of another structure than expected"


def _opened(node: PyTree) -> tuple[dict[str, Any], Any]:
    """Return the children of a tree's node by name, and the node's own structure."""
    itself = iter([False])
    inside, structure = jax.tree_util.tree_flatten_with_path(
        node, is_leaf=lambda _: next(itself, True)
    )
    names = [jax.tree_util.keystr(path, simple=True) for path, _ in inside]
    return dict(zip(names, [child for _, child in inside], strict=True)), structure


def _excess(trained: Trained, model: Model, limits: Limits) -> str | None:
    """Return the number of a well-shaped answer that is more than it may be."""
    update = trained.update
    if not _all_finite(update):
        culprit = next(n for n, array in to_arrays(update).items() if not _all_finite(array))
        return f"{culprit.removeprefix('model.')} is not finite"
    weight = float(update.weight)
    if not (1 <= weight <= _counted(limits.max_weight) and weight.is_integer()):
        most = f"{limits.max_weight:.9g}"
        return f"weight is {weight:.9g}, not a whole number of steps from 1 to {most}"
    for name, kind in PARTS.items():
        known, new = getattr(model, name), getattr(update.model, name)
        problem = None
        if kind is Kind.NETWORK:
            problem = _too_far(name, known, new, limits)
            problem = problem or _too_large(name, new, limits.max_magnitude)
        elif kind is Kind.MOMENTS and known is not None:
            problem = _unbelievable(name, new, weight, limits)
        elif kind is Kind.COEFFICIENTS:
            problem = _out_of_bounds(name, new, limits.coefficients)
            problem = problem or _out_of_reach(name, known, new, limits)
        if problem:
            return problem
    allowed = limits.max_message_norm * max(1.0, norm(jax.tree.leaves(model.shared)))
    if (length := norm(jax.tree.leaves(update.message))) > allowed:
        return f"message has norm {length:.3g}, more than {allowed:.3g}"
    return (
        _too_large("message", update.message, limits.max_magnitude)
        or _never_observed(update, limits)
        or _misreported(trained, limits)
    )


def _too_far(name: str, known: PyTree, new: PyTree, limits: Limits) -> str | None:
    moved, size = move(known, new), max(1.0, norm(jax.tree.leaves(known)))
    allowed = limits.max_relative_norm * size
    return f"{name} moved by {moved:.3g}, more than {allowed:.3g}" if moved > allowed else None


def _too_large(name: str, tree: PyTree, most: float) -> str | None:
    """Return the parameter that is too large: steps that each are short enough lead anywhere in the
    end."""
    if all(np.all(np.abs(array) <= most) for array in jax.tree.leaves(tree)):
        return None
    return f"{name} holds a number beyond {most:g}"


def _unbelievable(name: str, new: Moments, weight: float, limits: Limits) -> str | None:
    """Return the fault in the moments of a client's new data."""
    count = float(new.count)
    if not (0 <= count <= _counted(weight) and count.is_integer()):
        return f"{name}.count is {count:.9g}, not a whole number from 0 to the weight, {weight:.9g}"
    if np.any(new.squares < 0):
        return f"{name}.squares is negative"
    if problem := _impossible_products(name, new):
        return problem
    if count == 0:
        something = np.any(new.mean != 0) or np.any(new.squares != 0)
        return f"{name} are moments of nothing that are not 0" if something else None
    mean, deviation = mean_and_deviation(new)
    most = limits.max_magnitude
    for what, size in ("mean", np.abs(mean)), ("deviation", deviation):
        if np.any(size > most):
            return f"{name} have a {what} of {np.max(size):.3g}, beyond {most:g}"
    return None


def _impossible_products(name: str, new: Moments) -> str | None:
    """Return the fault in the products of features: no data have a covariance that is not positive
    semidefinite (but for what float32 rounds)."""
    if new.products is None:
        return None
    # The square of what hardly varies may be 0 in float32 where its product with another is not.
    lost = float(new.count) * np.finfo(np.float32).tiny
    squares = np.asarray(new.squares, np.float64) + lost
    i, j = pairs(len(squares))
    most = np.sqrt(squares[i] * squares[j])
    if np.any(np.abs(new.products) > ROUNDED * most):
        return f"{name}.products are larger than the squares allow"
    whole = np.diag(np.ones(len(squares)))
    whole[i, j] = whole[j, i] = new.products / np.where(most > 0, most, 1.0)
    if np.min(np.linalg.eigvalsh(whole)) < (1 - ROUNDED) * len(squares):
        return f"{name}.products are of no possible data"
    return None


def _never_observed(update: Update, limits: Limits) -> str | None:
    """Return True if observations are sent that the moments cannot be of: no deviation from the
    mean is larger than the root of the sum of all squares."""
    seen = update.model.observations
    if not limits.sends_observations or seen is None or seen.count == 0:
        return None
    mean, reach = np.asarray(seen.mean, np.float64), np.sqrt(np.asarray(seen.squares, np.float64))
    away = np.abs(np.asarray(update.message, np.float64) - mean)
    if np.any(away > ROUNDED * reach + (ROUNDED - 1) * np.maximum(1.0, np.abs(mean))):
        return "message holds observations that observations.squares rule out"
    return None


def mean_and_deviation(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Of a sample that is not empty, for each feature."""
    variance = np.asarray(moments.squares, np.float64) / float(moments.count)
    return np.asarray(moments.mean, np.float64), np.asarray(np.sqrt(variance))


def _out_of_bounds(name: str, new: Arrays, bounds: Mapping[str, tuple[float, float]]) -> str | None:
    for coefficient, value in new.items():
        low, high = bounds[coefficient]
        if not np.float32(low) <= value <= np.float32(high):
            return f"{name}.{coefficient} is {float(value):.6g}, not from {low:.6g} to {high:.6g}"
    return None


def _out_of_reach(name: str, known: Arrays, new: Arrays, limits: Limits) -> str | None:
    """Return the coefficient that has grown by more than its rule allows in a round."""
    for coefficient, value in new.items():
        # The rule also pulls one that started below its bounds into them.
        low, times = limits.coefficients[coefficient][0], limits.growth[coefficient]
        most = max(float(known[coefficient]) * times, low)
        if value > np.float32(most):
            return (
                f"{name}.{coefficient} is {float(value):.6g}, over {most:.6g}, which a round allows"
            )
    return None


def _misreported(trained: Trained, limits: Limits) -> str | None:
    """Return the fault in the metrics, which go to the log and to selectors.

    What an iteration that the guard rolled back measured may be anything, and is not read.
    """
    update, metrics = trained
    guarded, steps = metrics["guarded"], metrics["steps"].astype(np.float64)
    for name in ("kl_local", "distance_global"):
        if not np.all(guarded | (np.abs(metrics[name]) <= limits.max_magnitude)):
            return f"metrics.{name} is not finite, or beyond {limits.max_magnitude:g}"
    for name in limits.logged:  # NaN: there was no such number
        if np.any(np.abs(metrics[name]) > LARGEST):
            return f"metrics.{name} is beyond {LARGEST:g}"
    if np.any(np.abs(metrics["train_return"][-1:]) > LARGEST_RETURN):  # NaN: no episode has ended
        return f"metrics.train_return is beyond {LARGEST_RETURN:g}"
    most = limits.max_weight / limits.iterations
    if not np.all((steps >= 0) & (steps <= _counted(most)) & (steps == np.round(steps))):
        return f"metrics.steps are not whole numbers from 0 to {most:.9g}"
    outliers = metrics["outliers"].astype(np.float64)
    if not np.all((outliers >= 0) & (outliers <= steps) & (outliers == np.round(outliers))):
        return "metrics.outliers are not whole numbers from 0 to metrics.steps"
    total, weight = float(steps.sum()), float(update.weight)
    if not total <= _counted(weight) or not weight <= _counted(total):
        return f"metrics.steps add up to {total:.9g}, not to the weight, {weight:.9g}"
    if not 0 <= metrics["step_scale"] <= 1:
        return f"metrics.step_scale is {float(metrics['step_scale']):.6g}, not from 0 to 1"
    reported: Metrics = metrics["coefficients"]
    for name, value in update.model.coefficients.items():
        if reported[name] != value:
            return f"metrics.coefficients.{name} is not the one in the update"
    return _out_of_bounds("metrics.coefficients", reported, limits.coefficients)


def _readable(reason: str) -> str:
    """One short line; names in a reason may be a client's inventions."""
    short = reason if len(reason) <= LONGEST else reason[: LONGEST - 3] + "..."
    return "".join(c if c.isprintable() else "?" for c in short)


def _counted(number: float) -> float:
    """Return the sum that float32 may have made of so many samples, added one after the other."""
    return number if number <= COUNTED else number * (1 + 1e-5)


def _all_finite(tree: PyTree) -> bool:
    return all(np.isfinite(array).all() for array in jax.tree.leaves(tree))


def move(known: PyTree, new: PyTree) -> float:
    """Return the norm of a network's move."""
    before, after = jax.tree.leaves(known), jax.tree.leaves(new)
    return norm([b.astype(np.float64) - a for a, b in zip(before, after, strict=True)])


def norm(arrays: Sequence[AnyArray]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(a, dtype=np.float64)) for a in arrays)))
