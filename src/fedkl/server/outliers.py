"""Compare a round's answers with each other and with those of the rounds before.

Medians over clients and rounds say what is usual, so that a client that lied decides neither about
what the others may say, nor about what itself may say in the next round. An answer is an outlier if
it is far from what is usual in this round *and* from what was usual before: where most clients see
something new, the world or the model has changed, and no client is to blame. docs/validation.md
says how far is far, and what honest clients were measured to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from fedkl.clients.records import PARTS, Kind, Model, Trained
from fedkl.io.arrays import AnyArray
from fedkl.learning.statistics import Moments, pairs
from fedkl.server.validation import Limits, mean_and_deviation, move, norm

REMEMBERED = 5
"""Rounds before this one that an answer is compared with."""
MAJORITY = 3
"""Answers from which on a round has a majority: of two, neither outvotes the other."""
CORRELATED = 0.6
"""How far correlations may be from the usual ones, as the root of the mean square over pairs."""


class Traits(NamedTuple):
    """The traits of an answer that are compared."""

    sizes: dict[str, float]
    """Of what does harm if it is large: moves of networks, in norms of where they started (at least
    1), and the growth of coefficients over what was broadcast (likewise)."""
    means: dict[str, Float[np.ndarray, "*f"]]
    """Of the new data of each part of the model that is moments, if there are any."""
    deviations: dict[str, Float[np.ndarray, "*f"]]
    correlations: dict[str, Float[np.ndarray, " p"]]


class Usual(NamedTuple):
    """The usual traits among some answers, in float64; 0 where nothing is known."""

    answers: Float[np.ndarray, "*r"]
    """The number of them."""
    sizes: dict[str, Float[np.ndarray, "*r"]]
    """Medians."""
    centres: dict[str, Float[np.ndarray, "*rf"]]
    """Medians of the clients' means."""
    scales: dict[str, Float[np.ndarray, "*rf"]]
    """How far from the centre the data of two thirds of the clients are, plus the centre's size."""
    correlations: dict[str, Float[np.ndarray, "*rp"]]
    """Medians."""


class Distance(NamedTuple):
    """The distance of an answer from what is usual, by the name of each trait."""

    sizes: dict[str, float]
    """In medians."""
    means: dict[str, float]
    """In scales, of the farthest feature."""
    deviations: dict[str, float]
    correlations: dict[str, float]
    """The root of the mean square over pairs of features."""


def no_history(model: Model) -> Usual:
    """Return the empty history: nothing is known yet, of any trait that the model has."""
    moments = {n: getattr(model, n) for n, kind in PARTS.items() if kind is Kind.MOMENTS}
    moments = {name: known for name, known in moments.items() if known is not None}
    networks = [name for name, kind in PARTS.items() if kind is Kind.NETWORK]
    coefficients = [f"coefficients.{name}" for name in model.coefficients]

    def nothing(*shape: int) -> np.ndarray:
        return np.zeros((REMEMBERED, *shape))

    return Usual(
        answers=nothing(),
        sizes={name: nothing() for name in [*networks, *coefficients]},
        centres={name: nothing(*np.shape(m.mean)) for name, m in moments.items()},
        scales={name: nothing(*np.shape(m.mean)) for name, m in moments.items()},
        correlations={
            name: nothing(*np.shape(m.products))
            for name, m in moments.items()
            if m.products is not None
        },
    )


def traits_of(trained: Trained, start: Model) -> Traits:
    """Return the traits of a client's answer, given what it started from."""
    traits = Traits({}, {}, {}, {})
    for name, kind in PARTS.items():
        known, new = getattr(start, name), getattr(trained.update.model, name)
        if kind is Kind.NETWORK:
            traits.sizes[name] = move(known, new) / max(1.0, norm(jax.tree.leaves(known)))
        elif kind is Kind.COEFFICIENTS:
            # A client whose iterations the guard rolled back keeps what was broadcast.
            # Of one that was 0 nothing is known but its bounds.
            growth = {c: float(new[c]) / float(x) if x else 1.0 for c, x in known.items()}
            traits.sizes.update({f"{name}.{c}": max(1.0, times) for c, times in growth.items()})
        elif kind is Kind.MOMENTS and known is not None and new.count > 0:
            traits.means[name], traits.deviations[name] = mean_and_deviation(new)
            if new.products is not None:
                traits.correlations[name] = _correlation(new)
    return traits


def usual_among(answers: Sequence[Traits], history: Usual) -> Usual:
    """Return the usual traits of a round.

    Args:
        answers: at least one.
        history: for names and shapes.
    """
    nothing: Usual = jax.tree.map(lambda x: np.zeros(x.shape[1:]), history)
    centres, scales = dict(nothing.centres), dict(nothing.scales)
    correlations = dict(nothing.correlations)
    for name in centres:
        if some := [a for a in answers if name in a.means]:
            means = np.stack([a.means[name] for a in some])
            centres[name] = centre = np.asarray(np.median(means, axis=0))
            reach = np.stack([a.deviations[name] for a in some]) + np.abs(means - centre)
            scales[name] = _scale(centre, reach)
            if name in correlations:
                rows = [a.correlations[name] for a in some]
                correlations[name] = np.asarray(np.median(rows, axis=0))
    medians = {name: np.median([a.sizes[name] for a in answers]) for name in nothing.sizes}
    sizes = {name: np.asarray(median) for name, median in medians.items()}
    return Usual(np.asarray(float(len(answers))), sizes, centres, scales, correlations)


def usual_before(history: Usual) -> Usual | None:
    """Return the usual traits of the last rounds; None before the first."""
    past = history.answers > 0
    if not past.any():
        return None
    centres, scales = {}, {}
    for name, each in history.scales.items():
        # A round in which nothing of it varied says nothing.
        seen = past & np.any(each > 0, axis=tuple(range(1, each.ndim)))
        rounds = history.centres[name][seen if seen.any() else past]
        centres[name] = centre = np.asarray(np.median(rounds, axis=0))
        scales[name] = _most(each[seen if seen.any() else past] + np.abs(rounds - centre))
    return Usual(
        answers=np.asarray(history.answers.sum()),
        sizes={name: np.asarray(np.median(x[past])) for name, x in history.sizes.items()},
        centres=centres,
        scales=scales,
        correlations={
            name: np.asarray(np.median(x[past], axis=0)) for name, x in history.correlations.items()
        },
    )


def distance(traits: Traits, known: Sequence[Usual]) -> Distance:
    """Return the distance of an answer from the nearest usual traits; 0 where nothing is known.

    Args:
        traits: of the answer.
        known: what is usual in its round, and what was before.
    """

    return Distance(
        sizes={
            name: _nearest([(size, usual.sizes[name]) for usual in known])
            for name, size in traits.sizes.items()
        },
        means={
            name: _nearest(
                [(mean - u.centres[name], u.scales[name]) for u in known if name in u.scales]
            )
            for name, mean in traits.means.items()
        },
        deviations={
            name: _nearest([(deviation, u.scales[name]) for u in known if name in u.scales])
            for name, deviation in traits.deviations.items()
        },
        correlations={
            name: min(_apart(its, u.correlations[name]) for u in usual)
            for name, its in traits.correlations.items()
            if (usual := [u for u in known if name in u.correlations and u.scales[name].any()])
        },
    )


def judge(
    answers: Mapping[int, Trained], starts: Mapping[int, Model], history: Usual, limits: Limits
) -> tuple[dict[int, str], Usual]:
    """Find the outliers among the answers of a round, each of which is possible by itself.

    A round continues as if outliers had not answered. But if all answers are outliers (of too few
    to outvote the past), they are remembered: they are believed if the next rounds say the same.

    Args:
        answers: by client.
        starts: what each client started from.
        history: what was usual before.
        limits: what an update may be at the most.

    Returns:
        Why an answer must not count, by client, and the history with this round.
    """
    if not answers:
        return {}, history
    traits = {c: traits_of(answers[c], starts[c]) for c in sorted(answers)}
    now, before = usual_among([*traits.values()], history), usual_before(history)
    known = [now] if len(traits) >= MAJORITY else []
    known += [before] if before is not None else []
    problems = {
        c: _problem(distance(its, [*known, _inside(its, starts[c])]), limits)
        for c, its in traits.items()
    }
    outliers = {client: problem for client, problem in problems.items() if problem}
    remembered = [its for c, its in traits.items() if c not in outliers] or [*traits.values()]
    new = usual_among(remembered, history)
    return outliers, jax.tree.map(lambda x, past: np.stack([x, *past[:-1]]), new, history)


def _inside(traits: Traits, start: Model) -> Usual:
    """Return the model's own statistics of those features whose new data lie within them.

    Data whose mean square distance from the model's mean is at most the model's variance cannot
    widen it, however much less the others see now: near an optimum all rewards are nearly the same,
    and those of a client that explores a little are many times as wide.
    """
    centres, scales = {}, {}
    for name, mean in traits.means.items():
        if getattr(start, name).count == 0:
            continue
        centre, deviation = mean_and_deviation(getattr(start, name))
        spread = np.square(traits.deviations[name]) + np.square(mean - centre)
        centres[name] = centre
        scales[name] = np.where(spread <= np.square(deviation), deviation, 0.0)
    sizes = {name: np.zeros(()) for name in traits.sizes}
    return Usual(np.zeros(()), sizes, centres, scales, correlations={})


def unconfirmed(
    answers: Mapping[int, Trained], starts: Mapping[int, Model], history: Usual, limits: Limits
) -> dict[int, str]:
    """Find the clients whose statistics wait, because the first ones are not believed of one alone.

    Of two clients neither outvotes the other, and before the first round nothing is usual. But what
    the one calls usual may be far from all that the other has seen: then the one that sees further
    may be broken, and everybody would see the less for it. What both trained counts all the same.

    Returns:
        Why the statistics of an answer wait, by client.
    """
    if len(answers) != MAJORITY - 1 or usual_before(history) is not None:
        return {}
    traits = {c: traits_of(answers[c], starts[c]) for c in sorted(answers)}
    found = {}
    for client, its in traits.items():
        other = usual_among([t for c, t in traits.items() if c != client], history)
        if problem := _problem(distance(its._replace(sizes={}), [other]), limits):
            found[client] = problem
    return found


def without_statistics(trained: Trained) -> Trained:
    """Return an answer that says nothing of the data that it is of."""
    parts = [name for name, kind in PARTS.items() if kind is Kind.MOMENTS]
    model = trained.update.model
    blank = {name: jax.tree.map(np.zeros_like, getattr(model, name)) for name in parts}
    return trained._replace(update=replace(trained.update, model=replace(model, **blank)))


def _problem(far: Distance, limits: Limits) -> str | None:
    """Return the trait that is too far from what is usual."""
    for name, times in far.sizes.items():
        moved = PARTS.get(name) is Kind.NETWORK
        most = limits.max_move_factor if moved else limits.max_statistics_factor
        if times > most:
            what = f"the {'move' if moved else 'growth'} of {name}"
            return f"{what} is {times:.3g} times the median over clients, more than {most:.3g}"
    most = limits.max_statistics_factor
    for name, times in far.means.items():
        if times > most:
            return f"{name}.mean is {times:.3g} times too far from other clients', over {most:.3g}"
    for name, times in far.deviations.items():
        if times > most:
            return f"{name} deviate {times:.3g} times as much as other clients', over {most:.3g}"
    for name, apart in far.correlations.items():
        if apart > CORRELATED and np.isfinite(most):
            return (
                f"{name}.products are unlike other clients': {apart:.3g} apart, over {CORRELATED}"
            )
    return None


def _correlation(moments: Moments) -> Float[np.ndarray, " p"]:
    """Of each pair of features; 0 where one does not vary."""
    squares = np.asarray(moments.squares, np.float64)
    i, j = pairs(len(squares))
    most = np.sqrt(squares[i] * squares[j])
    assert moments.products is not None
    return np.where(most > 0, moments.products / np.where(most > 0, most, 1.0), 0.0)


def _scale(centre: Float[np.ndarray, "*f"], reach: Float[np.ndarray, " k *f"]) -> np.ndarray:
    """Return the usual distance of data from the centre, plus its size.

    0 for what was the same in all data: it may be anything in another client's world, or once the
    policy finds its first reward, so its scale is not known.
    """
    most = _most(reach)
    constant = most <= 1e-4 * np.maximum(1.0, np.abs(centre))
    return np.where(constant, 0.0, most + np.abs(centre))


def _most(reach: Float[np.ndarray, " k *f"]) -> Float[np.ndarray, "*f"]:
    """As far as all but the farthest third reach: kinds of client that are more are no outliers."""
    k = len(reach)
    return np.asarray(np.sort(reach, axis=0)[k - 1 - k // 3])


def _nearest(known: Sequence[tuple[AnyArray | float, AnyArray]]) -> float:
    """Return the distance of the farthest feature from 0, in the scale that it is nearest by; 0 if
    there is none. A scale of 0 is not known."""
    ratios = [np.abs(away) / np.where(scale > 0, scale, np.nan) for away, scale in known]
    nearest = np.asarray(reduce(np.fmin, ratios, np.asarray(np.nan)))
    return float(np.max(np.nan_to_num(nearest, nan=0.0), initial=0.0))


def _apart(a: Float[np.ndarray, " p"], b: Float[np.ndarray, " p"]) -> float:
    return float(np.sqrt(np.mean(np.square(a - b)))) if len(a) else 0.0
