"""The figure-eight trained by the engine for shared worlds, on real SUMO, with real kills."""

import os
import random
import signal
import threading
import time

import jax
import numpy as np
import pytest

import fedkl
from fedkl.server.loop import Federation

pytestmark = pytest.mark.usefixtures("quick_compilation")

SHORT = {
    "world.horizon": 50,
    "learner.steps": 50,
    "learner.iterations": 3,
    "learner.epochs": 2,
    "learner.hidden": [8],
    "critic.hidden": [8],
    "evaluation.episodes": 2,
    "federation.rounds": 2,
}


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def road(**settings):
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    return Federation(fedkl.preset("figure-eight", set=SHORT | dotted))


def kill_one(federation, generator, after):
    """Kills a worker after a while; returns whether there was one."""
    time.sleep(generator.uniform(0, after))
    pids = federation.engine._workers.processes()
    if not pids:
        return False
    os.kill(generator.choice(pids), signal.SIGKILL)
    return True


def killed_run(federation, kills):
    """Trains to the end while workers are killed at random moments, in every round some."""
    generator = random.Random(7)
    each = -(-kills // federation.config.federation.rounds)
    done, took = [], 1.0
    for _ in range(federation.config.federation.rounds):
        stop = threading.Event()

        def killer(took=took, stop=stop):
            hits = 0
            while hits < each and len(done) < kills and not stop.is_set():
                if kill_one(federation, generator, took / each):
                    hits += 1
                    done.append(True)

        thread = threading.Thread(target=killer)
        start = time.monotonic()
        thread.start()
        federation.run_round()
        stop.set()
        thread.join()
        took = time.monotonic() - start
    return len(done)


def test_a_round_on_the_road_is_whole_and_repeats_itself():
    first, second = road(), road()
    a, b = list(first), list(second)
    assert same_bits(first.state, second.state)
    assert [{**r, "seconds": 0} for r in a] == [{**r, "seconds": 0} for r in b]
    assert a[0]["selected"] == list(range(7))
    assert a[0]["env_steps"] == 7 * 3 * 50
    assert a[0]["simulators_replaced"] == 0
    # One reward for all.
    assert len(set(a[0]["return_per_client"])) == 1
    assert not same_bits(first.state.model.policy, road().state.model.policy)


def test_a_run_on_the_road_can_be_taken_up_in_memory():
    whole, first = road(), road()
    list(whole)
    first.run_round()
    second = Federation(first.config)
    second.restore(*first.save()[:2])
    list(second)
    assert same_bits(whole.state, second.state)
    assert same_bits(dict(whole.engine.save()), dict(second.engine.save()))


@pytest.mark.parametrize("selected", [1, 3])
def test_fewer_than_all_may_be_selected(selected):
    federation = road(federation__clients_per_round=selected)
    record = federation.run_round()
    assert len(record["selected"]) == selected
    assert record["env_steps"] == selected * 3 * 50
    assert sorted(federation.engine.save()) == record["selected"]


def test_workers_killed_in_the_middle_of_a_round_change_nothing():
    undisturbed, harmed = road(), road()
    list(undisturbed)
    hits = killed_run(harmed, kills=4)
    assert hits >= 2
    assert harmed.engine.report()["simulators_replaced"] >= 1
    assert same_bits(undisturbed.state, harmed.state)


def test_evaluation_on_the_road_changes_nothing_in_training():
    watched, blind = road(), road(evaluation__every=100)
    for _ in watched:
        watched.evaluate(3, deterministic=True)
    list(blind)
    assert same_bits(watched.state, blind.state)


@pytest.mark.slow
def test_twenty_rounds_whose_workers_are_killed_twenty_times_end_with_the_same_parameters():
    settings = {
        "world__horizon": 300,
        "learner__steps": 300,
        "learner__iterations": 5,
        "learner__hidden": [100, 50, 25],
        "critic__hidden": [256, 256],
        "federation__rounds": 20,
    }
    undisturbed, harmed = road(**settings), road(**settings)
    list(undisturbed)
    assert killed_run(harmed, kills=20) == 20
    assert undisturbed.engine.report() == {"simulators_replaced": 0}
    assert harmed.engine.report()["simulators_replaced"] >= 15  # one may die before it is needed
    assert same_bits(undisturbed.state, harmed.state)
