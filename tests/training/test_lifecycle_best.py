"""The best evaluated round is kept, survives pruning and resuming, and can be evaluated."""

import json

import numpy as np
import pytest
from commands import call
from scripted import scripted

import fedkl
from fedkl.clients.work import Evaluate
from fedkl.report.runs import load_runs
from fedkl.server.loop import Federation
from fedkl.training import lifecycle

RETURNS = [1.0, 5.0, None, 4.0, 5.0, 7.0, float("nan"), 6.0]
"""Of each round: the best is the second, then the sixth."""


class UnpluggedError(Exception):
    pass


def go_on(run, config, watch=lambda record: None, returns=RETURNS):
    with scripted(config, returns) as federation:
        return lifecycle.run_remaining(run, watch, print, federation)


def unplugged_after(round):
    def watch(record):
        if record["round"] == round:
            raise UnpluggedError

    return watch


def best_round(run):
    saved = run.checkpoint(print, best=True)
    assert saved.round == int(saved.arrays["round"])
    return saved.round


@pytest.fixture
def best_config(tiny):
    def make(**settings):
        return tiny(federation__rounds=len(RETURNS), checkpoint__keep_best=True, **settings)

    return make


@pytest.mark.parametrize("every", [1, 100])
def test_the_best_round_is_kept_when_its_checkpoint_is_long_gone(best_config, tmp_path, every):
    config = best_config(checkpoint__every=every)
    run = lifecycle.create(config, tmp_path / "run")
    states = {}

    def watch(record):
        states[record["round"]] = run.checkpoints.latest(print)

    go_on(run, config, watch)
    assert best_round(run) == 6
    assert len(run.best.rounds()) <= 2
    assert len(run.checkpoints.rounds()) <= 2
    for name, array in states[6].arrays.items():
        assert np.array_equal(run.checkpoint(print, best=True).arrays[name], array)
    assert run.checkpoint(print, best=True).rows.keys() == states[6].rows.keys() != set()


@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_resumed_run_keeps_the_same_best_round_at_every_moment(best_config, tmp_path, every):
    config = best_config(checkpoint__every=every)
    run = lifecycle.create(config, tmp_path / "run")
    best_so_far = [1, 2, 2, 2, 2, 6, 6, 6]
    for stop in (1, 3, 5, 7):
        with pytest.raises(UnpluggedError):
            go_on(run, config, unplugged_after(stop))
        assert best_round(run) == best_so_far[stop - 1]
    go_on(run, config)
    assert best_round(run) == 6


def test_death_between_the_best_and_the_checkpoint_gives_the_best_of_where_the_run_stands(
    best_config, tmp_path, monkeypatch
):
    config = best_config()
    run = lifecycle.create(config, tmp_path / "run")
    save = run.checkpoints.save

    def dies(round, *state):
        if round == 6:
            raise UnpluggedError
        save(round, *state)

    with monkeypatch.context() as patch:
        patch.setattr(run.checkpoints, "save", dies)
        with pytest.raises(UnpluggedError):
            go_on(run, config)
    assert run.best.rounds() == [2, 6]
    assert best_round(run) == 2
    # What comes after it need not be what came before: another sixth round is worse.
    go_on(run, config, returns=[*RETURNS[:5], 4.0, 5.5, 4.0])
    assert best_round(run) == 7


def test_a_damaged_newest_checkpoint_goes_back_to_the_best_of_its_time(best_config, tmp_path):
    config = best_config()
    run = lifecycle.create(config, tmp_path / "run")
    with pytest.raises(UnpluggedError):
        go_on(run, config, unplugged_after(6))
    newest = max(run.checkpoints.directory.iterdir())
    newest.write_bytes(b"rubbish")
    go_on(run, config, returns=[*RETURNS[:5], 4.0, 4.0, 4.0])
    assert best_round(run) == 2


def test_without_the_setting_nothing_is_kept(tiny, tmp_path):
    config = tiny(federation__rounds=2)
    run = lifecycle.create(config, tmp_path / "run")
    go_on(run, config)
    assert not run.best.directory.exists()
    with pytest.raises(fedkl.UserError, match="has kept no best round"):
        lifecycle.load(run, print, best=True)


def test_the_best_round_is_evaluated_by_the_command(best_config, tmp_path, capsys):
    config = best_config()
    run = lifecycle.create(config, tmp_path / "run")
    go_on(run, config)
    code, out, _ = call(capsys, "evaluate", run.path, "--best", "--episodes", "2", "--json")
    assert (code, json.loads(out)["round"]) == (0, 6)
    code, out, _ = call(capsys, "evaluate", run.path, "--episodes", "2", "--json")
    assert (code, json.loads(out)["round"]) == (0, 8)


def test_after_a_return_that_no_world_pays_the_same_round_is_best_also_if_resumed(
    best_config, tmp_path
):
    """A client says 3e38 in the evaluation after round 2: it is left out, and named."""
    config = best_config(checkpoint__every=1)

    def absurd():
        federation = Federation(config)
        run = federation.engine.run

        def broken(work, model, jobs, key):
            for client, answer in run(work, model, jobs, key):
                there = isinstance(work, Evaluate) and (client, jobs[0].round) == (0, 2)
                yield client, np.full_like(answer, 3e38) if there else answer

        federation.engine.run = broken
        return federation

    best = []
    for stop in None, 2:
        run = lifecycle.create(config, tmp_path / str(stop))
        if stop:
            lifecycle.run_remaining(run, lambda record: None, print, absurd(), until=stop)
        lifecycle.run_remaining(run, lambda record: None, print, absurd())
        returns = [record["return_mean"] for record in run.metrics.read()]
        assert np.isfinite(returns).all()
        named = run.metrics.read()[1]["unevaluated"]
        assert named == [{"client": 0, "reason": "its returns are beyond 1e+15"}]
        assert best_round(run) == 1 + int(np.argmax(returns))
        summary = run.summary()
        assert summary["best_round"] == best_round(run)
        assert summary["best_return_mean"] == max(returns)
        (reported,) = load_runs(run.path, warn=pytest.fail)
        assert reported.not_finite == 0
        best.append((best_round(run), returns))
    assert best[0] == best[1]
