"""Runs that are followed as they are trained: rounds, time left, callbacks."""

import io

import pytest
from finished_runs import smallest
from rich.console import Console

import fedkl
from fedkl.experiments import progress, workers
from fedkl.training import lifecycle
from fedkl.training.directory import RunDirectory


class Heard(fedkl.Callback):
    def __init__(self):
        self.rounds, self.ended = [], []

    def on_round(self, record):
        self.rounds.append(record["round"])

    def on_end(self, summary):
        self.ended.append(summary)


@pytest.fixture
def runs(tmp_path):
    return [lifecycle.create(smallest(seed), tmp_path / f"seed{seed}").path for seed in (0, 1)]


def log(run, *rounds):
    for round in rounds:
        RunDirectory(run).metrics.append({"round": round, "return_mean": 0.0})


def lines_of(console):
    return console.file.getvalue().splitlines()


def test_the_bar_counts_the_rounds_of_all_runs_and_shows_those_that_train(runs):
    screen = Console(file=io.StringIO(), width=100, force_terminal=True)

    def resume(train):
        train.watch.start(runs[0])
        log(runs[0], 1)
        train.tick()

    progress.follow(runs, resume, None, screen)
    assert "2 runs, round 1/4" in screen.file.getvalue()
    assert "seed0 1/2" in screen.file.getvalue()


def test_elsewhere_there_are_lines_with_rounds_and_the_time_left(runs):
    plain = Console(file=io.StringIO(), width=100)

    def resume(train):
        train.show("seed0 started")
        for run in runs:
            for round in (1, 2):
                log(run, round)
                train.tick()

    progress.follow(runs, resume, None, plain)
    first, *counts = lines_of(plain)
    assert first == "seed0 started"
    assert [line.split("  ")[0] for line in counts] == [
        f"2 runs, round {done}/4" for done in (1, 2, 3, 4)
    ]
    assert counts[-1].endswith("0:00:00 left")


def test_a_run_that_stalled_counts_with_the_rounds_that_it_has(runs):
    log(runs[0], 1)
    RunDirectory(runs[0]).write_summary({"rounds": 1, "stalled": True})
    plain = Console(file=io.StringIO(), width=100)

    def resume(train):
        log(runs[1], 1, 2)
        train.tick()

    progress.follow(runs, resume, None, plain)
    assert lines_of(plain)[0].startswith("2 runs, round 3/3")


def test_a_round_is_told_once_also_if_the_run_repeats_it(runs):
    heard = Heard()

    def resume(train):
        train.watch.start(runs[0])
        log(runs[0], 1, 2)
        train.tick()
        RunDirectory(runs[0]).metrics.truncate_after(1)
        train.tick()
        log(runs[0], 2)
        train.tick()
        train.watch.end(runs[0])

    progress.follow(runs[:1], resume, None, None, callbacks=lambda run: [heard])
    assert heard.rounds == [1, 2]
    assert heard.ended == [None]


def test_a_line_that_is_being_written_is_left_for_later(runs):
    heard, file = Heard(), runs[0] / "metrics.jsonl"
    log(runs[0], 1)
    whole = file.read_bytes()
    file.unlink()

    def resume(train):
        train.watch.start(runs[0])
        for part in (whole[:9], whole):
            file.write_bytes(part)
            train.tick()

    progress.follow(runs[:1], resume, None, None, callbacks=lambda run: [heard])
    assert heard.rounds == [1]


def test_a_run_that_was_made_longer_since_it_ended_is_not_there(runs):
    run = RunDirectory(runs[0])
    log(runs[0], 1, 2)
    run.write_summary({"rounds": 2})
    assert workers.is_there(runs[0], None)
    run.replace_config(run.config() | {"federation": {"rounds": 3}})
    assert not workers.is_there(runs[0], None)
    assert workers.is_there(runs[0], 2)
    run.write_summary({"rounds": 2, "stalled": True})
    assert workers.is_there(runs[0], None)
