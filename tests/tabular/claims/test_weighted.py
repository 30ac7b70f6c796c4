"""The claims about weighted divergence: what they ask, and that both terms are needed."""

import numpy as np

from fedkl.tabular import Exact, Step, bounds, counterexamples
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.claims.weighted import _alone
from fedkl.tabular.sampling import samples
from fedkl.tabular.verification import verify

BY_NAME = {claim.name: claim for claim in CLAIMS}


def test_own_states_and_weighted_ones_are_no_less_than_the_federations():
    """rho_bar <= rho_n + [rho_bar - rho_n]_+, and where agents are alike they are equal."""
    for sample in samples(range(10)):
        at, tv = sample.at, sample.step.tv
        anchored = (at.federation_visitation[..., None, :] * tv).sum(axis=-1)
        both = sample.step.tv_expected + bounds.weighted_distance(sample.step)
        assert (both >= anchored * (1 - 1e-12)).all()


def test_alone_it_is_asked_about_agents_that_visit_the_same_states():
    (result,) = verify(20, claims=[BY_NAME["weighted-alone"]])
    assert result.checks > 1000
    assert result.violations > result.checks / 4


def test_alone_it_does_no_harm_on_the_smallest_example_unless_somebody_moves():
    (sample, *_) = samples([0], family=counterexamples.opposed())
    finding = _alone(sample)
    assert (finding.applies == (sample.step.tv_max > 0)).all()


def test_where_an_agent_never_is_only_the_weighted_part_sees_what_it_spoils():
    """Agent 2 of `own_states` spoils state 1, rho_bar = 3/4: nothing in its own states, 3/8 in the
    weighted, which is what eta loses."""
    family = counterexamples.own_states()
    at = Exact(family, family.uniform_policy())
    local = at.policy.copy()
    local[0] = [0.0, 1.0]
    step = Step(at, local)
    assert step.policy_advantage[1] == step.tv_expected[1] == 0
    np.testing.assert_allclose(bounds.weighted_distance(step)[1], 3 / 8)
    np.testing.assert_allclose(step.global_return[1] - at.expected_return, -3 / 8)
    assert (bounds.weighted(step).slack >= 0).all()
