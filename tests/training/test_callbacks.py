"""Who is told what of a run, and when."""

import pytest

from fedkl.training.callbacks import Callback, notify
from fedkl.training.directory import RunDirectory

CONFIG = {"seed": 3, "federation": {"rounds": 2}}


class Diary(Callback):
    def __init__(self, name, told, fails_at=""):
        self.name, self.told, self.fails_at = name, told, fails_at

    def note(self, what, *details):
        self.told.append((self.name, what, *details))
        if what == self.fails_at:
            raise RuntimeError(f"{self.name} fails at {what}")

    def on_start(self, run, config):
        self.note("start", run.name, config)

    def on_round(self, record):
        self.note("round", record["round"])

    def on_end(self, summary):
        self.note("end", summary)


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", CONFIG)


def test_everybody_is_told_of_start_rounds_and_end_with_its_summary(run):
    told = []
    with notify([Diary("a", told), Diary("b", told)], run) as tell:
        tell({"round": 1})
        run.write_summary({"rounds": 1})
    assert told == [
        ("a", "start", "run", CONFIG),
        ("b", "start", "run", CONFIG),
        ("a", "round", 1),
        ("b", "round", 1),
        ("b", "end", {"rounds": 1}),
        ("a", "end", {"rounds": 1}),
    ]


def test_a_run_that_fails_ends_without_its_summary_even_if_there_is_an_old_one(run):
    told = []
    run.write_summary({"rounds": 1})
    with pytest.raises(KeyboardInterrupt), notify([Diary("a", told)], run):
        raise KeyboardInterrupt
    assert told[-1] == ("a", "end", None)


def test_who_was_started_is_told_of_the_end_if_another_cannot_start(run):
    told = []
    both = [Diary("a", told), Diary("b", told, fails_at="start")]
    with pytest.raises(RuntimeError, match="b fails at start"), notify(both, run):
        raise AssertionError("nothing is trained")
    assert told[-1] == ("a", "end", None)


def test_one_that_cannot_end_does_not_keep_others_from_it(run):
    told = []
    both = [Diary("a", told), Diary("b", told, fails_at="end")]
    with pytest.raises(RuntimeError, match="b fails at end"), notify(both, run):
        pass
    assert [entry[:2] for entry in told[-2:]] == [("b", "end"), ("a", "end")]


def test_a_callback_may_leave_everything_out(run):
    with notify([Callback()], run) as tell:
        tell({"round": 1})
