"""FedAvg adds nothing to local policy optimisation."""

import jax.numpy as jnp
import pytest

from fedkl.algorithms import FedAvg, Measured


def test_h_is_the_gain_less_the_local_penalty(hand):
    assert hand.objective(FedAvg(), c2=0.0) == pytest.approx(hand.gain, rel=1e-5)
    h = hand.objective(FedAvg(), c2=3.0)
    assert h == pytest.approx(hand.gain - 3 * hand.kl_local, rel=1e-5)


def test_gradients_pass_and_nothing_is_adapted(hand):
    assert FedAvg().gradient(jnp.ones(2), hand.at(step=1000)).tolist() == [1, 1]
    assert FedAvg().coefficients() == {}
    measured = Measured(jnp.array(9.0), jnp.array(9.0), jnp.array(9.0))
    assert FedAvg().adapt(hand.at(c2=1.0), measured) == {"c2": 1.0}
