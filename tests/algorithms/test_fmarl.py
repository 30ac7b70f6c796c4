"""FMARL's decay of later gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FMARL

TREE = {"a": jnp.full(2, 3.0), "b": jnp.full((1, 2), 3.0), "c": jnp.array(3.0)}


@pytest.fixture
def factors(hand):
    """What each leaf is multiplied by at a step."""

    def measured(algorithm, step):
        return _factors(algorithm, hand.at(step=step))

    return measured


def _factors(algorithm, at):
    decayed = algorithm.gradient(TREE, at)
    assert jax.tree.structure(decayed) == jax.tree.structure(TREE)
    for before, after in zip(jax.tree.leaves(TREE), jax.tree.leaves(decayed), strict=True):
        assert before.shape == after.shape
    return [float(np.ravel(x)[0]) / 3 for x in jax.tree.leaves(decayed)]


@pytest.mark.parametrize(("step", "power"), [(0, 0), (1, 0.5), (2, 1), (7, 3.5), (320, 160)])
def test_counting_steps_all_variables_decay_alike(factors, step, power):
    assert factors(FMARL(decay=0.9), step) == pytest.approx([0.9**power] * 3, rel=1e-4)


@pytest.mark.parametrize(("step", "powers"), [(0, [0, 0.5, 1]), (2, [3, 3.5, 4])])
def test_counting_variables_the_counter_advances_once_per_variable(factors, step, powers):
    """Three variables: step 2 starts at j = 6."""
    expected = [0.9**p for p in powers]
    assert factors(FMARL(decay=0.9, counter="variable"), step) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("counter", ["step", "variable"])
def test_a_decay_of_one_is_fedavg(factors, counter):
    assert factors(FMARL(decay=1.0, counter=counter), 1000) == [1, 1, 1]


def test_it_adds_nothing_to_the_objective(hand):
    h = hand.objective(FMARL(decay=0.5), c2=1.0)
    assert h == pytest.approx(hand.gain - hand.kl_local, rel=1e-5)
    assert FMARL().coefficients() == {}
