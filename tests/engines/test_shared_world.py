"""Clients of one simulation: each learns from its own experience as it would in a world of its own.

The worlds here are toys (tests/simulators/toys), whose answers are known.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FedKL, FedKLAnchored, Scaffold
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Start, Task, first_states
from fedkl.clients.round import local_round
from fedkl.clients.sources import Traced
from fedkl.clients.upload import Clip, UploadChain
from fedkl.clients.work import Evaluate, RecordEpisode, Train
from fedkl.core.errors import UserError
from fedkl.engines import Failure, InSharedWorld, Job
from fedkl.learning.randomness import key_data_of
from fedkl.learning.settings import CriticSettings, Sharing
from fedkl.simulators.actors import Actors
from fedkl.simulators.base import Recipe
from fedkl.simulators.episodes import run_job
from fedkl.worlds import Continuous, PointTarget, SharedWorld
from fedkl.worlds.probes import PointParams

pytestmark = pytest.mark.usefixtures("toys", "quick_compilation")
KEY = jax.random.key(3)
COMMON = key_data_of(KEY)


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
    cuts: int = eqx.field(static=True, default=0)
    leaves: tuple = eqx.field(static=True, default=())
    mishap: str = eqx.field(static=True, default="")
    tickets: str = eqx.field(static=True, default="")
    horizon: int = eqx.field(static=True, default=8)
    patience: ClassVar[float] = 20.0
    agents: ClassVar[int] = 3

    @property
    def truncates(self):
        return self.cuts > 0

    def simulator(self):
        arguments = {"agents": 3, "ends": self.ends, "cuts": self.cuts, "leaves": self.leaves}
        return Recipe(
            "toy_simulators:Walk", arguments | {"mishap": self.mishap, "tickets": self.tickets}
        )


class Bench:
    """An engine with a fresh federation, ready to train a round."""

    def __init__(
        self,
        world,
        clients=(0, 1, 2),
        at_once=1,
        algorithm=None,
        personal="none",
        upload=(),
        **learner,
    ):
        usual = {
            "iterations": 3,
            "steps": 32,
            "epochs": 2,
            "minibatch": 16,
            "hidden": (4,),
            "learning_rate": 0.05,
            "d_local": 0.05,
        }
        critic = CriticSettings(hidden=(4,), epochs=2, minibatch=16)
        settings = PolicyOptimisation(**usual | learner)
        self.task = Task(world, algorithm or FedKL(), settings, critic, UploadChain(upload))
        self.model, self.first = first_states(
            self.task, Sharing(personal=personal), jax.random.key(0)
        )
        self.engine = InSharedWorld(self.task, self.first, at_once)
        self.clients = list(clients)
        self.jobs = []
        run = self.engine._workers.run

        def watched(jobs):
            self.jobs.append(jobs)
            return run(jobs)

        self.engine._workers.run = watched

    def ask(self, work, clients, **more):
        """The answers of some clients, in the order in which they were asked."""
        jobs = [Job(c, key_data_of(jax.random.fold_in(KEY, c)), **more) for c in clients]
        answers = dict(self.engine.run(work, self.model, jobs, COMMON))
        return [answers[client] for client in clients]

    def train(self):
        return self.ask(Train(), self.clients)

    def evaluate(self, episodes, deterministic):
        return np.stack(self.ask(Evaluate(episodes, deterministic), range(3)))

    def states(self):
        """Of the clients, after what they have just trained."""
        self.engine.keep(1, self.clients)
        return self.engine.save()

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


def mode(trained):
    """What a client of `Points` would do now (its constant observation is standardised to 0)."""
    return float(trained.update.model.policy(np.zeros((1, 1))).mode()[0, 0])


class JaxNoise:
    """In place of workers: runs `Points` here, with the noise that a traced world would draw."""

    replaced = 0

    def __init__(self, world, episodes):
        self._recipe = world.simulator()
        self._episodes = episodes

    def run(self, jobs):
        return [self._one(job) for job in jobs]

    def _one(self, job):
        simulator = self._recipe.make()
        step = simulator.step
        offset = np.array([self._noise(actor) for actor in job.actors])
        simulator.step = lambda actions: step(actions + offset)
        calm = [actor._replace(deviation=0 * actor.deviation) for actor in job.actors]
        episode = run_job([simulator], job._replace(actors=calm))
        return episode._replace(action=(episode.action + offset[:, None]).astype(np.float32))

    def _noise(self, actor):
        key = jax.random.wrap_key_data(np.array(actor.seeds[0].key_data, np.uint32))
        _, step_key = jax.random.split(key)
        act_key, _ = jax.random.split(jax.random.split(step_key, 1)[0])
        (episode,) = actor.seeds[0].numbers
        return jax.random.normal(act_key, (self._episodes, 1))[episode] * actor.deviation


@pytest.mark.parametrize("at_once", [1, 2])
def test_with_the_same_noise_a_client_learns_what_local_round_teaches_it(
    bench, toys, monkeypatch, at_once
):
    monkeypatch.syspath_prepend(toys)
    world = Points()
    here = bench(world, at_once=at_once)
    workers, here.engine._workers = here.engine._workers, JaxNoise(world, 32)
    together, states = here.train(), here.states()
    here.engine._workers = workers
    task = Task(PointTarget(), here.task.algorithm, here.task.learner, here.task.critic)
    alone = jax.jit(lambda start, params: local_round(task, start, Traced(task.world, params)))
    for client, trained in enumerate(together):
        expected = alone(
            Start(here.model, here.first, jax.random.fold_in(KEY, client)),
            PointParams(jnp.asarray(world.targets[client])),
        )
        outcome = (trained, states[client])
        assert jax.tree.structure(outcome) == jax.tree.structure(expected)
        for ours, theirs in zip(jax.tree.leaves(outcome), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_clients_chain_changes_what_is_sent_as_it_does_elsewhere(bench, at_once):
    plain = bench(Points(), at_once=at_once)
    clipped = bench(Points(), at_once=at_once, upload=(Clip(0.01),))
    before, after = plain.train(), clipped.train()
    assert same_bits(plain.states(), clipped.states())
    for client, (one, other) in enumerate(zip(before, after, strict=True)):
        start = Start(plain.model, plain.first, jax.random.fold_in(KEY, client))
        expected = jax.jit(clipped.task.upload)(one.update, start)
        assert not same_bits(one.update, other.update)
        if at_once == 1:
            assert same_bits(expected, other.update)
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(other.update), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_every_client_learns_from_its_own_rewards_and_keeps_its_place(bench):
    outcomes = bench(Points(), clients=[2, 0]).train()
    assert mode(outcomes[0]) > 0.05  # wants 1
    assert mode(outcomes[1]) < -0.05  # wants -1


def test_clients_who_do_not_meet_do_not_depend_on_who_else_is_selected(bench):
    pair, other = bench(Points(), clients=[1, 2]).train(), bench(Points(), clients=[0, 1]).train()
    assert same_bits(pair[0], other[1])


def test_clients_vmapped_together_give_the_same_update_up_to_rounding(bench):
    singly, together = (bench(Walk(), at_once=n).train() for n in (1, 3))
    for a, b in zip(jax.tree.leaves(singly), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_who_is_not_selected_acts_with_the_global_policy_all_along(bench):
    here = bench(Walk(), clients=[1])
    here.train()
    assert [len(jobs) for jobs in here.jobs] == [4, 4, 4]  # 32 steps are 4 episodes of 8
    network = here.model.policy.network
    for i, jobs in enumerate(here.jobs):
        for job in jobs:
            for agent, actor in enumerate(job.actors):
                globally = same_bits(actor.weights, network.weights)
                assert globally == (agent != 1 or i == 0)
                assert not globally or actor.deviation == 1.0
    seeds = [actor.seeds for jobs in here.jobs for job in jobs for actor in job.actors]
    assert len(set(seeds)) == 3 * 4 * 3
    assert len({job.seeds for jobs in here.jobs for job in jobs} | set(seeds)) == 3 * 4 * 4


def test_a_client_that_trains_sees_with_what_it_has_seen_in_this_round(bench):
    here = bench(Walk(), clients=[1])
    here.train()
    first, later = here.jobs[0][0].actors, here.jobs[2][0].actors
    # Nobody has seen anything at first; then only who trains has.
    assert all((actor.centre == 0).all() and (actor.scale == 1).all() for actor in first)
    assert (later[0].centre == 0).all()
    assert (later[1].centre != 0).all()


def test_the_same_keys_give_the_same_bits(bench):
    here = bench(Walk())
    assert same_bits(here.train(), here.train())
    assert same_bits(here.train(), bench(Walk()).train())


@pytest.mark.parametrize("collect", ["steps", "episodes"])
def test_lost_workers_change_nothing_and_are_counted(bench, tmp_path, collect):
    for i in range(3):
        (tmp_path / str(i)).touch()
    calm = bench(Walk(ends=5), collect=collect)
    harmed = bench(Walk(ends=5, mishap="die", tickets=str(tmp_path)), collect=collect)
    assert same_bits(calm.train(), harmed.train())
    assert calm.engine.report() == {"simulators_replaced": 0}
    assert harmed.engine.report() == {"simulators_replaced": 3}


def test_steps_after_a_true_end_count_for_nothing(bench):
    here = bench(Walk(ends=5), collect="episodes")
    for update, metrics in here.train():
        assert update.weight == 3 * 4 * 5
        assert metrics["steps"].tolist() == [20, 20, 20]
        assert update.model.observations.count == 3 * 4 * 5
    assert [state.iterations for state in here.states().values()] == [3, 3, 3]


@pytest.mark.parametrize(("ends", "cuts"), [(5, 0), (0, 3), (5, 3), (1, 0), (0, 0)])
def test_an_iteration_is_exactly_so_many_steps_however_episodes_end(bench, ends, cuts):
    """30 steps are three columns of 8 and one of 6."""
    here = bench(Walk(ends=ends, cuts=cuts), steps=30)
    for update, metrics in here.train():
        assert metrics["steps"].tolist() == [30, 30, 30]
        assert update.model.observations.count == 3 * 30
    assert [job.lengths for job in here.jobs[0]] == [(8,), (8,), (8,), (6,)]


def test_an_agent_that_is_gone_waits_for_the_next_episode(bench):
    here = bench(Walk(leaves=(2, 1, 3)), steps=32)
    # Columns of 8: episodes of 3, 3 and 2 steps.
    expected = [4 * (2 + 2 + 2), 4 * (1 + 1 + 1), 4 * 8]
    for (update, metrics), steps in zip(here.train(), expected, strict=True):
        assert metrics["steps"].tolist() == [steps] * 3
        assert update.weight == 3 * steps


def test_a_world_must_say_that_its_simulator_cuts_episodes_off(bench):
    class Silent(Walk):
        truncates: ClassVar[bool] = False

    with pytest.raises(UserError, match="its world must say that this may happen"):
        bench(Silent(cuts=3)).train()


def test_without_an_end_every_step_counts(bench):
    assert [trained.update.weight for trained in bench(Walk()).train()] == [3 * 32] * 3


def test_the_returns_logged_are_those_of_each_clients_own_episodes(bench):
    here = bench(Walk())
    episodes = []
    run = here.engine._workers.run

    def kept(jobs):
        episodes.append(run(jobs))
        return episodes[-1]

    here.engine._workers.run = kept
    for client, (_, metrics) in enumerate(here.train()):
        expected = [np.mean([e.returns()[client] for e in some]) for some in episodes]
        assert metrics["train_return"] == pytest.approx(np.array(expected), rel=1e-5)


def test_an_evaluation_is_everybody_with_the_global_policy_and_repeats_itself(bench):
    here = bench(Walk())
    returns = [here.evaluate(5, deterministic) for deterministic in (False, False, True)]
    assert [r.shape for r in returns] == [(3, 5)] * 3
    assert np.array_equal(returns[0], returns[1])
    assert not np.array_equal(returns[0], returns[2])
    assert len(np.unique(returns[0])) == 15
    for actor in (actor for job in here.jobs[2] for actor in job.actors):
        assert actor.deviation == 0
        assert same_bits(actor.weights, here.model.policy.network.weights)


def test_evaluation_with_more_episodes_begins_with_the_same_ones(bench):
    here = bench(Walk())
    few, many = (here.evaluate(n, False) for n in (2, 6))
    assert np.array_equal(few, many[:, :2])


def test_known_returns_are_evaluated(bench):
    """The fresh policy's mode is 0, so the return is -target^2."""
    found = bench(Points(targets=(-2.0, 3.0, 1.0))).evaluate(3, True)
    assert found == pytest.approx(np.array([[-4.0] * 3, [-9.0] * 3, [-1.0] * 3]), rel=0.05)


def test_actors_of_a_job_see_what_the_policy_was_trained_on(bench):
    """The first action of an episode is that of the job's own actor on the first observation."""
    here = bench(Walk())
    here.train()
    job = here.jobs[1][0]
    (episode,) = here.engine._workers.run([job])
    again = Actors(job.actors, job.lengths)(episode.observation[0], 0)
    np.testing.assert_allclose(again, episode.action[0], rtol=1e-6)


@pytest.mark.parametrize(("ends", "length"), [(0, 8), (5, 5)])
def test_a_recording_is_an_episode_of_everybody_seen_by_one(bench, ends, length):
    here = bench(Walk(ends=ends))
    (recording,) = here.ask(RecordEpisode(True), [1])
    assert recording.states.shape == (length + 1, 3 * 2)
    assert recording.mask.tolist() == [True] * length + [False] * (8 - length)
    assert recording.params is None
    # The toy rewards an agent with the sum of its two coordinates.
    expected = recording.states[1:].reshape(length, 3, 2)[:, 1].sum(axis=1)
    np.testing.assert_allclose(recording.reward[:length], expected, rtol=1e-6)
    assert same_bits(recording, here.ask(RecordEpisode(True), [1])[0])


def test_a_clients_state_is_its_own_only_when_the_server_has_accepted_it(bench):
    here = bench(Walk())
    here.train()
    here.engine.keep(1, [0])
    assert list(here.engine.save()) == [0]
    other = bench(Walk())
    other.engine.restore(dict(here.engine.save()))
    assert same_bits(here.train(), other.train())


def test_a_job_with_a_model_of_its_own_starts_from_it(bench):
    here = bench(Points())
    start = here.train()
    moved = eqx.tree_at(
        lambda m: m.policy.network.biases[-1], here.model, np.full(1, 0.3, np.float32)
    )
    jobs = [
        Job(c, key_data_of(jax.random.fold_in(KEY, c)), model=moved if c == 1 else None)
        for c in here.clients
    ]
    answers = dict(here.engine.run(Train(), here.model, jobs, COMMON))
    first = here.jobs[3][0].actors
    assert [actor.biases[-1] == np.float32(0.3) for actor in first] == [False, True, False]
    # Points do not meet, so the others learn what they would have.
    assert same_bits([answers[0], answers[2]], [start[0], start[2]])
    assert not same_bits(answers[1], start[1])


def test_a_client_whose_new_state_is_not_finite_fails_and_keeps_its_old_one(bench):
    here = bench(Points(), algorithm=Scaffold(), guard=False, learning_rate=1e30)
    for answer in here.train():
        assert isinstance(answer, Failure)
        assert answer.reason.endswith("is not finite")
    here.engine.keep(1, [])
    assert here.engine.save() == {}


@pytest.mark.parametrize("at_once", [1, 3])
def test_who_has_a_personal_part_acts_with_it_here_too(bench, at_once):
    """Clients 0 and 2 want -1 and 1; all that they do not share is a bias."""
    here = bench(Points(), at_once=at_once, personal="action-bias", hidden=(3,))
    for answer in here.train():
        assert answer.update.model.policy.network.biases[-1] is None
    states = here.states()
    own = [float(states[n].personal.network.biases[-1][0]) for n in range(3)]
    assert own[0] < -0.02 < 0.02 < own[2]
    here.evaluate(1, True)
    (job,) = here.jobs[-1]
    assert [float(actor.biases[-1][0]) for actor in job.actors] == pytest.approx(own, rel=1e-5)


def test_who_has_a_whole_policy_of_its_own_acts_with_it_here_too(bench):
    here = bench(Points(), personal="all", hidden=(3,))
    for answer in here.train():
        assert jax.tree.leaves(answer.update.model.policy) == []
    states = here.states()
    own = [states[n].personal.network for n in range(3)]
    here.evaluate(1, True)
    (job,) = here.jobs[-1]
    for actor, network in zip(job.actors, own, strict=True):
        jax.tree.map(np.testing.assert_array_equal, actor.weights, network.weights)
        jax.tree.map(np.testing.assert_array_equal, actor.biases, network.biases)


@pytest.mark.parametrize("anchors", ["normal", "shared"])
def test_anchors_are_drawn_in_a_shared_world_too(bench, anchors):
    algorithm = FedKLAnchored(anchors=anchors)
    here = bench(Walk(), algorithm=algorithm, hidden=(3,), iterations=2)
    for update, metrics in here.train():
        assert np.isfinite(metrics["kl_local"]).all()
        products = update.model.observations.products
        if anchors == "shared":
            assert products is None
            assert update.message.shape == (24, 2)
            assert np.abs(update.message).max() > 0
        else:
            assert products.shape == (1,)
            assert products[0] != 0
            assert update.message == ()


def test_other_work_is_refused_by_name(bench):
    class Dance(eqx.Module):
        name: ClassVar[str] = "dance"

        def __call__(self, task, start, source):
            return "danced", None

    with pytest.raises(TypeError, match="cannot be asked to dance"):
        bench(Points()).ask(Dance(), [0])
