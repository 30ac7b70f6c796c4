"""FedProx's penalty in parameter space."""

import jax
import pytest

from fedkl.algorithms import FedProx
from fedkl.learning.policy_optimisation import at_step


@pytest.mark.parametrize(("factor", "name"), [(0.5, "the paper"), (0.25, "the authors' code")])
def test_the_penalty_is_a_multiple_of_the_squared_gap(hand, factor, name):
    h = hand.objective(FedProx(mu=0.8, mu_factor=factor), c2=1.0)
    expected = hand.gain - factor * 0.8 * hand.gap - hand.kl_local
    assert h == pytest.approx(expected, rel=1e-5), name


def test_the_factor_is_the_papers_unless_set(hand):
    h = hand.objective(FedProx(mu=0.8), c2=0.0)
    assert h == pytest.approx(hand.gain - 0.4 * hand.gap, rel=1e-5)


def test_mu_zero_is_fedavg(hand):
    assert hand.objective(FedProx(mu=0.0), c2=0.0) == pytest.approx(hand.gain, rel=1e-5)


def test_its_gradient_is_mu_times_the_gap(hand):
    def penalty(policy):
        return FedProx(mu=0.8).penalty(at_step(hand.now(), policy, hand.batch, 0))

    gradient = jax.jit(jax.grad(penalty))(hand.policy)
    assert float(gradient.network.weights[0][0, 0]) == pytest.approx(0.8 * 1.5, rel=1e-5)
    assert float(gradient.network.biases[0][0]) == pytest.approx(0.8 * 0.5, rel=1e-5)


def test_it_has_no_coefficient_to_adapt():
    assert FedProx().coefficients() == {}
