"""Claims of the paper's preliminaries: one agent, two policies."""

from __future__ import annotations

import numpy as np

from fedkl.tabular import bounds
from fedkl.tabular.claims.base import Claim, Finding, identity, inequality
from fedkl.tabular.distances import total_variation
from fedkl.tabular.exact import Exact
from fedkl.tabular.sampling import Sample
from fedkl.tabular.step import Step


def _performance_difference(sample: Sample) -> Finding:
    step = sample.step
    own = Exact(sample.at.family.alone(), step.local)
    under_new = (own.visitation[..., 0, :] * (step.local * sample.at.advantage).sum(-1)).sum(-1)
    return identity(step.own_return - sample.at.agent_returns, under_new, sample)


def _trace(sample: Sample) -> Finding:
    at = sample.at
    D = at.visitation[..., None] * np.eye(at.family.states)
    product = D @ at.advantage @ sample.step.local.swapaxes(-1, -2)
    traces = np.trace(product, axis1=-2, axis2=-1)
    return identity(traces, sample.step.policy_advantage, sample)


def _linearity(sample: Sample) -> Finding:
    at, step, share = sample.at, sample.step, sample.weights
    other = Step(at, np.roll(step.local, 1, axis=-3))
    mixed = share[..., None, None] * step.local + (1 - share[..., None, None]) * other.local
    of_mixture, first, second = (
        np.stack([moved.policy_advantage, at.agent_returns + moved.policy_advantage], axis=-1)
        for moved in (Step(at, mixed), step, other)
    )
    return identity(of_mixture, share[..., None] * (first - second) + second, sample)


def _tv_of_average(sample: Sample) -> Finding:
    step = sample.step
    left = total_variation(sample.at.policy, step.averaged(sample.weights))
    right = (sample.weights[..., None] * step.tv).sum(axis=-2)
    violated = left > right + 1e-14
    return Finding(violated, np.ones(violated.shape, dtype=bool))


CLAIMS = [
    Claim(
        "performance-difference",
        "eq. 7",
        "eta_n(pi') - eta_n(pi) = sum_s rho'(s) sum_a pi'(a|s) A_n(s,a)",
        "holds",
        _performance_difference,
    ),
    Claim(
        "trace",
        "eq. 16",
        "the policy advantage is Tr(D_n A_n Pi'^T)",
        "holds",
        _trace,
    ),
    Claim(
        "trpo",
        "eq. 12",
        "eta_n rises by at least AA_n - c KL_max, c = 4 eps gamma/(1-gamma)^2",
        "holds",
        lambda sample: inequality(bounds.trpo(sample.step), sample),
    ),
    Claim(
        "cpo-printed",
        "eq. 13",
        "eta_n rises by at least AA_n - c_CPO E[TV], c_CPO with 1/(1-gamma)^2",
        "holds",
        lambda sample: inequality(bounds.cpo_printed(sample.step), sample),
    ),
    Claim(
        "cpo-corrected",
        "ours",
        "eta_n rises by at least AA_n - c E[TV], c with 1/(1-gamma)",
        "holds",
        lambda sample: inequality(bounds.cpo_corrected(sample.step), sample),
    ),
    Claim(
        "linearity",
        "Lemma 1",
        "AA_n and eta_n + AA_n of a mixture of two policies are the mixtures of theirs",
        "holds",
        _linearity,
    ),
    Claim(
        "tv-of-average",
        "Lemma 2",
        "averaging policies averages their TV to pi, or less",
        "holds",
        _tv_of_average,
    ),
]
