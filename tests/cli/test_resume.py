"""What a run says of itself when there is nothing left to do, and at its end."""

from commands import call

from fedkl.config import config
from fedkl.training import lifecycle


def test_whoever_asks_for_what_is_done_already_is_told_so(tmp_path, capsys):
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
