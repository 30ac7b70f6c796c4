"""Clients of one simulation: each learns from its own experience as it would in a world of its own.

The worlds here are toys (tests/simulators/toys), whose answers are known.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FedKL
from fedkl.federation.engines.shared_world import InSharedWorld
from fedkl.federation.settings import FederationSettings
from fedkl.federation.state import broadcast, first_state
from fedkl.learning.local_training import Task, local_round
from fedkl.learning.settings import CriticSettings, LearnerSettings
from fedkl.simulators.actors import Actors
from fedkl.simulators.base import Recipe
from fedkl.simulators.episodes import run_episode
from fedkl.worlds import Continuous, PointTarget, SharedWorld
from fedkl.worlds.probes import PointParams

pytestmark = pytest.mark.usefixtures("toys", "quick_compilation")
KEY = jax.random.key(3)


class Points(SharedWorld):
    """`probe-point` for everybody at once: the agents' targets differ."""

    name: ClassVar[str] = "test-points"
    summary: ClassVar[str] = "for tests"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[Continuous] = Continuous(1)
    targets: tuple = eqx.field(static=True, default=(-1.0, 0.5, 1.0))
    horizon: int = eqx.field(static=True, default=1)
    patience: ClassVar[float] = 20.0

    @property
    def agents(self):
        return len(self.targets)

    def simulator(self):
        return Recipe("toy_simulators:Points", {"targets": list(self.targets)})


class Walk(SharedWorld):
    """Three agents that drift; an episode may end early, or come to harm."""

    name: ClassVar[str] = "test-walk"
    summary: ClassVar[str] = "for tests"
    observation_size: ClassVar[int] = 2
    actions: ClassVar[Continuous] = Continuous(1)
    ends: int = eqx.field(static=True, default=0)
    mishap: str = eqx.field(static=True, default="")
    tickets: str = eqx.field(static=True, default="")
    horizon: int = eqx.field(static=True, default=8)
    patience: ClassVar[float] = 20.0
    agents: ClassVar[int] = 3

    def simulator(self):
        arguments = {"agents": 3, "ends": self.ends}
        return Recipe(
            "toy_simulators:Walk", arguments | {"mishap": self.mishap, "tickets": self.tickets}
        )


class Bench:
    """An engine with a fresh federation, ready to train a round."""

    def __init__(self, world, clients=(0, 1, 2), **settings):
        federation = FederationSettings(
            clients=world.agents, clients_per_round=len(clients), **settings
        )
        learner = LearnerSettings(
            iterations=3,
            steps=32,
            epochs=2,
            minibatch=16,
            hidden=(4,),
            learning_rate=0.05,
            d_local=0.05,
        )
        critic = CriticSettings(hidden=(4,), epochs=2, minibatch=16)
        self.task = Task(world, FedKL(), learner, critic)
        self.engine = InSharedWorld(self.task, federation)
        self.state = first_state(self.task, federation, jax.random.key(0))
        self.model = broadcast(self.state.model)
        self.clients = list(clients)
        self.jobs = []
        run = self.engine._workers.run

        def watched(jobs):
            self.jobs.append(jobs)
            return run(jobs)

        self.engine._workers.run = watched

    def train(self):
        keys = [jax.random.fold_in(KEY, c) for c in self.clients]
        return self.engine.train(self.model, self.clients, self.state.clients, keys, KEY)

    def close(self):
        # The stub on the instance refers to itself, and so would keep the pool alive.
        del self.engine._workers.run
        self.engine._workers.close()


@pytest.fixture
def bench():
    made = []

    def make(*args, **settings):
        made.append(Bench(*args, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def mode(outcome):
    """What a client of `Points` would do now (its constant observation is standardised to 0)."""
    return float(outcome[0].model.policy(np.zeros((1, 1))).mode()[0, 0])


class JaxNoise:
    """In place of workers: runs `Points` here, with the noise that `rollout` would draw in JAX."""

    replaced = 0

    def __init__(self, world, episodes):
        self._recipe = world.simulator()
        self._episodes = episodes

    def run(self, jobs):
        return [self._one(job) for job in jobs]

    def _one(self, job):
        simulator = self._recipe.make()
        step = simulator.step
        offset = np.array([self._noise(mind) for mind in job.minds])
        simulator.step = lambda actions: step(actions + offset)
        calm = [mind._replace(deviation=0 * mind.deviation) for mind in job.minds]
        episode = run_episode(simulator, job._replace(minds=calm))
        return episode._replace(action=(episode.action + offset).astype(np.float32))

    def _noise(self, mind):
        key = jax.random.wrap_key_data(np.array(mind.seed.words, np.uint32))
        _, step_key = jax.random.split(key)
        act_key, _ = jax.random.split(jax.random.split(step_key, 1)[0])
        (episode,) = mind.seed.numbers
        return jax.random.normal(act_key, (self._episodes, 1))[episode] * mind.deviation


@pytest.mark.parametrize("at_once", [1, 2])
def test_with_the_same_noise_a_client_learns_what_local_round_teaches_it(
    bench, toys, monkeypatch, at_once
):
    monkeypatch.syspath_prepend(toys)
    world = Points()
    here = bench(world, clients_at_once=at_once)
    workers, here.engine._workers = here.engine._workers, JaxNoise(world, 32)
    together = here.train()
    here.engine._workers = workers
    task = Task(PointTarget(), here.task.algorithm, here.task.learner, here.task.critic)
    alone = jax.jit(local_round)
    for client, outcome in enumerate(together):
        expected = alone(
            task,
            here.model,
            jax.tree.map(lambda x, c=client: x[c], here.state.clients),
            PointParams(jnp.asarray(world.targets[client])),
            jax.random.fold_in(KEY, client),
        )
        assert jax.tree.structure(outcome) == jax.tree.structure(expected)
        for ours, theirs in zip(jax.tree.leaves(outcome), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_every_client_learns_from_its_own_rewards_and_keeps_its_place(bench):
    outcomes = bench(Points(), clients=[2, 0]).train()
    assert mode(outcomes[0]) > 0.05  # wants 1
    assert mode(outcomes[1]) < -0.05  # wants -1


def test_clients_who_do_not_meet_do_not_depend_on_who_else_is_selected(bench):
    pair, other = bench(Points(), clients=[1, 2]).train(), bench(Points(), clients=[0, 1]).train()
    assert same_bits(pair[0], other[1])


def test_clients_vmapped_together_give_the_same_update_up_to_rounding(bench):
    singly, together = (bench(Walk(), clients_at_once=n).train() for n in (1, 3))
    for a, b in zip(jax.tree.leaves(singly), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_who_is_not_selected_acts_with_the_global_policy_all_along(bench):
    here = bench(Walk(), clients=[1])
    here.train()
    assert [len(jobs) for jobs in here.jobs] == [4, 4, 4]  # 32 steps are 4 episodes of 8
    network = here.model.policy.network
    for i, jobs in enumerate(here.jobs):
        for job in jobs:
            for agent, mind in enumerate(job.minds):
                globally = same_bits(mind.weights, network.weights)
                assert globally == (agent != 1 or i == 0)
                assert not globally or mind.deviation == 1.0
    seeds = [mind.seed for jobs in here.jobs for job in jobs for mind in job.minds]
    assert len(set(seeds)) == 3 * 4 * 3
    assert len({job.seed for jobs in here.jobs for job in jobs} | set(seeds)) == 3 * 4 * 4


def test_a_client_that_trains_sees_with_what_it_has_seen_in_this_round(bench):
    here = bench(Walk(), clients=[1])
    here.train()
    first, later = here.jobs[0][0].minds, here.jobs[2][0].minds
    # Nobody has seen anything at first; then only who trains has.
    assert all((mind.centre == 0).all() and (mind.scale == 1).all() for mind in first)
    assert (later[0].centre == 0).all()
    assert (later[1].centre != 0).all()


def test_the_same_keys_give_the_same_bits(bench):
    here = bench(Walk())
    assert same_bits(here.train(), here.train())
    assert same_bits(here.train(), bench(Walk()).train())


def test_lost_workers_change_nothing_and_are_counted(bench, tmp_path):
    for i in range(3):
        (tmp_path / str(i)).touch()
    calm, harmed = bench(Walk()), bench(Walk(mishap="die", tickets=str(tmp_path)))
    assert same_bits(calm.train(), harmed.train())
    assert calm.engine.report() == {"simulators_replaced": 0}
    assert harmed.engine.report() == {"simulators_replaced": 3}


def test_steps_after_a_true_end_count_for_nothing(bench):
    outcomes = bench(Walk(ends=5)).train()
    for update, state, metrics in outcomes:
        assert update.weight == 3 * 4 * 5
        assert metrics["steps"].tolist() == [20, 20, 20]
        assert update.model.observations.count == 3 * 4 * 5
        assert state.iterations == 3


def test_without_an_end_every_step_counts(bench):
    assert [update.weight for update, _, _ in bench(Walk()).train()] == [3 * 32] * 3


def test_the_returns_logged_are_those_of_each_clients_own_episodes(bench):
    here = bench(Walk())
    episodes = []
    run = here.engine._workers.run

    def kept(jobs):
        episodes.append(run(jobs))
        return episodes[-1]

    here.engine._workers.run = kept
    for client, (_, _, metrics) in enumerate(here.train()):
        expected = [np.mean([e.returns()[client] for e in some]) for some in episodes]
        assert metrics["train_return"] == pytest.approx(np.array(expected), rel=1e-5)


def test_an_evaluation_is_everybody_with_the_global_policy_and_repeats_itself(bench):
    here = bench(Walk())
    returns = [here.engine.evaluate(here.model, here.state.clients, KEY, 5, d) for d in (0, 0, 1)]
    assert [r.shape for r in returns] == [(3, 5)] * 3
    assert np.array_equal(returns[0], returns[1])
    assert not np.array_equal(returns[0], returns[2])
    assert len(np.unique(returns[0])) == 15
    for mind in (mind for job in here.jobs[2] for mind in job.minds):
        assert mind.deviation == 0
        assert same_bits(mind.weights, here.model.policy.network.weights)


def test_evaluation_with_more_episodes_begins_with_the_same_ones(bench):
    here = bench(Walk())
    few, many = (
        here.engine.evaluate(here.model, here.state.clients, KEY, n, False) for n in (2, 6)
    )
    assert np.array_equal(few, many[:, :2])


def test_known_returns_are_evaluated(bench):
    """The fresh policy's mode is 0, so the return is -target^2."""
    here = bench(Points(targets=(-2.0, 3.0)), clients=[0, 1])
    found = here.engine.evaluate(here.model, here.state.clients, KEY, 3, True)
    assert found == pytest.approx(np.array([[-4.0] * 3, [-9.0] * 3]), rel=0.02)


def test_actors_of_a_job_see_what_the_policy_was_trained_on(bench):
    """The first action of an episode is that of the job's own mind on the first observation."""
    here = bench(Walk())
    here.train()
    job = here.jobs[1][0]
    (episode,) = here.engine._workers.run([job])
    again = Actors(job.minds, job.steps)(episode.observation[0], 0)
    np.testing.assert_allclose(again, episode.action[0], rtol=1e-6)


@pytest.mark.parametrize(("ends", "length"), [(0, 8), (5, 5)])
def test_a_recording_is_an_episode_of_everybody_seen_by_one(bench, ends, length):
    here = bench(Walk(ends=ends))
    recording = here.engine.record(here.model, here.state.clients, KEY, 1, True)
    assert recording.moments.shape == (length + 1, 3 * 2)
    # The toy rewards an agent with the sum of its two coordinates.
    expected = recording.moments[1:].reshape(length, 3, 2)[:, 1].sum(axis=1)
    np.testing.assert_allclose(recording.reward, expected, rtol=1e-6)
    again = here.engine.record(here.model, here.state.clients, KEY, 1, True)
    assert same_bits(recording, again)
