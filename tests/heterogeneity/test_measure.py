"""What a client measures: numbers by hand, and what must make no difference."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_worlds import Points

from fedkl.algorithms import FedAvg
from fedkl.clients.behaviour import Behaviour
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Start, Task, first_states
from fedkl.clients.sources import Traced
from fedkl.clients.work import Work
from fedkl.engines import Job
from fedkl.heterogeneity import HeterogeneitySettings, Measure, level
from fedkl.learning.randomness import Purpose, key_data_of, key_for
from fedkl.learning.settings import CriticSettings, Sharing
from fedkl.server.loop import Federation
from fedkl.server.state import broadcast
from fedkl.tabular import Family
from fedkl.worlds import Chain, PointTarget

pytestmark = pytest.mark.usefixtures("quick_compilation")


def in_cells(trajectories, states, ridge=1e-3):
    """A measurement in which every state has a feature of its own."""
    return Measure(trajectories, "buckets", states, 1.0, ridge)


def start_of(task, key=0):
    return Start(*first_states(task, Sharing(), jax.random.key(0)), jax.random.key(key))


def task_in(world, **learner):
    return Task(world, FedAvg(), PolicyOptimisation(hidden=(4,), **learner), CriticSettings())


def measured(work, task, start, params):
    return jax.jit(lambda s: work(task, s, Traced(task.world, params))[0])(start)


def row(world, client=0, clients=1):
    """A client's params."""
    return jax.tree.map(lambda x: x[client], world.clients(clients, jax.random.key(0)))


def same(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


def test_it_is_work_for_a_client_that_changes_nothing():
    task = task_in(PointTarget())
    work = HeterogeneitySettings(trajectories=4, features=3).work()
    assert isinstance(work, Work)
    found, after = work(task, start_of(task), Traced(task.world, row(task.world)))
    assert after is None
    # One action: two functions of it, times three features of the state.
    assert {x.shape for x in found} == {(2, 6)}
    assert work.size(task.world) == 6


def test_a_bandit_by_hand(finite_world):
    """pi = (1/4, 3/4), rewards (4, 0): A = (3, -1), and pi A = (3/4, -3/4)."""
    family = Family([[1.0]], np.ones((1, 1, 2, 1)), [[[4.0, 0.0]]], gamma=0.5)
    sampled = finite_world.Sampled(family, np.array([[0.25, 0.75]]), horizon=1)
    (found,) = sampled.measure(in_cells(100, 1), jax.random.key(0)).values()
    np.testing.assert_allclose(found.weighted, [[3, -1]] * 2, rtol=1e-3)
    np.testing.assert_allclose(found.expected, [[0.75, -0.75]] * 2, rtol=1e-3)
    # The weights are the advantage up to what is the same for all actions.
    np.testing.assert_allclose(found.advantage @ [1, -1], [4, 4], rtol=1e-3)


def test_a_longer_bandit_is_visited_longer(finite_world):
    """1 + 1/2 + 1/4 visits, and what comes later has the same value whatever is done."""
    family = Family([[1.0]], np.ones((1, 1, 2, 1)), [[[4.0, 0.0]]], gamma=0.5)
    for bootstrap in (True, False):
        sampled = finite_world.Sampled(
            family, np.array([[0.25, 0.75]]), horizon=3, bootstrap_truncation=bootstrap
        )
        (found,) = sampled.measure(in_cells(100, 1), jax.random.key(0)).values()
        np.testing.assert_allclose(found.weighted, [[5.25, -1.75]] * 2, rtol=1e-3)


def test_a_gaussian_policy_by_hand():
    """-(m + s e - t)^2 is -2 s (m - t) e - s^2 (e^2 - 1) and a constant: that is the advantage."""
    world = PointTarget(spread=1.0, centre=0.0)  # targets -1 and 1
    task = task_in(world, initial_log_std=-1.0)
    start, s = start_of(task), np.exp(-1.0)
    # A constant observation has one deviation: whatever the network is, it says one mean.
    mean = float(start.model.policy(jnp.ones((1, 1))).mode()[0, 0])
    work = HeterogeneitySettings(trajectories=400, features=5).work()
    found = {n: measured(work, task, start, row(world, n, 2)) for n in (0, 1)}
    each = {n: np.array([-2 * s * (mean - t), -np.sqrt(2) * s**2]) for n, t in ((0, -1), (1, 1))}
    levels = level({n: jax.device_get(m) for n, m in found.items()})
    for n in (0, 1):
        expected = each[n] @ (each[0] + each[1]) / 2
        assert levels[n].alignment == pytest.approx(expected, rel=1e-2)
    # The feature of the one state scales all norms alike.
    apart = np.linalg.norm(each[0] - each[1]) / 2
    for n in (0, 1):
        ratio = apart / np.linalg.norm(each[n])
        assert levels[n].ratio == pytest.approx(ratio, rel=1e-2)


def test_rewards_that_do_not_depend_on_actions_give_no_advantage(finite_world):
    """Also where a time limit ends them, and a value that did not know the time would be wrong."""
    family = Family(
        np.full((1, 3), 1 / 3), np.full((1, 3, 2, 3), 1 / 3), np.ones((1, 3, 2)), gamma=0.9
    )
    for bootstrap in (True, False):
        sampled = finite_world.Sampled(
            family, family.uniform_policy(), horizon=8, bootstrap_truncation=bootstrap
        )
        (found,) = sampled.measure(in_cells(40, 3), jax.random.key(0)).values()
        np.testing.assert_allclose(found.weighted, 0, atol=5e-3)


@pytest.fixture(scope="module")
def walk():
    """Some episodes of a walk with a true end, how they were run, and what measures them."""
    task = task_in(Chain())
    start = start_of(task)
    work = in_cells(12, 5)
    acts = work.behaviour(task, start)
    source = Traced(task.world, row(task.world))
    data = jax.jit(lambda k: source.collect(acts, 12, k))(jax.random.key(2))
    assert not data.mask.all()
    return work, acts, data


def test_what_comes_after_an_end_does_not_count(walk):
    work, acts, data = walk
    over = ~data.mask
    other = data._replace(
        observation=jnp.where(over[..., None], 3.0, data.observation),
        action=jnp.where(over, 1, data.action),
        reward=jnp.where(over, 7.0, data.reward),
        last_observation=data.last_observation + 1.0,
    )
    assert data.terminated.any(axis=0).all()
    same(work.measured(acts, data), work.measured(acts, other), rtol=1e-6)


def test_a_half_knows_nothing_of_the_other(walk):
    work, acts, data = walk
    changed = data._replace(reward=data.reward.at[:, 6:].multiply(2.0))
    one, two = work.measured(acts, data), work.measured(acts, changed)
    same(one.weighted[0], two.weighted[0], rtol=0)
    assert not np.allclose(one.weighted[1], two.weighted[1])


def test_all_rewards_times_a_number_are_all_vectors_times_it(walk):
    work, acts, data = walk
    more = work.measured(acts, data._replace(reward=-4 * data.reward))
    same(jax.tree.map(lambda x: -4 * x, work.measured(acts, data)), more, rtol=1e-6)


def test_an_episode_that_the_world_cut_off_is_bootstrapped_from_what_was_seen_after_it(walk):
    """A cut after the first step, as if that were all: nothing later may be looked at."""
    work, acts, data = walk
    first = jnp.zeros_like(data.mask).at[0].set(True)
    cut = data._replace(
        mask=first,
        terminated=jnp.zeros_like(first),
        truncated=first,
        after=jnp.broadcast_to(data.observation[1], data.observation.shape),
    )
    short = jax.tree.map(lambda x: x[:1], cut._replace(last_observation=None, after=None))
    short = short._replace(truncated=None, last_observation=data.observation[1])
    # One step hardly tells values from advantages: how sums are rounded shows in the fourth digit.
    same(work.measured(acts, cut), work.measured(acts, short), rtol=1e-3, atol=1e-6)


def test_the_policy_is_followed_without_the_exploration_of_a_first_iteration():
    task = task_in(PointTarget(), uniform_exploration=1.0)
    start, work = start_of(task), HeterogeneitySettings(trajectories=8, features=3).work()
    acts = work.behaviour(task, start)
    assert isinstance(acts, Behaviour)
    plain = work.behaviour(task_in(PointTarget()), start)
    seen, key = jnp.ones((4, 1)), jax.random.key(3)
    same(acts(seen, key), plain(seen, key), rtol=0)


def test_clients_measured_side_by_side_get_what_each_would_get_alone():
    task, work = task_in(Chain(spread=0.5)), in_cells(8, 5)
    start, params = start_of(task), task.world.clients(3, jax.random.key(0))

    def ask(params, key):
        return work(task, start._replace(key=key), Traced(task.world, params))[0]

    keys = jax.random.split(jax.random.key(1), 3)
    together = jax.jit(jax.vmap(ask))(params, keys)
    for n in range(3):
        alone = jax.jit(ask)(jax.tree.map(lambda x, n=n: x[n], params), keys[n])
        same(jax.tree.map(lambda x, n=n: x[n], together), alone, rtol=1e-4, atol=1e-4)


def test_clients_with_statistics_of_their_own_see_with_them():
    task = task_in(PointTarget())
    start, work = start_of(task), HeterogeneitySettings(trajectories=4, features=3).work()
    own = eqx.tree_at(lambda m: m.mean, start.model.observations, jnp.full(1, 2.0))
    client = replace(start.client, observations=own)
    assert work.behaviour(task, start._replace(client=client)).observations is own


@pytest.mark.usefixtures("toys")
def test_a_simulator_on_the_host_is_measured_like_a_traced_world(tiny):
    """One state, and rewards without noise: whatever is sampled, the fit is the same."""
    work = HeterogeneitySettings(trajectories=400, features=3).work()
    found = []
    for world in (Points(spread=1.0), PointTarget(spread=1.0)):
        with Federation(replace(tiny(federation__clients=2), world=world)) as federation:
            model, common = (
                broadcast(federation.state.model),
                key_data_of(key_for(0, Purpose.WORLDS)),
            )
            jobs = [Job(c, key_data_of(key_for(0, Purpose.EVALUATION, c))) for c in (0, 1)]
            answers = dict(federation.engine.run(work, model, jobs, common))
            found.append(level(answers))
            assert not federation.engine.save()
    for n in (0, 1):
        np.testing.assert_allclose(found[0][n], found[1][n], rtol=2e-2)
