"""Runs that are resumed: where they stopped, what they say when there is nothing left to do."""

import json

from commands import call

from fedkl.config import config
from fedkl.training import lifecycle

TINY = [
    "--set", "federation.clients=3", "federation.clients_per_round=2", "learner.iterations=2",
    "learner.steps=64", "learner.epochs=2", "evaluation.episodes=2",
]  # fmt: skip


def test_a_run_that_is_done_already_says_so(tmp_path, capsys):
    path = tmp_path / "run"
    lifecycle.create(config.preset("probe-point", set={"federation.rounds": 3}), path)
    assert call(capsys, "resume", path, "--until", 2)[0] == 0
    code, out, err = call(capsys, "resume", path, "--until", 1)
    assert (code, "is finished" in out) == (0, False)
    assert "is at round 2 already, which is beyond round 1" in err
    code, out, _ = call(capsys, "resume", path)
    assert (code, "is finished" in out) == (0, False)
    code, out, err = call(capsys, "resume", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"{path} is finished; --rounds N trains longer"


def test_a_run_in_another_world_than_its_presets_says_so(tmp_path, capsys):
    chosen = config.preset(
        "probe-point", set={"world.name": "probe-bandit", "federation.rounds": 2}
    )
    run = lifecycle.create(chosen, tmp_path / "run")
    code, out, _ = call(capsys, "resume", run.path, "--until", 1)
    assert code == 0
    assert out.splitlines()[-1].startswith("probe-bandit from probe-point fedkl seed 0: stopped")


def test_a_run_can_be_stopped_after_a_round_and_resumed(tmp_path, capsys):
    path = tmp_path / "run"
    lifecycle.create(config.preset("probe-point", set={"federation.rounds": 3}), path)
    code, out, _ = call(capsys, "resume", path, "--until", 2)
    assert code == 0
    assert out.splitlines()[0].startswith("round 1/2  return ")
    assert "probe-point fedkl seed 0: stopped after round 2 of 3; run directory" in out
    assert not (path / "summary.json").exists()
    code, out, _ = call(capsys, "resume", path)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[:-1]] == ["3/3"]
    assert (path / "summary.json").exists()


def test_a_run_that_goes_nowhere_ends_with_code_3_and_can_be_resumed(tmp_path, capsys):
    """No policy may move further than a hair's breadth, so every update is refused."""
    path = tmp_path / "run"
    hair = ["federation.max_relative_norm=1e-12", "federation.max_empty_rounds=2"]
    code, out, err = call(
        capsys, "train", "probe-point", "--rounds", 4, "--run", path, *TINY, *hair
    )
    assert code == 3
    assert "training has stalled: no update of the last 2 rounds reached the model" in err
    assert len(err.strip().splitlines()) == 1
    assert "round 2/4" in out
    assert len((path / "metrics.jsonl").read_text().splitlines()) == 2
    config = (path / "config.toml").read_text()
    assert "max_relative_norm = 1e-12" in config
    (path / "config.toml").write_text(config.replace("1e-12", "10.0"))
    code, _, err = call(capsys, "resume", path)
    assert code == 2
    assert "federation.max_relative_norm was 1e-12, is 10.0" in err
    code, out, err = call(capsys, "resume", path, "--accept-changes")
    assert code == 0
    assert "accepted from round 2 on: federation.max_relative_norm was 1e-12" in err
    assert [line.split()[1] for line in out.splitlines()[:-1]] == ["3/4", "4/4"]
    assert json.loads((path / "summary.json").read_text())["empty_rounds"] == 2
