"""Clients with a simulator of their own on the host, trained like those whose world is traced."""

import os
import signal
import threading
from dataclasses import replace

import jax
import numpy as np
import pytest
from toy_worlds import Points

from fedkl.clients.work import Train
from fedkl.engines import Job
from fedkl.learning.randomness import Purpose, key_data_of, key_for
from fedkl.server.loop import Federation
from fedkl.server.state import broadcast
from fedkl.simulators.base import SimulatorError

pytestmark = pytest.mark.usefixtures("toys", "quick_compilation")
COMMON = key_data_of(key_for(0, Purpose.SHARED_WORLD, 0, 0))


@pytest.fixture
def hosted(tiny):
    """Makes federations on the host, and ends their simulators."""
    made = []

    def make(world=None, **settings):
        config = tiny(**settings)
        made.append(Federation(replace(config, world=world or Points())))
        return made[-1]

    yield make
    for federation in made:
        federation.engine.close()


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def train(federation, clients):
    """A round of these clients alone, whoever would be selected."""
    jobs = [Job(c, key_data_of(key_for(0, Purpose.TRAINING, 0, c, 0))) for c in clients]
    model = broadcast(federation.state.model)
    return dict(federation.engine.run(Train(), model, jobs, COMMON))


def mode(policy):
    """What a policy does (the constant observation is standardised to 0)."""
    return float(policy(np.zeros((1, 1))).mode()[0, 0])


def test_training_on_the_host_is_a_pure_function_of_the_config(hosted):
    first, second = hosted(federation__rounds=2), hosted(federation__rounds=2)
    records = [[{**r, "seconds": 0} for r in list(f)] for f in (first, second)]
    assert records[0] == records[1]
    assert records[0][-1]["simulators_replaced"] == 0
    assert records[0][-1]["env_steps"] == 2 * 2 * 2 * 64
    assert same_bits(first.state, second.state)
    assert not same_bits(first.state.model.policy, hosted().state.model.policy)


def test_a_run_on_the_host_can_be_taken_up(hosted):
    whole, first, second = (hosted(federation__rounds=2) for _ in range(3))
    list(whole)
    first.run_round()
    second.restore(*first.save()[:2])
    list(second)
    assert same_bits(whole.state, second.state)
    assert same_bits(dict(whole.engine.save()), dict(second.engine.save()))


def test_an_engine_is_closed_at_once_while_a_simulator_hangs(hosted):
    federation = hosted()
    train(federation, [0])
    for process in federation.engine._site.workers.processes():
        os.kill(process, signal.SIGSTOP)
    outcome = []

    def waits():
        with pytest.raises(SimulatorError) as given_up:
            train(federation, [1])
        outcome.append(given_up)

    waiting = threading.Thread(target=waits)
    waiting.start()
    waiting.join(0.5)
    federation.engine.close()
    waiting.join(100)  # it would be given up after ten times 20 s
    assert outcome


def test_a_client_on_the_host_does_not_depend_on_who_else_is_selected(hosted):
    alone, pair = train(hosted(), [2]), train(hosted(), [1, 2])
    assert same_bits(alone[2], pair[2])


def test_every_client_learns_from_its_own_row(hosted):
    """Targets are 0.5 - 2, ..., 0.5 + 2 and the policy starts near 0."""
    answers = train(hosted(Points(spread=2.0)), [0, 3])
    assert mode(answers[0].update.model.policy) < -0.05
    assert mode(answers[3].update.model.policy) > 0.05


@pytest.mark.parametrize("collect", ["steps", "episodes"])
def test_killed_simulators_are_replaced_and_change_nothing(hosted, collect):
    settings = {"federation__rounds": 2, "learner__collect": collect}
    world = Points(horizon=5, length=3)
    calm, harmed = hosted(world, **settings), hosted(world, **settings)
    list(calm)
    harmed.run_round()
    for process in harmed.engine._site.workers.processes():
        os.kill(process, signal.SIGKILL)
    harmed.run_round()
    assert harmed.engine.report()["simulators_replaced"] >= 1
    assert calm.engine.report() == {"simulators_replaced": 0}
    assert same_bits(calm.state, harmed.state)


@pytest.mark.parametrize(("collect", "steps"), [("steps", 64), ("episodes", 13 * 3)])
def test_an_iteration_has_so_many_steps_although_episodes_end_early(hosted, collect, steps):
    """64 steps are 13 columns of 5, or as many episodes, which end after 3."""
    federation = hosted(Points(horizon=5, length=3), learner__collect=collect)
    record = federation.run_round()
    assert record["env_steps"] == 2 * 2 * steps


def test_known_returns_are_evaluated(hosted):
    """The fresh policy's mode is near 0, so a step is paid with -target^2, and there are three."""
    federation = hosted(Points(spread=2.0, horizon=3, length=3))
    returns = federation.evaluate(2, deterministic=True)
    targets = np.linspace(-1.5, 2.5, 4)
    assert returns == pytest.approx(np.tile(-3 * targets[:, None] ** 2, 2), abs=0.5)
    assert np.array_equal(federation.evaluate(2, deterministic=True), returns)
    assert np.array_equal(federation.evaluate(2, deterministic=True, clients=[3]), returns[3:])


def test_a_film_ends_with_the_episode(hosted):
    """The horizon is 5, but the simulator ends after 2 steps."""
    federation = hosted(Points(spread=2.0, horizon=5, length=2))
    film = federation.film(3, deterministic=True)
    assert [frame[0, 0].tolist() for frame in film.frames] == [[25, 0, 0], [25, 1, 1], [25, 2, 2]]
    assert film.episode_return == pytest.approx(-2 * 2.5**2, abs=0.5)


def test_the_hosted_world_teaches_what_its_traced_twin_does(hosted, tiny):
    """Four clients whose targets are 0.5 on average; best for all is 0.5."""
    settings = {
        "federation__clients_per_round": 4,
        "federation__rounds": 8,
        "learner__iterations": 4,
        "evaluation__every": 100,
    }
    on_the_host = hosted(Points(spread=0.3), **settings)
    traced = Federation(tiny(world__spread=0.3, **settings))
    for federation in (on_the_host, traced):
        list(federation)
        assert mode(federation.state.model.policy) == pytest.approx(0.5, abs=0.12)
    counts = [f.state.model.observations.count for f in (on_the_host, traced)]
    assert counts[0] == counts[1] == 8 * 4 * 4 * 64
