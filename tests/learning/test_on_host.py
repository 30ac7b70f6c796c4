"""Acting on the host is acting in JAX: the same policy, the same statistics, the same data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FedAvg
from fedkl.learning.local_training import Task, behaviour
from fedkl.learning.on_host import acting, minds, seeds_of, trajectories
from fedkl.learning.policy import Policy
from fedkl.learning.settings import CriticSettings, LearnerSettings
from fedkl.learning.statistics import Moments
from fedkl.simulators.actors import Actors
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import Episode
from fedkl.worlds import FigureEight

AGENTS = 7


def task_with(**learner):
    return Task(
        FigureEight(),
        FedAvg(),
        LearnerSettings(hidden=(100, 50, 25), output_scale=1.0, **learner),
        CriticSettings(hidden=(4,)),
    )


@pytest.fixture(scope="module")
def policies():
    """One for each agent, whose last layers are large enough to tell them apart."""
    settings = task_with().learner
    made = [Policy(FigureEight(), settings, jax.random.key(n)) for n in range(AGENTS)]
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


def minds_of(task, policies, statistics, iterations=1, deterministic=False):
    seeds = [Seed((n,)) for n in range(AGENTS)]
    done = jnp.full(AGENTS, iterations)
    arrays = stacked([acting(task, *pair) for pair in zip(policies, statistics, strict=True)])
    return minds(task, arrays, done, seeds, deterministic)


@pytest.mark.parametrize("standardised", [True, False])
def test_deterministic_actions_are_those_of_the_jax_policy(policies, statistics, standardised):
    task = task_with(observation_clip=3.0)
    seen = statistics if standardised else [None] * AGENTS
    actors = Actors(minds_of(task, policies, seen, deterministic=True), 50)
    acts = [
        jax.jit(behaviour(task, policy, moments, jnp.array(1), deterministic=True))
        for policy, moments in zip(policies, seen, strict=True)
    ]
    random = np.random.default_rng(1)
    for step in range(50):
        observation = random.normal(0, 2, (AGENTS, 6)).astype(np.float32)
        ours = actors(observation, step)
        theirs = [
            act(row[None], jax.random.key(0))[0] for act, row in zip(acts, observation, strict=True)
        ]
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_noise_around_the_jax_policys_mean_has_its_deviation(policies, statistics):
    task, steps = task_with(), 3000
    observation = np.full((AGENTS, 6), 0.3, np.float32)
    noisy = Actors(minds_of(task, policies, statistics), steps)
    calm = Actors(minds_of(task, policies, statistics, deterministic=True), 1)(observation, 0)
    noise = np.stack([noisy(observation, step) for step in range(steps)]) - calm
    deviation = np.exp(-0.1 * np.arange(AGENTS))
    assert noise[..., 0].std(axis=0) == pytest.approx(deviation, rel=0.06)
    assert noise[..., 0].mean(axis=0) == pytest.approx(np.zeros(AGENTS), abs=0.08)


def test_only_a_client_that_never_trained_explores_and_never_deterministically(policies):
    task = task_with(uniform_exploration=0.25)
    done = jnp.array([0, 1, 2, 0, 0, 0, 9])
    arrays = stacked([acting(task, policy, None) for policy in policies])
    for deterministic, expected in [(False, [0.25, 0, 0, 0.25, 0.25, 0.25, 0]), (True, [0] * 7)]:
        made = minds(task, arrays, done, [Seed((0,))] * AGENTS, deterministic)
        assert [mind.exploration for mind in made] == expected


def test_a_mind_can_be_sent_without_jax(policies, statistics):
    for mind in minds_of(task_with(), policies, statistics):
        assert all(type(x) is np.ndarray for x in jax.tree.leaves(mind) if not np.isscalar(x))
        assert type(mind.clip) is type(mind.exploration) is float


def test_an_agents_trajectories_are_its_own_columns():
    random = np.random.default_rng(2)

    def episode(length):
        return Episode(
            observation=random.normal(size=(5, 3, 2)).astype(np.float32),
            action=random.normal(size=(5, 3, 1)).astype(np.float32),
            reward=random.normal(size=(5, 3)).astype(np.float32),
            terminated=np.arange(5) == length - 1,
            mask=np.arange(5) < length,
            last_observation=random.normal(size=(3, 2)).astype(np.float32),
            pictures=None,
        )

    episodes = [episode(5), episode(3)]
    agents = [2, 0]
    data = trajectories(episodes, agents)
    assert data.observation.shape == (2, 5, 2, 2)
    for n, agent in enumerate(agents):
        for e, one in enumerate(episodes):
            np.testing.assert_array_equal(data.observation[n, :, e], one.observation[:, agent])
            np.testing.assert_array_equal(data.action[n, :, e], one.action[:, agent])
            np.testing.assert_array_equal(data.reward[n, :, e], one.reward[:, agent])
            np.testing.assert_array_equal(data.mask[n, :, e], one.mask)
            np.testing.assert_array_equal(data.terminated[n, :, e], one.terminated)
            np.testing.assert_array_equal(data.last_observation[n, e], one.last_observation[agent])


def test_keys_that_differ_stand_for_seeds_that_differ():
    keys = [jax.random.key(0), jax.random.key(1), jax.random.fold_in(jax.random.key(0), 1)]
    data = jax.random.key_data(jnp.stack(keys))
    seeds = seeds_of(data)
    assert len(set(seeds)) == 3
    assert [seeds_of(row) for row in data] == [[seed] for seed in seeds]
