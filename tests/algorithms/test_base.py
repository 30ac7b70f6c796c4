"""What every algorithm has in common: registered, reported on, adding nothing unless it says so."""

import jax
import jax.numpy as jnp
import pytest

import fedkl.algorithms
from fedkl.algorithms import ALGORITHMS, Algorithm, register_algorithm
from fedkl.core.errors import UserError
from fedkl.learning.policy_optimisation import HookInput, Measured
from fedkl.learning.settings import FEDERATED, LOCAL, NONE, LearnerSettings, Sharing


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_reports_the_distance_from_the_global_policy(name, hand):
    distance = ALGORITHMS[name]().distance_to_global(hand.at())
    assert float(distance) == pytest.approx((hand.kl_global / 2) ** 0.5, rel=1e-5)
    unhalved = ALGORITHMS[name](distance="kl").distance_to_global(hand.at())
    assert float(unhalved) == pytest.approx(hand.kl_global, rel=1e-5)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_says_what_it_is(name):
    cls = ALGORITHMS[name]
    assert cls.name == name
    assert cls.summary
    assert cls.__doc__


def test_the_papers_four_and_scaffold_are_there():
    assert set(ALGORITHMS) >= {"fedavg", "fedprox", "fmarl", "fedkl", "scaffold"}
    with pytest.raises(UserError, match=r"no algorithm 'fedsgd'.*; available: fedavg, fedkl"):
        ALGORITHMS["fedsgd"]


def test_an_algorithm_of_ones_own_needs_only_what_it_adds(hand, monkeypatch):
    monkeypatch.setattr(ALGORITHMS, "_classes", dict(ALGORITHMS._classes))

    @register_algorithm
    class Toll(Algorithm):
        """Takes a constant away."""

        name = "toll"
        summary = "takes 3 away"

        def penalty(self, at):
            return 3.0

    h = hand.objective(ALGORITHMS["toll"](), c2=0.0)
    assert h == pytest.approx(hand.gain - 3, rel=1e-5)
    adds_nothing_else(Toll(), hand)


def test_the_base_class_adds_nothing(hand):
    algorithm = Algorithm()
    assert hand.objective(algorithm, c2=0.0) == pytest.approx(hand.gain, rel=1e-5)
    assert algorithm.penalty(hand.at()) == 0
    adds_nothing_else(algorithm, hand)


def adds_nothing_else(algorithm, hand):
    """Nothing but, perhaps, a penalty."""
    policy = hand.policy
    strange = LearnerSettings(optimiser="adam", max_gradient_norm=0.5)
    for place in (FEDERATED, LOCAL, NONE):
        assert algorithm.check(strange, Sharing(observations=place)) is None
    assert not algorithm.needs_covariance
    assert algorithm.observations_sent == 0
    assert algorithm.prepare(hand.now(), jax.random.key(0)) == ()
    assert algorithm.coefficients() == {}
    assert algorithm.client_state(policy) == algorithm.server_state(policy) == ()
    assert algorithm.gradient(jnp.ones(2), hand.at(step=4)).tolist() == [1, 1]
    at = hand.at(c2=7.0)
    measured = Measured(jnp.array(0.1), jnp.array(0.2), jnp.array(3.0))
    assert algorithm.adapt(at, measured) is at.coefficients
    ended = hand.ended(client_state="own", server_state="shared", coefficients=at.coefficients)
    assert algorithm.adapt_after_round(ended) is at.coefficients
    assert algorithm.finish(ended) == ("own", ())
    assert algorithm.gather("shared", [(), ()], 9) == "shared"


def test_hooks_by_their_former_names_are_called_with_a_warning():
    with pytest.warns(DeprecationWarning, match="_state` now") as warned:

        class Former(Algorithm):
            name = "former"
            summary = "for this test"

            def own(self, policy):
                return "kept"

            def shared(self, policy):
                return "broadcast"

    register_algorithm(Former)
    assert [str(one.message) for one in warned] == [
        f"the hook `{old}` of {Former.__qualname__} is called `{new}` now"
        for old, new in (("own", "client_state"), ("shared", "server_state"))
    ]
    assert Former().client_state(None) == "kept"
    assert Former().server_state(None) == "broadcast"
    assert Former().shares


def test_what_hooks_are_given_is_there_by_its_former_names(hand):
    at = hand.at()._replace(client_state=1, server_state=2)
    result = hand.ended(client_state=1, server_state=2, step_size_sum=jnp.array(3.0))
    assert (at.own, at.shared) == (result.own, result.shared) == (1, 2)
    assert result.travelled == 3
    with pytest.warns(DeprecationWarning, match="Local is called HookInput now"):
        assert fedkl.algorithms.Local is HookInput
