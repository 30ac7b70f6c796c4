"""The claims about continuity can be refuted: with smaller constants they are."""

from dataclasses import replace

import pytest

from fedkl.tabular import continuity, counterexamples
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.claims.continuity import _changes_at_most, _fixed
from fedkl.tabular.verification import verify

BY_NAME = {claim.name: claim for claim in CLAIMS}


@pytest.mark.parametrize(
    ("name", "quantity", "share"),
    [
        ("visitation-continuous", continuity.visitation, 0.9),
        ("action-value-lipschitz", continuity.action_value, 0.9),
        ("corollary-3", continuity.value, 0.9),
        ("corollary-3", continuity.advantage, 0.9),
        ("corollary-3", continuity.agent_returns, 0.9),
        ("policy-advantage-continuous", continuity.policy_advantage, 0.8),
        ("weighted-level-lipschitz", continuity.weighted_heterogeneity, 0.4),
        ("level-continuous", continuity.heterogeneity_level, 0.1),
        ("objective-continuous", continuity.objective, 0.1),
        ("largest-objective-continuous", continuity.largest_objective, 0.1),
    ],
)
def test_with_a_smaller_constant_a_claim_is_refuted(name, quantity, share):
    """Those of values are attained; the others are sums of steps, each of which costs something."""
    fixed = quantity in (continuity.policy_advantage, continuity.objective)

    def check(sample):
        bound = quantity(sample.step, _fixed(sample)) if fixed else quantity(sample.step)
        return _changes_at_most(replace(bound, penalty=share * bound.penalty), sample.rounding)

    wrong = replace(BY_NAME[name], check=check)
    (result,) = verify(150, claims=[wrong])
    assert result.violations > 0
    assert result.contradicts


def test_a_jump_is_no_continuous_change():
    """Of two policies a hair apart, the greedy actions may differ: that is not at most c TV_max."""

    def check(sample):
        step = sample.step
        best, after = (at.action_value.argmax(axis=-1) for at in (step.before_each, step.after))
        jumped = -(best != after).any(axis=-1).astype(float)
        return _changes_at_most(
            replace(continuity.action_value(step), left=jumped), step.before.rounding
        )

    (result,) = verify(150, claims=[replace(BY_NAME["action-value-lipschitz"], check=check)])
    assert result.violations > 0


def test_every_agent_is_compared_at_every_local_policy():
    claims = [BY_NAME["visitation-continuous"]]
    (result,) = verify(3, family=counterexamples.own_states(), claims=claims)
    assert result.checks == 3 * 20 * 2 * 2


def test_the_weighted_level_needs_no_state_to_be_reached():
    """Agent 2 is never in state 1, so there is no B_2, and D_2 B_2 is asked about all the same."""
    apart = counterexamples.own_states()
    with pytest.raises(ValueError, match="the policy does not get there"):
        verify(1, family=apart, claims=[BY_NAME["level-continuous"]])
    (result,) = verify(1, family=apart, claims=[BY_NAME["weighted-level-lipschitz"]])
    assert (result.checks, result.violations) == (20 * 2 * 2, 0)
