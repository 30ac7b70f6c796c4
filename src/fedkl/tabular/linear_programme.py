"""The argmax of Algorithm 1 as a linear programme: the reference for the closed form."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from fedkl.tabular.objectives import Objective
from fedkl.tabular.validation import FloatArray


def best_response(objective: Objective) -> FloatArray:
    """A policy that maximises one objective without a quadratic term, [S, A], by HiGHS.

    Variables: the probability added to and removed from each action, and the largest total
    variation z. In each state as much is added as removed, and at most z.

    Raises:
        ValueError: for a batch, or for an objective with a quadratic term.
    """
    if objective.gain.ndim != 2 or objective.quadratic != 0:
        raise ValueError("a linear programme solves one objective, without a quadratic term")
    S, A = objective.gain.shape
    gain = objective.gain.ravel()
    cost = np.concatenate([-gain, gain + np.repeat(objective.price, A), [objective.linear]])
    per_state = sparse.kron(sparse.eye(S), np.ones((1, A)), format="csr")
    balance = sparse.hstack([per_state, -per_state, sparse.csr_matrix((S, 1))])
    limit = sparse.hstack([sparse.csr_matrix((S, S * A)), per_state, -np.ones((S, 1))])
    upper = np.concatenate([np.ones(S * A), objective.policy.ravel(), [1.0]])
    result = linprog(
        cost,
        A_eq=balance.tocsr(),
        b_eq=np.zeros(S),
        A_ub=limit.tocsr(),
        b_ub=np.zeros(S),
        bounds=np.stack([np.zeros_like(upper), upper], axis=1),
        method="highs",
    )
    if not result.success:
        raise RuntimeError(f"HiGHS: {result.message}")
    added, removed = result.x[: S * A], result.x[S * A : -1]
    return objective.policy + (added - removed).reshape(S, A)
