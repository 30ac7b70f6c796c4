"""How a client acts, inside jit and on the host: the same policy with the same statistics."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.clients.behaviour import Behaviour, actors, seeds_of
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.learning.policy import Policy
from fedkl.learning.statistics import Moments
from fedkl.simulators.actors import Actors
from fedkl.simulators.base import Seed
from fedkl.worlds import Bandit, FigureEight, PointTarget

KEY = jax.random.key(5)
AGENTS = 7


def learner_with(**numbers):
    return PolicyOptimisation(hidden=(100, 50, 25), output_scale=1.0, **numbers)


@pytest.fixture(scope="module")
def policies():
    """One for each agent, whose last layers are large enough to tell them apart."""
    made = [Policy(FigureEight(), learner_with(), jax.random.key(n)) for n in range(AGENTS)]
    return [eqx.tree_at(lambda p: p.log_std, p, jnp.array([-0.1 * n])) for n, p in enumerate(made)]


@pytest.fixture(scope="module")
def statistics():
    """Of each agent: some have seen much, one a single sample, one nothing that varies."""
    rng = np.random.default_rng(0)
    counts = [1000, 500, 2, 1, 0, 10, 10]
    return [
        Moments(
            jnp.array(float(count)),
            jnp.asarray(rng.normal(size=6), jnp.float32),
            jnp.asarray(rng.uniform(0.01, 1, 6) * count * (n != 6), jnp.float32),
        )
        for n, count in enumerate(counts)
    ]


def stacked(trees):
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def behaviours(learner, policies, statistics, deterministic=False):
    """Of clients that have finished an iteration."""
    return [
        Behaviour(learner, *pair, jnp.array(1), deterministic)
        for pair in zip(policies, statistics, strict=True)
    ]


def actors_of(*arguments, **options):
    each = [behaviour.actor() for behaviour in behaviours(*arguments, **options)]
    return actors(stacked(each), [[Seed((n,))] for n in range(AGENTS)])


# Inside jit.


@pytest.fixture(scope="module")
def far():
    """A policy whose actions are about 100, far from all that is uniform in [0, 1]."""
    policy = Policy(PointTarget(), PolicyOptimisation(hidden=(4,)), KEY)
    return eqx.tree_at(lambda p: p.network.biases[-1], policy, jnp.array([100.0]))


def test_uniform_actions_come_only_before_the_first_iteration_is_finished(far):
    learner = PolicyOptimisation(uniform_exploration=0.5)
    observation = jnp.ones((4000, 1))

    def actions(iterations, deterministic=False):
        act = Behaviour(learner, far, None, jnp.array(iterations), deterministic)
        return np.asarray(act(observation, KEY))

    first = actions(0)
    uniform = first[first < 50]
    assert len(uniform) / 4000 == pytest.approx(0.5, abs=0.04)
    assert uniform.min() >= 0
    assert uniform.max() <= 1
    np.testing.assert_allclose(uniform.mean(), 0.5, atol=0.03)
    assert (actions(1) > 50).all()
    assert (actions(0, deterministic=True) > 50).all()


def test_a_policy_acts_on_standardised_observations(far):
    seen = Moments(jnp.array(4.0), jnp.array([3.0]), jnp.array([16.0]))
    act = Behaviour(PolicyOptimisation(), far, seen, jnp.array(1), deterministic=True)
    np.testing.assert_allclose(
        act(jnp.array([[1.0], [1e9]]), KEY), far(jnp.array([[-1.0], [5.0]])).mode(), rtol=1e-6
    )


# On the host.


@pytest.mark.parametrize("standardised", [True, False])
def test_deterministic_actions_are_those_of_the_jax_policy(policies, statistics, standardised):
    learner = learner_with(observation_clip=3.0)
    seen = statistics if standardised else [None] * AGENTS
    host = Actors(actors_of(learner, policies, seen, deterministic=True), [50])
    acts = stacked(behaviours(learner, policies, seen, deterministic=True))
    together = jax.jit(jax.vmap(lambda act, row: act(row[None], KEY)[0]))
    random = np.random.default_rng(1)
    for step in range(50):
        observation = random.normal(0, 2, (AGENTS, 6)).astype(np.float32)
        ours = host(observation[:, None], step)[:, 0]
        np.testing.assert_allclose(ours, together(acts, observation), atol=1e-5)


def test_noise_around_the_jax_policys_mean_has_its_deviation(policies, statistics):
    learner, steps = learner_with(), 3000
    observation = np.full((AGENTS, 1, 6), 0.3, np.float32)
    noisy = Actors(actors_of(learner, policies, statistics), [steps])
    calm = Actors(actors_of(learner, policies, statistics, deterministic=True), [1])(observation, 0)
    noise = np.stack([noisy(observation, step) for step in range(steps)]) - calm
    deviation = np.exp(-0.1 * np.arange(AGENTS))
    assert noise[..., 0, 0].std(axis=0) == pytest.approx(deviation, rel=0.06)
    assert noise[..., 0, 0].mean(axis=0) == pytest.approx(np.zeros(AGENTS), abs=0.08)


@pytest.mark.parametrize(
    ("deterministic", "expected"),
    [(False, [0.25, 0, 0, 0.25, 0.25, 0.25, 0]), (True, [0] * AGENTS)],
)
def test_only_a_client_that_never_trained_explores_and_never_deterministically(
    policies, deterministic, expected
):
    learner = learner_with(uniform_exploration=0.25)
    each = [
        Behaviour(learner, policy, None, jnp.array(done), deterministic).actor()
        for policy, done in zip(policies, [0, 1, 2, 0, 0, 0, 9], strict=True)
    ]
    made = actors(stacked(each), [[Seed((0,))]] * AGENTS)
    assert [actor.exploration for actor in made] == expected


def test_every_actor_has_the_seeds_it_is_given(policies, statistics):
    made = actors_of(learner_with(), policies, statistics)
    assert [actor.seeds for actor in made] == [(Seed((n,)),) for n in range(AGENTS)]


def test_an_actor_can_be_sent_without_jax(policies, statistics):
    for actor in actors_of(learner_with(), policies, statistics):
        arrays = jax.tree.leaves(actor._replace(seeds=None))
        assert all(type(x) is np.ndarray for x in arrays if not np.isscalar(x))
        assert type(actor.clip) is type(actor.exploration) is type(actor.temperature) is float


def test_keys_that_differ_stand_for_seeds_that_differ():
    keys = [jax.random.key(0), jax.random.key(1), jax.random.fold_in(jax.random.key(0), 1)]
    data = jax.random.key_data(jnp.stack(keys))
    seeds = seeds_of(data)
    assert len(set(seeds)) == 3
    assert [seeds_of(row) for row in data] == [[seed] for seed in seeds]


# Discrete actions on the host.


@pytest.fixture(scope="module")
def choosing():
    """Policies that choose one of three, whose logits depend on what they see."""
    return [Policy(Bandit(), learner_with(), jax.random.key(n)) for n in range(3)]


def choosers(policies, columns, deterministic=False):
    each = [
        Behaviour(learner_with(), policy, None, jnp.array(1), deterministic) for policy in policies
    ]
    seeds = [[Seed((n,), (c,)) for c in range(columns)] for n in range(len(policies))]
    return each, actors(stacked([act.actor() for act in each]), seeds)


def test_the_most_probable_action_is_that_of_the_jax_policy(choosing):
    acts, host = choosers(choosing, 2, deterministic=True)
    together = Actors(host, [50, 50])
    random = np.random.default_rng(1)
    for step in range(50):
        seen = random.normal(0, 2, (3, 2, 1)).astype(np.float32)
        expected = [act(jnp.asarray(rows), KEY) for act, rows in zip(acts, seen, strict=True)]
        np.testing.assert_array_equal(together(seen, step), expected)


def test_samples_on_the_host_have_the_law_of_jaxs(choosing):
    """Shares of 20,000 samples of each, two columns on the host: 0.0155 is three deviations."""
    acts, host = choosers(choosing, 2)
    seen = np.full((3, 2, 1), 0.7, np.float32)
    together = Actors(host, [10_000, 10_000])
    chosen = np.stack([together(seen, row) for row in range(10_000)])
    for n, act in enumerate(acts):
        theirs = np.asarray(act(jnp.full((20_000, 1), 0.7), KEY))
        shares = [np.bincount(x.ravel(), minlength=3) / 20_000 for x in (chosen[:, n], theirs)]
        np.testing.assert_allclose(*shares, atol=0.0155)
        logits = choosing[n](jnp.full((1, 1), 0.7)).logits[0]
        np.testing.assert_allclose(shares[0], jax.nn.softmax(logits), atol=0.011)
    assert not np.array_equal(chosen[:, 0, 0], chosen[:, 0, 1])


def test_an_actor_of_discrete_actions_has_no_deviation(choosing):
    _, host = choosers(choosing, 1)
    assert all(actor.deviation is None and actor.temperature == 1.0 for actor in host)
    _, calm = choosers(choosing, 1, deterministic=True)
    assert all(actor.deviation is None and actor.temperature == 0.0 for actor in calm)
