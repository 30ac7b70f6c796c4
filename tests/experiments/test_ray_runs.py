"""Runs as tasks on a cluster: what is written is what a run in this process writes."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from fedkl.core.errors import StalledError, UserError
from fedkl.experiments import ray_runs, workers
from fedkl.experiments.ray_runs import End, OnCluster, OnRay, Order, RemoteRun, RemoteState, rounds
from fedkl.network.ray import actor
from fedkl.network.ray.actor import Plugin
from fedkl.network.ray.connection import Cluster
from fedkl.network.ray.nodes import Node
from fedkl.training import binding, lifecycle
from fedkl.training.comparison import ComparisonPlan
from fedkl.training.directory import RunDirectory
from fedkl.training.provenance import versions

# Ray is imported when somebody is connected, and not before.
pytestmark = pytest.mark.usefixtures("cluster")
OWN = Path(__file__).parents[2] / "examples" / "own_reducer.py"

_NOT_OF_ALL = {workers.LOG, binding.COPY}
"""Files that only a run of several has."""
PLAN = ComparisonPlan("probe-point", ("fedavg",), (0,))


def silent(_):
    """Watches and warns of nothing."""


@pytest.fixture(autouse=True)
def all_cores(monkeypatch):
    """What a worker takes for itself is not to hold for the tests after it."""
    monkeypatch.setattr(ray_runs, "take_cores", silent)


def files(run: Path) -> dict[str, bytes]:
    """The checkpoints, byte for byte."""
    return {p.name: p.read_bytes() for p in sorted((run / "checkpoints").iterdir())}


def comparable(run: Path) -> list[dict[str, object]]:
    """Every metric but the time it took."""
    records = RunDirectory(run).metrics.read()
    return [{k: v for k, v in record.items() if k not in ("seconds", "time")} for record in records]


def assert_same(a: Path, b: Path) -> None:
    assert files(a) == files(b)
    assert comparable(a) == comparable(b)
    ours, theirs = ({p.name for p in run.iterdir()} - _NOT_OF_ALL for run in (a, b))
    assert ours == theirs
    for name in ("config.toml", "clients.csv"):
        assert ((a / name).exists() and (a / name).read_bytes()) == (
            (b / name).exists() and (b / name).read_bytes()
        )


def order_of(config, until=None) -> Order:
    return Order(config.mapping(), actor.read_plugins(config.plugins), versions(), until)


class Nearby(OnCluster):
    """A worker that is in this process, and is lost whenever it has finished some rounds."""

    def __init__(self, config, lost_after=1000, until=None):
        self.log, self.begun = io.StringIO(), []
        order = order_of(config, until)
        super().__init__(order, config, cpus=4, log=self.log, stop=threading.Event())
        self._lost_after = lost_after

    def _answers(self, cpus):
        from ray.exceptions import WorkerCrashedError

        self.begun.append((self.state.round, cpus))
        for done, answer in enumerate(rounds(self._order, self._held, cpus)):
            if done == self._lost_after:
                raise WorkerCrashedError
            yield answer


@pytest.fixture
def config(tiny):
    """Clients keep critics of their own, so that a checkpoint has rows."""
    return tiny(federation__critic="local", federation__rounds=5, checkpoint__every=2)


@pytest.fixture
def here(config, tmp_path) -> Path:
    run = lifecycle.create(config, tmp_path / "here")
    lifecycle.run_remaining(run, silent, silent)
    return run.path


def test_a_run_is_written_as_if_its_rounds_were_run_here(config, here, tmp_path):
    run = lifecycle.create(config, tmp_path / "there")
    lifecycle.run_remaining(run, silent, silent, Nearby(config))
    assert_same(here, run.path)


def test_a_lost_worker_costs_the_round_that_it_was_in(config, here, tmp_path):
    run = lifecycle.create(config, tmp_path / "there")
    federation = Nearby(config, lost_after=2)
    lifecycle.run_remaining(run, silent, silent, federation)
    # All CPUs that were meant for it, until a machine with so many may be gone.
    assert federation.begun == [(0, 4), (2, 1), (4, 1)]
    assert federation.log.getvalue().count("again: The worker died") == 2
    assert_same(here, run.path)


def test_what_was_begun_on_a_cluster_is_resumed_without_and_the_other_way_round(
    config, here, tmp_path
):
    first, second = (lifecycle.create(config, tmp_path / name) for name in ("first", "second"))
    lifecycle.run_remaining(first, silent, silent, Nearby(config, until=3), until=3)
    lifecycle.run_remaining(first, silent, silent)
    lifecycle.run_remaining(second, silent, silent, until=3)
    lifecycle.run_remaining(second, silent, silent, Nearby(config))
    for run in (first, second):
        assert comparable(run.path) == comparable(here)
        ours, theirs = (r.checkpoints.latest(silent) for r in (run, RunDirectory(here)))
        assert ours.round == theirs.round == 5
        for name, array in theirs.arrays.items():
            np.testing.assert_array_equal(ours.arrays[name], array)
        for client, row in theirs.rows.items():
            for name, array in row.items():
                np.testing.assert_array_equal(ours.rows[client][name], array)


def test_a_worker_trains_no_further_than_it_should(config):
    found = list(rounds(order_of(config, until=2), RemoteState({}, {}), 1))
    assert [answer.record["round"] for answer in found] == [1, 2]
    # Two of four clients train in a round: what comes are the rows of those.
    assert [sorted(answer.rows) for answer in found] == [a.record["selected"] for a in found]


def test_workers_that_are_lost_in_the_same_round_again_and_again_end_the_run(config, tmp_path):
    run = lifecycle.create(config, tmp_path / "there")
    with pytest.raises(UserError, match=r"^3 workers were lost in round 1, the last: The worker"):
        lifecycle.run_remaining(run, silent, silent, Nearby(config, lost_after=0))
    assert run.metrics.read() == []


def test_a_run_that_stalls_ends_as_it_would_here_and_can_be_resumed(tiny, tmp_path, monkeypatch):
    config = tiny(federation__rounds=4, federation__max_empty_rounds=2)
    run = lifecycle.create(config, tmp_path / "there")
    with monkeypatch.context() as broken:
        # No update is within such a norm, so the worker accepts nothing.
        mapping = config.mapping()
        mapping["federation"]["max_relative_norm"] = 1e-9
        broken.setattr(config.__class__, "mapping", lambda self: mapping)
        with pytest.raises(StalledError, match="no update of the last 2 rounds"):
            lifecycle.run_remaining(run, silent, silent, Nearby(config))
    assert run.summary()["stalled"] is True
    lifecycle.run_remaining(run, silent, silent, Nearby(config))
    assert [record["note"] is None for record in run.metrics.read()] == [False, False, True, True]
    assert run.summary()["stalled"] is False


def test_a_checkpoint_of_another_config_is_told_in_a_sentence(config, tiny):
    (first, *_) = rounds(order_of(config, until=1), RemoteState({}, {}), 1)
    other = tiny(learner__hidden=[3])
    (end,) = rounds(order_of(other), RemoteState(first.arrays, first.rows), 1)
    assert isinstance(end, End)
    assert end.sentence.startswith("the checkpoint does not fit config.toml: ")


def test_a_plugin_reaches_a_worker_as_text(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (sent,) = actor.read_plugins([str(OWN)])
    assert (sent.name, sent.text) == ("own_reducer.py", OWN.read_bytes())
    text = b"import fedkl.core.errors\nloaded = True\n"
    elsewhere = Plugin("elsewhere.py", text, "elsewhere_1", "/elsewhere.py")
    (path,) = actor.install_plugins([elsewhere])
    assert Path(path).is_relative_to(tmp_path / "cache")
    assert Path(path).read_bytes() == elsewhere.text
    assert actor.install_plugins([elsewhere]) == [path]


def test_a_plugin_that_does_not_import_on_a_worker_is_told_in_a_sentence(
    config, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(actor.platform, "node", lambda: "node7")
    plugin = Plugin("mine.py", b"import not_installed_there\n", "mine_1", "/home/me/mine.py")
    order = order_of(config)._replace(plugins=(plugin,))
    (end,) = rounds(order, RemoteState({}, {}), 1)
    assert end.sentence == (
        "the plugin mine.py fails on the worker node7: ModuleNotFoundError: No module named "
        "'not_installed_there' (/home/me/mine.py, line 1)"
    )
    assert not end.stalled
    assert end.trace.endswith("ModuleNotFoundError: No module named 'not_installed_there'\n")


def test_a_mistake_in_a_plugin_names_its_file_on_the_driver_and_goes_to_a_file_of_the_run(
    config, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = b"""
import fedkl
@fedkl.register_reducer
class Halves(fedkl.Reducer):
    name, summary = "halves", "of tests"
    def __call__(self, stacked, weights):
        return 1 / 0
"""
    plugin = Plugin("halves.py", text, "halves_1", "/home/me/halves.py")
    order = order_of(config)
    order = order._replace(
        plugins=(plugin,),
        mapping=order.mapping | {"aggregation": {"reduce": "halves"}},
    )
    (end,) = rounds(order, RemoteState({}, {}), 1)
    assert end.sentence == (
        "/home/me/halves.py, line 7, in __call__: ZeroDivisionError: division by zero"
    )
    assert 'File "/home/me/halves.py", line 7, in __call__' in end.trace
    assert str(tmp_path) not in end.sentence + end.trace


@pytest.mark.parametrize(
    ("cpus", "total", "at_once", "each"),
    [
        ((2,), 4, 2, 1),
        ((8, 8), 3, 3, 4),  # of 5 each, a third has no room
        ((8, 4), 2, 2, 4),
        ((8,), 1, 1, 8),
        ((1, 1, 1), 20, 3, 1),
    ],
)
def test_runs_share_the_cpus_such_that_all_at_a_time_have_room(
    cpus, total, at_once, each, monkeypatch
):
    there = tuple(Node(str(i), str(i), n) for i, n in enumerate(cpus))
    monkeypatch.setattr(ray_runs, "nodes", lambda: there)
    place = OnRay(Cluster(there))
    assert place.at_once(total) == at_once
    assert place._share(at_once) == each


def test_a_run_that_starts_after_a_node_was_lost_asks_for_what_the_others_have(monkeypatch):
    large, small = Node("a", "one", 8), Node("b", "two", 2)
    left = [large, small]
    monkeypatch.setattr(ray_runs, "nodes", lambda: tuple(left))
    place = OnRay(Cluster(tuple(left)))
    assert place._share(1) == 8
    left.remove(large)
    assert place._share(1) == 2
    left.clear()
    assert place._share(1) == 1


def test_a_worker_that_no_node_has_room_for_any_more_is_asked_for_again(config, monkeypatch):
    """As when the node with so many CPUs is lost before the worker is there."""

    def rounds(order, state, cpus):
        yield End(f"it had {cpus}", stalled=False)

    monkeypatch.setattr(ray_runs, "rounds", rounds)
    log = io.StringIO()
    federation = OnCluster(order_of(config), config, 10_000, log, threading.Event())
    with pytest.raises(UserError, match=r"^it had 1$"):
        list(federation)
    assert log.getvalue() == "round 1 again: no machine that is left has 10000 CPUs\n"


def test_a_worker_on_a_node_with_other_versions_trains_nothing(config):
    order = order_of(config)
    other = order._replace(versions=order.versions | {"jax": "0.0.1"})
    (end,) = rounds(other, RemoteState({}, {}), 1)
    assert re.fullmatch(r"the node \S+ has jax \S+, and this machine 0\.0\.1", end.sentence)


def test_a_log_that_cannot_be_written_is_told_before_the_run_is_begun(config, tmp_path):
    run = lifecycle.create(config, tmp_path / "there")
    (run.path / workers.LOG).mkdir()
    with pytest.raises(UserError, match=r"^cannot write .*worker\.log: "):
        OnRay(Cluster(())).start(run.path, 0, 1, None)


def test_a_run_whose_thread_ends_unforeseen_has_failed(config, tmp_path, monkeypatch):
    run = lifecycle.create(config, tmp_path / "there")
    monkeypatch.setattr(RemoteRun, "_work", lambda self: self._log.close())
    task = RemoteRun(run.path, None, 1)
    assert task.wait() == task.poll() == 1


def worker_processes() -> list[int]:
    """Those that Ray has started for us, and that train."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::rounds"):
            found.append(int(folder.name))
    return found


def test_a_worker_that_is_killed_changes_nothing(cluster, config, here, tmp_path):
    path = tmp_path / "several"
    workers.create(path, PLAN, {"there": config.mapping()})
    run, killed, shown = path / "there", [], []

    def kill_one() -> None:
        if not killed:  # as soon as it is there: its rounds take milliseconds
            killed.extend(worker_processes())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    workers.run_all([run], OnRay(cluster), shown.append, kill_one)
    assert killed
    assert shown[0] == "there started"
    assert shown[1].startswith("there finished: return ")
    assert_same(here, run)


def test_a_run_on_a_cluster_is_ended_when_it_should_be(cluster, tiny, tmp_path):
    config = tiny(federation__rounds=100_000)
    path = tmp_path / "several"
    workers.create(path, PLAN, {"there": config.mapping()})
    task = OnRay(cluster).start(path / "there", 0, 1, None)
    log = RunDirectory(path / "there").metrics
    until(log.read)
    assert task.poll() is None
    task.terminate()
    assert task.wait() == -signal.SIGTERM
    until(lambda: not worker_processes())
    with RunDirectory(path / "there").lock():
        pass


def test_the_log_of_a_run_on_a_cluster_is_not_written_through_a_link(cluster, config, tmp_path):
    path = tmp_path / "several"
    workers.create(path, PLAN, {"there": config.mapping()})
    (path / "there" / workers.LOG).symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match=r"cannot write .*worker\.log: it is a symbolic link"):
        workers.run_all([path / "there"], OnRay(cluster), silent, lambda: None)
    assert not (tmp_path / "victim").exists()


def test_what_fails_on_a_worker_is_in_the_log_of_the_run(cluster, config, tmp_path, monkeypatch):
    path = tmp_path / "several"
    workers.create(path, PLAN, {"there": config.mapping()})
    (path / "there" / "config.toml").write_text("seed = 'none'")
    shown: list[str] = []
    with pytest.raises(UserError, match=r"^not finished: there; see worker\.log there"):
        workers.run_all([path / "there"], OnRay(cluster), shown.append, lambda: None)
    assert shown[1].startswith("there failed: fedkl: seed must be")
