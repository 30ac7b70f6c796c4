"""Small families that a human can read, and the sizes against which rounding is measured.

A test that is `@given(...)` asks for them by type: a `Family`; an `Exact`, which is a family at a
policy; a `Step`, which is one more policy for each agent. They are made of small integers: weights
that are normalised (0 is likely, so dynamics and policies are often deterministic), and rewards
that are often equal. Every state has some initial probability, so every rho is positive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedkl.tabular import Exact, Family, Step, families
from fedkl.tabular.validation import FloatArray

GAMMAS = [0.5, 0.1, 0.26, 0.9, 0.99]
# Agents, states, actions: 1 is the simplest case, but says the least.
SIZES = st.tuples(*[st.sampled_from([1, 2, 3, 2, 3, 2, 3])] * 3)


def normalised(weights: FloatArray) -> FloatArray:
    """Weights as distributions along the last axis; all on the first where all are 0."""
    weights = weights.astype(float)
    weights[..., 0] += weights.sum(axis=-1) == 0
    return weights / weights.sum(axis=-1, keepdims=True)


def integers(shape: tuple[int, ...], least: int, most: int) -> st.SearchStrategy[FloatArray]:
    """Independent integers: by default many entries of an array would be equal."""
    return arrays(np.int64, shape, elements=st.integers(least, most), fill=st.nothing())


@cache  # making a strategy takes longer than drawing from it
def distributions(shape: tuple[int, ...], least: int = 0) -> st.SearchStrategy[FloatArray]:
    """Distributions along the last axis, with weights from `least` to 3."""
    return integers(shape, least, 3).map(normalised)


@cache
def families_of(N: int, S: int, A: int) -> st.SearchStrategy[Family]:
    """Families of one size."""
    return st.builds(
        Family,
        initial=distributions((N, S), least=1),
        transitions=distributions((N, S, A, S)),
        rewards=integers((N, S, A), -2, 2),
        gamma=st.sampled_from(GAMMAS),
        weights=distributions((N,)),
    )


@cache
def exacts_of(N: int, S: int, A: int) -> st.SearchStrategy[Exact]:
    """Families of one size, each at a policy."""
    return st.builds(Exact, families_of(N, S, A), distributions((S, A)))


@cache
def steps_of(N: int, S: int, A: int) -> st.SearchStrategy[Step]:
    """Families of one size at a policy, and a local policy for each agent."""
    return st.builds(Step, exacts_of(N, S, A), distributions((N, S, A)))


for kind, of_size in ((Family, families_of), (Exact, exacts_of), (Step, steps_of)):
    st.register_type_strategy(kind, SIZES.flatmap(lambda sizes, of_size=of_size: of_size(*sizes)))


@pytest.fixture(scope="session")
def rounding() -> Callable[[Exact], float]:
    """What rounding may do to returns and advantages: a share of the largest return possible."""

    def of(at: Exact) -> float:
        largest = abs(at.family.rewards).max() / (1 - at.family.gamma.max())
        return 1e-11 * float(1 + largest / (1 - at.family.gamma.max()))

    return of


@pytest.fixture(scope="session")
def policy_of() -> Callable[..., FloatArray]:
    """Makes random policies for families, of which some actions have probability 0."""

    def make(rng: np.random.Generator, *shape: int) -> FloatArray:
        weights = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
        weights *= rng.random(shape) > 0.25
        return normalised(weights)

    return make


@pytest.fixture(scope="session")
def batch() -> Family:
    """Four families at gamma 0.9, of 10 states, 4 actions and 5 agents whose dynamics differ."""
    sizes = {"agents": 5, "states": 10, "actions": 4, "gamma": 0.9, "heterogeneity": "P"}
    return Family.stack([families.random(**sizes, seed=seed) for seed in range(4)])
