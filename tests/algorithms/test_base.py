"""What every algorithm has in common: registered, reported on, adding nothing unless it says so."""

import jax.numpy as jnp
import pytest

from fedkl.algorithms import ALGORITHMS, Algorithm, register_algorithm
from fedkl.errors import UserError
from fedkl.learning.policy_optimisation import view


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_reports_the_distance_from_the_global_policy(name, hand):
    now = view(hand.policy, hand.policies, hand.batch)
    distance = ALGORITHMS[name]().distance_to_global(now)
    assert float(distance) == pytest.approx((hand.kl_global / 2) ** 0.5, rel=1e-5)
    unhalved = ALGORITHMS[name](distance="kl").distance_to_global(now)
    assert float(unhalved) == pytest.approx(hand.kl_global, rel=1e-5)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_says_what_it_is(name):
    cls = ALGORITHMS[name]
    assert cls.name == name
    assert cls.summary
    assert cls.__doc__


def test_the_papers_four_are_there():
    assert set(ALGORITHMS) >= {"fedavg", "fedprox", "fmarl", "fedkl"}
    with pytest.raises(UserError, match="no algorithm 'fedsgd'; there is: fedavg, fedkl"):
        ALGORITHMS["fedsgd"]


def test_an_algorithm_of_ones_own_needs_only_what_it_adds(hand, monkeypatch):
    monkeypatch.setattr(ALGORITHMS, "_classes", dict(ALGORITHMS._classes))

    @register_algorithm
    class Toll(Algorithm):
        """Takes a constant away."""

        name = "toll"
        summary = "takes 3 away"

        def penalty(self, coefficients, view):
            return 3.0

    h = hand.objective(ALGORITHMS["toll"](), c2=0.0)
    assert h == pytest.approx(hand.gain - 3, rel=1e-5)
    assert Toll().coefficients() == Toll().across_rounds() == {}
    assert Toll().gradient(jnp.ones(2), jnp.array(4)).tolist() == [1, 1]
