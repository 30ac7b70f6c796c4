"""What a client can be asked: evaluation against known returns, recording, training."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FedAvg
from fedkl.clients import work
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Start, Task
from fedkl.clients.sources import Traced
from fedkl.clients.work import Evaluate, RecordEpisode, Train, Work
from fedkl.learning.settings import CriticSettings
from fedkl.learning.statistics import Moments
from fedkl.worlds import PointTarget
from fedkl.worlds.probes import PointParams

KEY = jax.random.key(0)
TARGET = PointParams(jnp.array(2.0))


@partial(jax.jit, static_argnums=(5, 6))
def evaluate(task, model, client, params, key, episodes, deterministic):
    """The returns; nothing of the client changes."""
    source = Traced(task.world, params)
    returns, after = Evaluate(episodes, deterministic)(task, Start(model, client, key), source)
    assert after is None
    return returns


@pytest.fixture(scope="module")
def known(start):
    """A policy whose mean is 3 times the standardised observation, with deviation 1/2."""
    learner = PolicyOptimisation(
        hidden=(), initial_log_std=float(np.log(0.5)), uniform_exploration=0.5
    )
    task = Task(PointTarget(), FedAvg(), learner, CriticSettings(hidden=()))

    def make(**places):
        model, client = start(task, **places)
        network = model.policy.network
        three = eqx.tree_at(lambda n: n.weights, network, (jnp.array([[3.0]]),))
        model = eqx.tree_at(lambda m: m.policy.network, model, three)
        return task, model, eqx.tree_at(lambda c: c.iterations, client, jnp.array(1))

    return make


def test_a_deterministic_policy_has_its_modes_return(known):
    # The observation is 1: the mode is 3, the target 2.
    returns = evaluate(*known(), TARGET, KEY, 2000, True)
    np.testing.assert_allclose(returns, np.full(2000, -1.0))


def test_a_stochastic_policy_pays_for_its_deviation(known):
    returns = evaluate(*known(), TARGET, KEY, 2000, False)
    assert float(returns.mean()) == pytest.approx(-1 - 0.25, abs=0.1)
    assert len(set(returns.tolist())) > 1900


def test_a_client_is_evaluated_with_the_statistics_it_keeps(known):
    task, model, client = known(observations="local")
    # Mean 1/2 and deviation 1/4 make 2 of the observation 1: the mode is 6.
    own = Moments(jnp.array(4.0), jnp.array([0.5]), jnp.array([0.25]))
    client = eqx.tree_at(lambda c: c.observations, client, own)
    returns = evaluate(task, model, client, TARGET, KEY, 2000, True)
    np.testing.assert_allclose(returns, np.full(2000, -16.0))


def test_a_client_that_never_trained_explores_in_evaluation_too(known):
    """As the authors' code does; a uniform action in [0, 1] costs (2 - a)^2, between 1 and 4."""
    task, model, client = known()
    client = eqx.tree_at(lambda c: c.iterations, client, jnp.array(0))
    returns = evaluate(task, model, client, TARGET, KEY, 2000, False)
    # E (2 - a)^2 = 7/3 for uniform a.
    assert float(returns.mean()) == pytest.approx(-(1.25 + 7 / 3) / 2, abs=0.1)
    np.testing.assert_allclose(evaluate(task, model, client, TARGET, KEY, 2000, True), -1.0)


class Countless:
    """A source of episodes on the host, as far as evaluation can tell; it counts its calls."""

    def __init__(self, source):
        self.source, self.asked = source, []

    def collect(self, behaviour, episodes, key):
        self.asked.append(episodes)
        return self.source.collect(behaviour, episodes, key)

    def fill(self, behaviour, steps, key):
        raise NotImplementedError

    def record(self, behaviour, key):
        return self.source.record(behaviour, key)


@pytest.mark.parametrize(
    ("episodes", "blocks"), [(3, [3]), (4, [4]), (9, [4, 4, 1]), (12, [4, 4, 4])]
)
def test_many_episodes_come_in_blocks_that_fit_into_memory(known, monkeypatch, episodes, blocks):
    """Inside jit as on the host, with the same returns, all of which differ."""
    monkeypatch.setattr(work, "EPISODES_AT_ONCE", 4)
    task, model, client = known()
    traced, start = Traced(task.world, TARGET), Start(model, client, KEY)
    host = Countless(traced)
    one, _ = Evaluate(episodes, False)(task, start, host)
    other, _ = jax.jit(lambda: Evaluate(episodes, False)(task, start, traced))()
    assert host.asked == blocks
    assert one.shape == other.shape == (episodes,)
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert len(set(one.tolist())) == episodes


def test_a_recording_is_of_the_broadcast_policy(known):
    """Mode 3, target 2; one step."""
    task, model, client = known()
    source = Traced(task.world, TARGET)
    made, after = RecordEpisode(deterministic=True)(task, Start(model, client, KEY), source)
    assert after is None
    assert made.reward.tolist() == [-1]
    assert made.mask.tolist() == [True]
    assert made.params == TARGET


def test_training_is_a_local_round(point, start, train):
    task = point()
    model, client = start(task)
    params = PointParams(np.float32(0.5))
    source = Traced(task.world, params)
    trained, after = jax.jit(lambda: Train()(task, Start(model, client, KEY), source))()
    outcome = train(task, model, client, params, KEY)
    for one, other in zip(
        jax.tree.leaves((trained.update, after)),
        jax.tree.leaves((outcome.update, outcome.after)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_works_are_told_apart_by_their_names():
    works = [Train(), Evaluate(1, True), RecordEpisode(True)]
    assert all(isinstance(one, Work) for one in works)
    assert [one.name for one in works] == ["train", "evaluate", "record"]
