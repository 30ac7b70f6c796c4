"""Runs side by side: what their workers write stays in them."""

import os
import shutil
import subprocess
import sys

import pytest
from finished_runs import smallest

import fedkl
from fedkl import workers
from fedkl.errors import UserError


@pytest.fixture
def run(tmp_path):
    workers.create(tmp_path / "several", {"one": smallest().mapping()}, lambda aside: None)
    return tmp_path / "several" / "one"


def proceed(run, until=None):
    workers.run_all([run], workers.Processes(1), lambda line: None, lambda: None, until)


def test_the_log_of_a_worker_is_not_written_through_a_link(run, tmp_path):
    (tmp_path / "victim").write_text("years of work")
    (run / workers.LOG).symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match=r"cannot write .*worker\.log: it is a symbolic link"):
        proceed(run)
    assert (tmp_path / "victim").read_text() == "years of work"


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(run):
    os.mkfifo(run / workers.LOG)
    with pytest.raises(UserError, match=r"worker\.log is not an ordinary file"):
        proceed(run)


def test_a_log_is_added_to(run):
    for line in ("one\n", "two\n"):
        with workers.open_log(run) as log:
            log.write(line)
    assert (run / workers.LOG).read_text() == "one\ntwo\n"


def test_a_run_that_lies_elsewhere_is_not_trained(run, tmp_path):
    shutil.move(run, tmp_path / "elsewhere")
    run.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="one is a symbolic link"):
        proceed(run)
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {".lock", "config.toml"}


def test_a_log_without_rounds_is_no_run_that_has_come_so_far(run):
    (run / "metrics.jsonl").write_text('{"loss": 1}\n{"loss": 1}\n')
    with pytest.raises(UserError, match=r"line 1 of .* is of round None"):
        proceed(run, until=1)


# Threads.


@pytest.mark.parametrize(
    ("settings", "matter"),
    [
        ({}, False),
        ({"learner.minibatch": 64, "critic.minibatch": 64}, False),
        ({"learner.minibatch": 65}, True),
        ({"critic.minibatch": 1024}, True),
        ({"heterogeneity.every": 5}, True),
        ({"selection.name": "potential"}, True),
        ({"algorithm.name": "fedkl-anchored"}, True),
        ({"algorithm.name": "fedavg"}, False),
    ],
)
def test_threads_matter_to_whoever_sums_over_many_samples(settings, matter):
    assert workers.threads_matter(smallest(settings=settings).mapping()) is matter


@pytest.mark.parametrize("preset", ["figure-eight", "reacher-init-state-paper", "reacher-iid"])
def test_threads_do_not_matter_to_the_papers_worlds(preset):
    assert not workers.threads_matter(fedkl.preset(preset).mapping())


@pytest.mark.parametrize(
    "change",
    [
        {"plugins": ["mine.py"]},
        {"algorithm": {"name": "mine"}},
        {"selection": {"name": "mine"}},
        {"learner": {}},
        {"critic": {"minibatch": "few"}},
        {"heterogeneity": 3},
    ],
)
def test_threads_matter_to_whoever_may_do_anything(change):
    assert workers.threads_matter(smallest().mapping() | change)
    assert workers.threads_matter({})


@pytest.fixture
def limited(monkeypatch):
    """The number of threads on so many cores, of a run with these settings."""

    def limit(cores, before, settings=None):
        monkeypatch.setenv("PJRT_NPROC", before)
        monkeypatch.setattr(workers, "cores", lambda: list(range(cores)))
        workers.limit_threads(smallest(settings=settings).mapping())
        return os.environ["PJRT_NPROC"]

    return limit


def test_a_run_on_one_core_has_one_thread_unless_bits_or_somebody_want_another_number(limited):
    assert limited(1, "8") == "1"
    assert limited(2, "8") == "8"
    assert limited(1, "3") == "3"
    assert limited(1, "8", {"learner.minibatch": 512}) == "8"


def test_the_number_that_is_limited_is_the_packages_own():
    environment = {k: v for k, v in os.environ.items() if k != "PJRT_NPROC"}
    program = (
        "import os, fedkl.workers as workers\n"
        "from jax._src import xla_bridge\n"
        "assert os.environ['PJRT_NPROC'] == workers.XLA_THREADS\n"
        "assert not xla_bridge.backends_are_initialized()"  # else it would be too late
    )
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
