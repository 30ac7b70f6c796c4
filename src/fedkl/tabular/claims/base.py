"""A claim, and the findings of its check on a sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedkl.tabular.best_response import best_response
from fedkl.tabular.bounds import Bound, averaged
from fedkl.tabular.objectives import Objective
from fedkl.tabular.sampling import Sample
from fedkl.tabular.validation import FloatArray

BoolArray = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)
Verdict = Literal["holds", "holds but vacuous", "false"]

# From here on the paper's constants leave Algorithm 1 no step to make (see docs/theory.md).
VACUOUS_FROM = 2 - 3**0.5


@dataclass(frozen=True)
class Finding:
    """The findings of a check; all arrays begin with the axis of families.

    Attributes:
        violated: where the claim does not hold, [F, ...].
        applies: where it says anything at all, [F, ...].
        looseness: penalty over gap where the claim is a bound, [F, ...].
        promises: for claims whose use is to promise an improvement: whether the best policy for
            the bound is promised any, where gamma >= 2 - sqrt(3). [F, ...]
        asked: where that was asked, [F, ...].
    """

    violated: BoolArray
    applies: BoolArray
    looseness: FloatArray | None = None
    promises: BoolArray | None = None
    asked: BoolArray | None = None


@dataclass(frozen=True)
class Claim:
    """A statement about every family and policy.

    Attributes:
        name: to refer to it.
        source: where it stands: a place in the paper, or "ours".
        statement: in a line.
        documented: the verdict that docs/theory.md gives it.
        check: finds where it holds on a sample.
    """

    name: str
    source: str
    statement: str
    documented: Verdict
    check: Callable[[Sample], Finding]


def inequality(bound: Bound, sample: Sample) -> Finding:
    """The finding for left >= right, up to rounding."""
    rounding = aligned(sample.rounding, bound.left)
    # Where the gap is no larger than rounding, its ratio to the penalty means nothing.
    measurable = bound.gap > 1e3 * rounding
    return Finding(
        violated=bound.slack < -rounding,
        applies=np.ones(bound.left.shape, dtype=bool),
        looseness=np.where(measurable, bound.looseness, np.inf),
    )


def identity(left: FloatArray, right: FloatArray, sample: Sample) -> Finding:
    """The finding for left == right, up to rounding."""
    off = abs(left - right) > aligned(sample.rounding, left)
    return Finding(violated=off, applies=np.ones(off.shape, dtype=bool))


def implication(condition: BoolArray, conclusion: BoolArray) -> Finding:
    """The finding for: where the condition holds, the conclusion does."""
    return Finding(violated=condition & ~conclusion, applies=condition)


def bound_and_promise(bound: Bound, best: FloatArray, sample: Sample) -> Finding:
    """The finding for a bound on eta, and whether its best policy is promised any improvement.

    Args:
        bound: as for `inequality`.
        best: the largest improvement that it promises, [F, D, ...].
        sample: the cases.
    """
    finding = inequality(bound, sample)
    asked = np.broadcast_to(aligned(sample.at.family.gamma >= VACUOUS_FROM, best), best.shape)
    promises = asked & (best > aligned(sample.rounding, best))
    return Finding(finding.violated, finding.applies, finding.looseness, promises, asked)


def promised(objective: Objective, bound: Bound, sample: Sample) -> Finding:
    """`bound_and_promise` for what the agents' best responses to an objective are promised."""
    return bound_and_promise(bound, objective(best_response(objective)), sample)


def promised_average(objective: Objective, bound: Bound, sample: Sample) -> Finding:
    """The same for the server's average of these responses, by the sampled weights."""
    best = (sample.weights * objective(best_response(objective))).sum(axis=-1)
    return bound_and_promise(averaged(sample.step, sample.weights, bound), best, sample)


def aligned(per_case: NDArray[Scalar], like: NDArray[Any]) -> NDArray[Scalar]:
    """An array [F, D] with trailing axes, to broadcast against one of shape [F, D, ...]."""
    return per_case.reshape(per_case.shape + (1,) * (like.ndim - per_case.ndim))
