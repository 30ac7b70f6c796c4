"""Runs side by side: what their workers write stays in them."""

import os
import shutil

import pytest
from finished_runs import smallest

from fedkl.core.errors import UserError
from fedkl.experiments import workers
from fedkl.training.comparison import ComparisonPlan

PLAN = ComparisonPlan("probe-point", ("fedavg",), (0,))


@pytest.fixture
def run(tmp_path):
    workers.create(tmp_path / "several", PLAN, {"one": smallest().mapping()})
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
    there = {path.name for path in (tmp_path / "elsewhere").iterdir()}
    assert there == {".lock", "config.toml", "plan.toml"}


def test_a_log_without_rounds_is_no_run_that_has_come_so_far(run):
    (run / "metrics.jsonl").write_text('{"loss": 1}\n{"loss": 1}\n')
    with pytest.raises(UserError, match=r"line 1 of .* is of round None"):
        proceed(run, until=1)


def test_of_the_log_of_a_worker_that_failed_only_the_end_is_read(run):
    with (run / workers.LOG).open("wb") as file:
        file.truncate(2**40)  # it takes no room, and would fill the memory
        file.seek(0, os.SEEK_END)
        file.write(b"\nValueError: the reason\n")
    assert workers._outcome(1, run) == "failed: ValueError: the reason"


def test_rounds_are_counted_without_reading_the_log_at_once(run, monkeypatch):
    monkeypatch.setattr(workers, "_AT_ONCE", 7)
    count = workers.RoundCounter([run])
    (run / "metrics.jsonl").write_text('{"round": 1}\n{"round": 2}\n{"rou')
    assert count() == 2
    with (run / "metrics.jsonl").open("a") as log:
        log.write('nd": 3}\n')
    assert count() == 3
