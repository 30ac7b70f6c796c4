"""Claims about divergence that is weighted by how much more the federation is somewhere."""

from __future__ import annotations

from fedkl.tabular import bounds, objectives
from fedkl.tabular.claims.base import (
    Claim,
    Finding,
    aligned,
    inequality,
    promised,
    promised_average,
)
from fedkl.tabular.counterexamples import same_visits
from fedkl.tabular.distances import span
from fedkl.tabular.exact import Exact
from fedkl.tabular.sampling import Sample
from fedkl.tabular.step import Step


def _weighted(sample: Sample) -> Finding:
    return promised(objectives.weighted(sample.at), bounds.weighted(sample.step), sample)


def _average(sample: Sample) -> Finding:
    return promised_average(objectives.weighted(sample.at), bounds.weighted(sample.step), sample)


def _constant(sample: Sample) -> Finding:
    at = sample.at
    largest = at.advantage_span.max(axis=-1)  # sigma_k
    most = largest.max(axis=-1, keepdims=True) + largest
    # In each state, where nothing has to be divided by its visits.
    visits = at.visitation + at.excess_visitation
    excess = span(at.weighted_heterogeneity) - most[..., None] * visits
    return Finding((excess > aligned(sample.rounding, excess)).any(axis=-1), most > 0)


def _alone(sample: Sample) -> Finding:
    at = Exact(same_visits(sample.at.family), sample.at.policy)
    step = Step(at, sample.step.local)
    # Here c E_bar[w TV] is 0 for every c.
    applies = (bounds.weighted_distance(step) <= at.rounding[..., None]) & (step.tv_max > 0)
    promised = at.expected_return[..., None] + step.policy_advantage
    return Finding(step.global_return < promised - at.rounding[..., None], applies)


CLAIMS = [
    Claim(
        "weighted-delta",
        "ours",
        "eta(pi_n) >= eta + AA_n - (alpha_n + b) E[TV] - b E_bar[w TV], "
        "w = max(0, 1 - rho_n / rho_bar)",
        "holds",
        lambda sample: inequality(bounds.weighted_delta(sample.step), sample),
    ),
    Claim(
        "weighted",
        "ours",
        "eta(pi_n) >= eta + AA_n - g_n (E[TV] + E_bar[w TV]) - C TV_max^2, "
        "g_n = max_s span_a (D_n B_n)(s) / max(rho_n, rho_bar)(s)",
        "holds",
        _weighted,
    ),
    Claim(
        "weighted-average",
        "ours",
        "the same for the server's average, any weights",
        "holds",
        _average,
    ),
    Claim(
        "weighted-constant",
        "ours",
        "g_n <= max_k sigma_k + sigma_n",
        "holds",
        _constant,
    ),
    Claim(
        "weighted-alone",
        "`weighted` without E[TV]",
        "with some c, eta(pi_n) >= eta + AA_n - c E_bar[w TV] also for agents that visit alike",
        "false",
        _alone,
    ),
]
