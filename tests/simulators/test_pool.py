"""Workers that come to harm are replaced and change nothing; none is left running."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from waiting import PATIENCE, runs, until

from fedkl.core.errors import UserError
from fedkl.core.own_code import OwnCodeError
from fedkl.core.plugins import load_plugin
from fedkl.simulators import pool
from fedkl.simulators.base import ProcessLostError, Recipe, Seed
from fedkl.simulators.episodes import EpisodeJob
from fedkl.simulators.pool import SimulatorProcess, Workers

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def jobs(linear):
    actors = [linear(0.1, [1.0, -1.0], 0.5, Seed((9,), (n,))) for n in range(2)]
    return [EpisodeJob((Seed((e,)),), actors, (10,)) for e in range(8)]


@pytest.fixture
def open_pool():
    """Makes pools of two walking workers, and closes them."""
    pools = []

    def make(timeout=20.0, **arguments):
        pools.append(Workers(Recipe("toy_simulators:Walk", arguments), timeout, number=2))
        return pools[-1]

    yield make
    for each in pools:
        each.close()


@pytest.fixture
def tickets(tmp_path):
    """Makes a folder for so many mishaps."""

    def make(number):
        for i in range(number):
            (tmp_path / str(i)).touch()
        return str(tmp_path)

    return make


def same(a, b):
    return all(
        np.array_equal(x, y)
        for one, other in zip(a, b, strict=True)
        for x, y in zip(one, other, strict=True)
    )


def test_episodes_come_in_the_order_of_their_jobs_whoever_ran_them(open_pool, jobs):
    workers = open_pool()
    forward, backward = workers.run(jobs), workers.run(jobs[::-1])
    assert same(forward, backward[::-1])
    first = {episode.observation[0, 0, 0, 0] for episode in forward}
    assert len(first) == len(jobs)
    assert len(workers.processes()) == 2
    assert workers.replaced == 0


@pytest.mark.parametrize("length", [1, 10])
def test_a_clients_params_travel_with_its_jobs_to_whoever_runs_them(linear, length):
    actor = linear(0.1, [1.0], 0.5, Seed((9,)))
    targets = [-1.0, 0.0, 1.0, 2.0] * 2
    jobs = [
        EpisodeJob((Seed((e,)),), [actor], (10,), params={"target": np.float32(target)})
        for e, target in enumerate(targets)
    ]
    workers = Workers(Recipe("toy_simulators:Point", {"length": length}), 20.0, number=2)
    forward, backward = workers.run(jobs), workers.run(jobs[::-1])
    workers.close()
    assert same(forward, backward[::-1])
    for episode, target in zip(forward, targets, strict=True):
        expected = np.where(episode.mask, -np.square(episode.action[..., 0] - target), 0)
        np.testing.assert_allclose(episode.reward, expected, rtol=1e-5)
    assert len({episode.returns()[0, 0] for episode in forward}) == 4


@pytest.mark.parametrize(
    ("mishap", "number", "timeout"), [("die", 3, 20.0), ("lose", 3, 20.0), ("hang", 1, 2.0)]
)
def test_lost_episodes_are_run_again_and_come_out_the_same(
    open_pool, jobs, tickets, mishap, number, timeout
):
    undisturbed = open_pool().run(jobs)
    harmed = open_pool(timeout, mishap=mishap, tickets=tickets(number))
    assert same(harmed.run(jobs), undisturbed)
    # What is over is over: the next episodes cost nobody.
    assert same(harmed.run(jobs), undisturbed)
    # On a busy machine an episode may take longer than the timeout, and counts as hanging, too.
    assert harmed.replaced >= number if mishap == "hang" else harmed.replaced == number


def test_workers_killed_from_outside_are_replaced_when_they_are_needed_again(open_pool, jobs):
    workers = open_pool()
    undisturbed = workers.run(jobs)
    before = workers.processes()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert same(workers.run(jobs), undisturbed)
    assert workers.replaced == 2
    assert not set(before) & set(workers.processes())


def test_a_worker_that_is_stopped_counts_as_hanging(open_pool, jobs):
    workers = open_pool(timeout=2.0)
    undisturbed = workers.run(jobs)
    victim = workers.processes()[0]
    os.kill(victim, signal.SIGSTOP)
    assert same(workers.run(jobs), undisturbed)
    assert workers.replaced >= 1
    assert not runs(victim)


@pytest.mark.parametrize(
    ("mishap", "reason"),
    [
        ("die", "the simulator's process ended with code -9"),
        ("lose", "a walker is lost"),
    ],
)
def test_an_episode_that_is_always_lost_is_given_up_with_its_reason(
    open_pool, jobs, monkeypatch, mishap, reason
):
    monkeypatch.setattr(pool, "ATTEMPTS", 3)
    workers = open_pool(mishap=mishap)
    with pytest.raises(UserError) as caught:
        workers.run(jobs[:1])
    expected = f"an episode was lost 3 times in a row, last because: {reason}"
    assert str(caught.value) == expected
    assert workers.replaced == 3
    assert workers.processes() == []


def test_an_error_in_a_users_simulator_names_its_place_and_brings_its_traceback(open_pool, jobs):
    workers = open_pool(mishap="bug")
    place = r"toy_simulators\.py, line \d+, in _bug: ZeroDivisionError: the walker's own"
    with pytest.raises(OwnCodeError, match=place) as caught:
        workers.run(jobs[:1])
    assert "worker.py" in caught.value.trace
    assert caught.value.trace.endswith("ZeroDivisionError: the walker's own\n")
    assert workers.replaced == 0


def test_a_defect_of_our_own_shows_the_traceback_of_the_simulators_process(open_pool):
    worker = SimulatorProcess()
    worker.open(Recipe("toy_simulators:Walk", {}))
    with pytest.raises(RuntimeError, match=r"in the simulator's process:\n(.|\n)*worker\.py"):
        worker.ask("no such method")
    worker.close()


def test_an_episode_that_always_hangs_is_given_up(open_pool, jobs, monkeypatch):
    monkeypatch.setattr(pool, "ATTEMPTS", 2)
    workers = open_pool(timeout=0.3, mishap="hang")
    with pytest.raises(UserError, match=r"lost 2 times in a row.*no answer within 0\.3 s"):
        workers.run(jobs[:1])


def test_it_takes_more_than_a_few_mishaps_to_give_up():
    assert pool.ATTEMPTS >= 5


def test_what_the_user_can_mend_is_said_at_once(open_pool, jobs):
    workers = open_pool(mishap="mistake")
    with pytest.raises(UserError, match=r"^the walker's shoes are untied$"):
        workers.run(jobs[:1])
    assert workers.replaced == 0


def test_a_simulator_that_cannot_be_made_says_why(jobs):
    with pytest.raises(UserError, match=r"^there is no road to walk on$"):
        SimulatorProcess().open(Recipe("toy_simulators:refuses", {}))
    with pytest.raises(OwnCodeError, match="no legs"):
        SimulatorProcess().open(Recipe("toy_simulators:breaks", {}))
    workers = Workers(Recipe("toy_simulators:breaks", {}), 20.0, number=1)
    with pytest.raises(OwnCodeError, match="no legs"):
        workers.run(jobs)
    workers.close()


def test_a_failed_run_leaves_the_pool_fit_for_the_next(open_pool, jobs, tickets, monkeypatch):
    undisturbed = open_pool().run(jobs)
    workers = open_pool(mishap="lose", tickets=tickets(1))
    with monkeypatch.context() as patch:
        patch.setattr(pool, "ATTEMPTS", 1)
        with pytest.raises(UserError):
            workers.run(jobs)
    assert same(workers.run(jobs), undisturbed)


def test_a_worker_answers_requests_one_by_one():
    worker = SimulatorProcess()
    worker.open(Recipe("toy_simulators:Walk", {"ends": 2}))
    try:
        first = worker.ask("reset", Seed((3,)))
        one = worker.ask("step", np.zeros((2, 1), np.float32))
        two = worker.ask("step", np.zeros((2, 1), np.float32))
        assert np.array_equal(worker.ask("picture"), two.observation.ravel())
        assert (one.terminated, two.terminated) == (False, True)
        assert np.array_equal(first, worker.ask("reset", Seed((3,))))
    finally:
        worker.close()


def test_nothing_is_left_running_after_close(open_pool, jobs):
    workers = open_pool()
    workers.run(jobs)
    pids = workers.processes()
    workers.close()
    assert not any(map(runs, pids))
    workers.close()


def test_closing_in_the_middle_of_an_episode_ends_it(open_pool, jobs):
    workers = open_pool(mishap="hang", timeout=4 * PATIENCE)
    failed = []

    def run():
        try:
            workers.run(jobs)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: len(workers.processes()) == 2)
    pids = workers.processes()
    start = time.monotonic()
    workers.close()
    thread.join(PATIENCE)
    assert time.monotonic() - start < PATIENCE
    assert failed
    assert not any(map(runs, pids))


def test_nothing_is_left_running_when_a_pool_is_forgotten(jobs):
    workers = Workers(Recipe("toy_simulators:Walk", {}), 20.0, number=2)
    workers.run(jobs)
    pids = workers.processes()
    del workers
    until(lambda: not any(map(runs, pids)))


PARENT = """
import sys, threading, time
import numpy as np
from fedkl.simulators.actors import Actor
from fedkl.simulators.base import ProcessLostError, Recipe, Seed
from fedkl.simulators.episodes import EpisodeJob
from fedkl.simulators.pool import Workers

mishap, ending = sys.argv[1:]
one = np.ones(1, np.float32)
weights = np.ones((2, 1), np.float32)
actor = Actor((weights,), (one,), one, np.zeros(2), np.ones(2), 5.0, 0.0, (Seed((1,)),))
workers = Workers(Recipe("toy_simulators:Walk", {"mishap": mishap}), 600, number=2)

def announce():
    while len(workers.processes()) < 2:
        time.sleep(0.01)
    print(*workers.processes(), flush=True)

if not mishap:
    workers.run([EpisodeJob((Seed((e,)),), [actor] * 2, (5,)) for e in range(20)])
announce() if not mishap else threading.Thread(target=announce).start()
if mishap:
    workers.run([EpisodeJob((Seed((e,)),), [actor] * 2, (5,)) for e in range(20)])
if ending == "raise":
    raise RuntimeError("on purpose")
if ending == "wait":
    time.sleep(600)
"""


@pytest.fixture
def parent(child):
    """Starts a process that has two workers; returns it and their numbers."""

    def start(mishap, ending):
        process = child("-c", PARENT, mishap, ending)
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2, process.stderr.read()
        return process, pids

    return start


@pytest.mark.parametrize("mishap", ["", "hang"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_parent_that_is_ended(parent, mishap, number):
    process, pids = parent(mishap, "wait")
    assert all(map(runs, pids))
    process.send_signal(number)
    until(lambda: not any(map(runs, pids)))
    # Whatever its workers are doing, it does not wait for them.
    until(lambda: process.poll() is not None)
    assert process.returncode != 0


@pytest.mark.parametrize("ending", ["return", "raise"])
def test_nothing_outlives_a_parent_that_ends_without_closing(parent, ending):
    process, pids = parent("", ending)
    assert process.wait(PATIENCE) == (ending == "raise")
    until(lambda: not any(map(runs, pids)))
    assert "Traceback" not in process.stderr.read() or ending == "raise"


def test_a_worker_that_is_stopped_counts_as_hanging_even_if_the_job_fills_the_pipe(linear):
    bias = np.zeros(400_000, np.float32)
    actor = linear(0.1, [1.0, -1.0], 0.5, Seed((9,)))
    heavy = actor._replace(biases=(*actor.biases, bias))
    worker = SimulatorProcess()
    worker.open(Recipe("toy_simulators:Walk", {}))
    os.kill(worker.process.pid, signal.SIGSTOP)
    with pytest.raises(ProcessLostError, match="no answer within 1 s"):
        worker.ask("job", EpisodeJob((Seed((0,)),), [heavy, heavy], (10,)), 1.0)
    worker.close()


@pytest.mark.parametrize("refill", [False, True])
def test_jobs_of_several_columns_survive_a_killed_worker(linear, tickets, refill, open_pool):
    columns = range(3)
    actors = [
        linear(0.1, [1.0, -1.0], 0.5, *[Seed((9,), (n, c)) for c in columns]) for n in range(2)
    ]
    jobs = [
        EpisodeJob(tuple(Seed((e,), (c,)) for c in columns), actors, (10, 10, 4), refill)
        for e in range(6)
    ]
    undisturbed = open_pool(ends=4).run(jobs)
    harmed = open_pool(ends=4, mishap="die", tickets=tickets(4))
    assert same(harmed.run(jobs), undisturbed)
    assert harmed.replaced == 4
    expected = 24 if refill else 12
    assert [int(done.mask[:, 0].sum()) for done in undisturbed] == [expected] * 6


@pytest.mark.parametrize(("fresh", "seen"), [(False, [1, 2, 3, 4]), (True, [1, 1, 1, 1])])
def test_a_recipe_may_ask_for_new_simulators_in_every_job(linear, fresh, seen):
    job = EpisodeJob((Seed((0,)),), [linear(0.0, [0.0])], (2,))
    workers = Workers(Recipe("toy_simulators:Counter", {}, fresh=fresh), 20.0, number=1)
    found = [done.observation[0, 0, 0, 0] for done in workers.run([job] * 4)]
    workers.close()
    assert found == seen


def test_a_job_may_take_so_long_for_each_of_its_columns(linear, open_pool):
    actors = [linear(0.0, [0.0, 0.0], 0.0, *[Seed((c,)) for c in range(4)]) for _ in range(2)]
    job = EpisodeJob(tuple(Seed((c,)) for c in range(4)), actors, (5,) * 4)
    workers = open_pool(timeout=0.1, mishap="hang")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "ATTEMPTS", 1)
        with pytest.raises(UserError, match=r"no answer within 0\.4 s"):
            workers.run([job])


def test_workers_run_the_users_plugins_before_they_make_a_simulator(tmp_path, jobs):
    plugin = tmp_path / "walkers.py"
    plugin.write_text("from toy_simulators import Walk\nclass Mine(Walk):\n    pass\n")
    load_plugin(plugin)
    (module,) = [name for name in sys.modules if name.startswith("fedkl_plugin_walkers_")]
    recipe = Recipe(f"{module}:Mine", {}, plugins=(str(plugin),))
    workers = Workers(recipe, 20.0, number=1)
    plain = Workers(Recipe("toy_simulators:Walk", {}), 20.0, number=1)
    assert same(workers.run(jobs[:2]), plain.run(jobs[:2]))
    for each in (workers, plain):
        each.close()
    plugin.unlink()
    with pytest.raises(UserError, match="is not a file"):
        SimulatorProcess().open(recipe)


def test_harm_that_comes_back_for_ever_is_answered_with_another_seed(jobs):
    workers = Workers(Recipe("toy_simulators:Unlucky", {}), 20.0, number=1)
    once, twice = workers.run(jobs[:1]), workers.run(jobs[:1])
    assert workers.replaced == 2 * pool.STUBBORN
    assert same(once, twice)
    workers.close()


def test_what_lies_in_the_current_folder_is_not_imported_by_workers(tmp_path, monkeypatch):
    (tmp_path / "traceback.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(tmp_path)
    worker = SimulatorProcess()
    worker.open(Recipe("toy_simulators:Walk", {}))
    worker.close()
