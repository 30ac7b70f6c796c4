"""The claims about whose states count: what they ask, and that the mixture is what saves them."""

import dataclasses

import numpy as np
import pytest

from fedkl.tabular import Family, bounds, constants, counterexamples
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.claims.anchored import _step_where_one_never_is
from fedkl.tabular.claims.base import inequality
from fedkl.tabular.sampling import samples
from fedkl.tabular.verification import verify

BY_NAME = {claim.name: claim for claim in CLAIMS}


def test_steps_are_made_where_their_agents_never_are_and_nowhere_else():
    for sample in samples(range(30)):
        step = _step_where_one_never_is(sample)
        family = step.before.family
        if family.states == 1:
            continue
        elsewhere = np.arange(family.states) != counterexamples.avoided_state(family)[:, None]
        assert (step.tv * elsewhere == 0).all()
        assert (step.tv_expected == 0).all()
        assert (step.policy_advantage == 0).all()


def test_with_one_state_nothing_is_asked():
    results = verify(2, family=counterexamples.bandit(0.2), claims=[BY_NAME["own-states"]])
    assert results[0].checks == 0


def test_own_states_and_the_federations_are_asked_about_the_same_steps():
    own, anchored = verify(40, claims=[BY_NAME["own-states"], BY_NAME["anchored-unvisited"]])
    assert own.checks == anchored.checks > 1000
    assert own.violations > own.checks / 4
    assert anchored.violations == 0


def test_own_states_do_no_harm_to_agents_that_are_alone():
    """Where nobody is, a step changes nothing: the claim is refuted by others, not by itself."""
    one = Family([[0.5, 0.5]], np.full((1, 2, 2, 2), 0.5), [[[1.0, -1.0], [0.0, 2.0]]], 0.9)
    (result,) = verify(5, family=one, claims=[BY_NAME["own-states"]])
    assert result.checks > 50
    assert result.violations == 0


@pytest.mark.parametrize("factor", [1.0, 10.0, 1e6])
def test_the_anchored_bound_with_own_states_in_place_of_the_mixture_is_refuted(factor):
    """With any multiple of its constant; the others' states are where it fails."""

    def check(sample):
        step = _step_where_one_never_is(sample)
        at = step.before
        coefficient = constants.anchored_alpha(at) + constants.anchored_beta(at)[..., None]
        penalty = factor * coefficient * step.tv_expected
        bound = bounds.anchored_corollary_2(step)
        return inequality(dataclasses.replace(bound, penalty=penalty), sample)

    wrong = dataclasses.replace(BY_NAME["own-states"], name="wrong", check=check)
    (result,) = verify(20, seed=3, claims=[wrong])
    assert result.violations > 0
