"""Nothing is lost by resuming: what is missing is said, and a log is not erased."""

import os
import shutil

import numpy as np
import pytest

import fedkl
from fedkl.core.errors import StalledError
from fedkl.training import lifecycle, verify
from fedkl.training.directory import RunDirectory


def silent(_):
    pass


class UnpluggedError(Exception):
    pass


def stopped(config, path, after):
    """A run that ended without a word after some rounds."""
    run = lifecycle.create(config, path)

    def watch(record):
        if record["round"] == after:
            raise UnpluggedError

    with pytest.raises(UnpluggedError):
        lifecycle.run_remaining(run, watch, pytest.fail)
    return RunDirectory.open(path)


def test_a_finished_run_without_checkpoints_keeps_its_log(tiny, tmp_path):
    run = lifecycle.create(tiny(), tmp_path / "run")
    lifecycle.run_remaining(run, silent, pytest.fail)
    shutil.rmtree(run.path / "checkpoints")
    before = {p.name: p.read_bytes() for p in run.path.iterdir() if p.name != ".lock"}
    with pytest.raises(fedkl.UserError, match=r"a log of 3 rounds and no checkpoint.*erase it"):
        lifecycle.run_remaining(run, silent, pytest.fail)
    assert {p.name: p.read_bytes() for p in run.path.iterdir() if p.name != ".lock"} == before


@pytest.mark.parametrize("with_lock", [True, False])
def test_a_run_whose_checkpoints_were_all_removed_keeps_its_log(tiny, tmp_path, with_lock):
    run = stopped(tiny(federation__rounds=6, checkpoint__every=2), tmp_path / "run", 5)
    shutil.rmtree(run.path / "checkpoints")
    if not with_lock:
        (run.path / ".lock").unlink()
    with pytest.raises(fedkl.UserError, match="no checkpoint"):
        lifecycle.run_remaining(run, silent, pytest.fail)
    assert len(run.metrics.read()) == 5


def test_rounds_before_the_first_checkpoint_was_due_are_made_again(tiny, tmp_path):
    run = stopped(tiny(federation__rounds=4, checkpoint__every=3), tmp_path / "run", 2)
    assert run.checkpoints.rounds() == []
    lifecycle.run_remaining(run, silent, pytest.fail)
    assert run.summary()["rounds"] == 4


@pytest.mark.parametrize("every", [1, 2])
def test_a_removed_newest_checkpoint_is_said(tiny, tmp_path, every):
    run = stopped(tiny(federation__rounds=6, checkpoint__every=every), tmp_path / "run", 4)
    newest = max((run.path / "checkpoints").iterdir())
    newest.unlink()
    said = []
    lifecycle.load(run, said.append)
    assert said == [
        f"the checkpoint of round 4 is missing, so that of round {4 - every} is used; to go on is "
        "to train the rounds after it again"
    ]
    said.clear()
    lifecycle.run_remaining(run, silent, said.append)
    assert len(said) == 1
    assert run.summary()["rounds"] == 6
    lifecycle.load(run, pytest.fail)


def test_a_removed_newest_checkpoint_of_a_finished_run_is_said_without_a_lock_too(tiny, tmp_path):
    run = lifecycle.create(tiny(), tmp_path / "run")
    lifecycle.run_remaining(run, silent, pytest.fail)
    (run.path / ".lock").unlink()
    max((run.path / "checkpoints").iterdir()).unlink()
    sentence = "the checkpoint of round 3 is missing, so that of round 2 is used"
    assert sentence in "".join(finding.what for finding in verify.check(run))
    with pytest.warns(UserWarning, match=sentence):
        fedkl.load(run.path)
    for do in (lifecycle.load, lambda run, warn: lifecycle.run_remaining(run, silent, warn)):
        said = []
        do(run, said.append)
        assert sentence in "".join(said)


def test_a_removed_newest_checkpoint_is_said_without_a_log_too(tiny, tmp_path):
    run = lifecycle.create(tiny(), tmp_path / "run")
    lifecycle.run_remaining(run, silent, pytest.fail)
    run.metrics.path.unlink()
    max((run.path / "checkpoints").iterdir()).unlink()
    said = []
    lifecycle.load(run, said.append)
    assert "the checkpoint of round 3 is missing" in "".join(said)


def test_a_summary_that_cannot_be_read_is_said_and_does_not_hinder_loading(tiny, tmp_path):
    run = lifecycle.create(tiny(), tmp_path / "run")
    lifecycle.run_remaining(run, silent, pytest.fail)
    (run.path / "summary.json").write_text("{")
    said = []
    assert lifecycle.load(run, said.append).state.round == 3
    assert ["summary.json is not valid JSON" in sentence for sentence in said] == [True]


def test_a_run_whose_clients_left_between_two_checkpoints_is_resumed(tiny, tmp_path, monkeypatch):
    config = tiny(federation__rounds=4, checkpoint__every=3)
    run, train = lifecycle.create(config, tmp_path / "run"), fedkl.Federation.run_round

    def left(federation):
        if federation.state.round == 2:
            raise StalledError("nobody is there")
        return train(federation)

    monkeypatch.setattr(fedkl.Federation, "run_round", left)
    with pytest.raises(StalledError):
        lifecycle.run_remaining(run, silent, pytest.fail)
    assert run.summary()["stalled"]
    monkeypatch.undo()
    assert [f.what for f in verify.check(run) if "checkpoint" in f.what] == []
    lifecycle.run_remaining(run, silent, pytest.fail)
    assert (run.summary()["rounds"], run.summary()["stalled"]) == (4, False)


def test_a_process_that_lost_the_lock_while_it_restored_erases_nothing(tiny, tmp_path):
    config = tiny(federation__rounds=4)
    run = stopped(config, tmp_path / "run", 2)
    federation = fedkl.Federation(config)

    class Slow:
        """A federation that takes so long to restore that another process finishes the run."""

        def __getattr__(self, name):
            return getattr(federation, name)

        def __iter__(self):
            return iter(federation)

        def restore(self, *saved):
            federation.restore(*saved)
            os.unlink(run.path / ".lock")
            lifecycle.run_remaining(RunDirectory.open(run.path), silent, pytest.fail)

    with pytest.raises(fedkl.UserError, match="another process may write"):
        lifecycle.run_remaining(RunDirectory.open(run.path), silent, pytest.fail, Slow())
    assert run.metrics.require_rounds() == 4
    assert run.checkpoints.rounds() == [3, 4]


def test_a_process_that_lost_the_lock_writes_nothing_more(tiny, tmp_path):
    run = lifecycle.create(tiny(federation__rounds=5), tmp_path / "run")

    def watch(record):
        if record["round"] == 2:
            os.unlink(run.path / ".lock")

    with pytest.raises(fedkl.UserError, match=r"\.lock was removed while it was held"):
        lifecycle.run_remaining(run, watch, pytest.fail)
    assert [record["round"] for record in run.metrics.read()] == [1, 2]
    assert run.checkpoints.rounds() == [1, 2]


def test_two_processes_after_the_lock_was_removed_leave_a_log_that_is_whole(tiny, tmp_path):
    run = lifecycle.create(tiny(federation__rounds=4), tmp_path / "run")

    def watch(record):
        if record["round"] == 2:
            os.unlink(run.path / ".lock")
            lifecycle.run_remaining(RunDirectory.open(run.path), silent, pytest.fail)

    with pytest.raises(fedkl.UserError, match="another process may write"):
        lifecycle.run_remaining(run, watch, pytest.fail)
    assert run.metrics.require_rounds() == 4


def test_a_run_that_was_made_longer_and_died_before_its_summary_gets_one(tiny, tmp_path):
    run = lifecycle.create(tiny(), tmp_path / "run")
    lifecycle.run_remaining(run, silent, pytest.fail)
    stale = (run.path / "summary.json").read_bytes()
    config = (run.path / "config.toml").read_text()
    (run.path / "config.toml").write_text(config.replace("rounds = 3", "rounds = 4"))
    lifecycle.run_remaining(run, silent, silent)
    (run.path / "summary.json").write_bytes(stale)
    lifecycle.run_remaining(run, silent, pytest.fail)
    assert run.summary()["rounds"] == 4


def test_a_log_of_another_run_is_refused(tiny, tmp_path):
    run, other = (lifecycle.create(tiny(seed=s), tmp_path / f"{s}") for s in (0, 1))
    for one in (run, other):
        lifecycle.run_remaining(one, silent, pytest.fail)
    shutil.copyfile(other.metrics.path, run.metrics.path)
    with pytest.raises(fedkl.UserError, match="is not the log that the checkpoint of round 3"):
        lifecycle.run_remaining(run, silent, pytest.fail)


def test_a_summary_of_another_run_is_refused(tiny, tmp_path):
    run, other = (lifecycle.create(tiny(seed=s), tmp_path / f"{s}") for s in (0, 1))
    for one in (run, other):
        lifecycle.run_remaining(one, silent, pytest.fail)
    shutil.copyfile(other.path / "summary.json", run.path / "summary.json")
    with pytest.raises(fedkl.UserError, match=r"summary\.json is not of this log"):
        lifecycle.run_remaining(run, silent, pytest.fail)


def test_a_checkpoint_that_does_not_fit_is_passed_over_for_one_that_does(tiny, tmp_path):
    run = stopped(tiny(federation__rounds=4), tmp_path / "run", 2)
    saved = run.checkpoints.latest(pytest.fail)
    without = {name: array for name, array in saved.arrays.items() if name != "env_steps"}
    RunDirectory(run.path).checkpoints.save(3, without | {"round": saved.arrays["round"] + 1})
    said = []
    federation = lifecycle.load(run, said.append)
    assert federation.state.round == 2
    assert said[0].startswith("the checkpoint of round 3 does not fit config.toml (env_steps is")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["model.policy.network.weights.0", "model.rewards.mean"])
def test_no_run_is_resumed_from_numbers_that_are_not_finite(tiny, tmp_path, name, value):
    run = stopped(tiny(federation__rounds=4), tmp_path / "run", 2)
    saved = run.checkpoint(pytest.fail, best=False)
    saved.arrays[name].flat[0] = value
    shutil.rmtree(run.path / "checkpoints")
    run.checkpoints.save(2, saved.arrays, saved.rows, origin=saved.origin)
    said = f"{name} has numbers that are not finite"
    with pytest.raises(fedkl.UserError, match=said):
        lifecycle.run_remaining(run, silent, pytest.fail)
    assert any(said in finding.what for finding in verify.check(run))
