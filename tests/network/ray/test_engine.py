"""Clients in actors of Ray answer what clients in this process do, to the bit, whatever dies."""

import os
import signal
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from actor_processes import actor_processes
from waiting import until

import fedkl
from fedkl.clients.work import Train
from fedkl.engines import Engine, Job
from fedkl.learning.randomness import Purpose, key_data_of, key_for
from fedkl.network.ray.engine import Ray
from fedkl.server.loop import Federation
from fedkl.server.state import broadcast
from fedkl.training import lifecycle

PLUGIN = str(Path(__file__).parent / "plugins" / "counting.py")
COMMON = key_data_of(key_for(0, Purpose.SHARED_WORLD, 0, 0))
SETTINGS = {
    "federation.clients": 12,
    "federation.clients_per_round": 5,
    "federation.critic": "local",
    "federation.rounds": 3,
    "learner.iterations": 2,
    "learner.steps": 64,
    "learner.epochs": 2,
    "learner.minibatch": 16,
    "evaluation.episodes": 3,
    "heterogeneity.every": 2,
    "heterogeneity.trajectories": 4,
}
"""A plugin's algorithm, states of clients that differ, everything that a client can be asked."""
BEFORE = {"federation.rounds": 1, "learner.iterations": 1, "learner.steps": 64}


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def without_times(records):
    return [
        {k: v for k, v in r.items() if k not in ("seconds", "actors_replaced")} for r in records
    ]


class Trained:
    """A federation that has run to its end."""

    def __init__(self, config, engine=None):
        federation = Federation(config, engine)
        self.records = list(federation)
        self.model, self.states = federation.state.model, dict(federation.engine.save())

    def same_as(self, other):
        assert without_times(self.records) == without_times(other.records)
        assert self.states.keys() == other.states.keys()
        return same_bits((self.model, self.states), (other.model, other.states))


@pytest.fixture(scope="module")
def counting():
    """The config that most tests share: opening actors takes seconds."""
    return fedkl.preset("probe-point", "counting", 0, SETTINGS, [PLUGIN])


@pytest.fixture(scope="module")
def here(counting):
    return Trained(counting)


@pytest.fixture(scope="module")
def opened(cluster, counting):
    engine = Ray(counting, 2)
    yield engine
    engine.close()


@pytest.fixture
def ray(opened):
    """Two actors, and clients who have not trained."""
    opened.restore({})
    until(lambda: len(actor_processes()) == 2)
    return opened


def test_what_starts_from_another_run_has_the_bits_of_one_process(cluster, counting, tmp_path):
    """First in this file: afterwards all CPUs belong to the actors that the others share."""
    before = lifecycle.create(fedkl.preset("probe-point", "fedavg", 1, BEFORE), tmp_path / "before")
    lifecycle.run_remaining(before, lambda record: None, pytest.fail)
    config = fedkl.start_from(counting, before.path, warn=lambda message: None)
    engine = Ray(config, 2)
    try:
        there = Trained(config, engine)
    finally:
        engine.close()
    assert there.same_as(Trained(config))
    assert not same_bits(there.model, Trained(counting).model)


def test_bits_are_those_of_one_process(counting, here, ray):
    assert isinstance(ray, Engine)
    there = Trained(counting, ray)
    assert there.same_as(here)
    assert there.records[-1]["actors_replaced"] == 0
    assert {type(state.own).__name__ for state in there.states.values()} == {"Kept"}


def test_an_actor_that_is_killed_in_a_round_changes_nothing(counting, here, ray):
    before = ray.report()["actors_replaced"]
    victim = actor_processes()[0]
    os.kill(victim, signal.SIGSTOP)  # so that it is lost with work in its hands
    timer = threading.Timer(2.0, os.kill, (victim, signal.SIGKILL))
    timer.start()
    there = Trained(counting, ray)
    timer.join()
    assert there.same_as(here)
    assert ray.report() == {"actors_replaced": before + 1}


def test_an_actor_that_hangs_is_replaced_and_changes_nothing(counting, here, ray, monkeypatch):
    monkeypatch.setattr(ray._actors, "_patience", 3.0)
    before = ray.report()["actors_replaced"]
    victim = actor_processes()[0]
    os.kill(victim, signal.SIGSTOP)
    assert Trained(counting, ray).same_as(here)
    assert ray.report()["actors_replaced"] > before
    until(lambda: victim not in actor_processes())


def test_whoever_has_enough_closes_it_and_the_next_is_asked_at_once(counting, ray):
    federation = Federation(counting, ray)
    model = broadcast(federation.state.model)
    jobs = [Job(c, key_data_of(key_for(0, Purpose.TRAINING, 0, c, 0))) for c in range(12)]
    coming = ray.run(Train(), model, jobs, COMMON)
    (first, answer) = next(coming)
    coming.close()
    assert first == 0
    assert set(ray.pending) == {0}
    again = dict(ray.run(Train(), model, jobs[::-1], COMMON))
    assert list(again) == list(range(11, -1, -1))
    assert same_bits(again[0], answer)
