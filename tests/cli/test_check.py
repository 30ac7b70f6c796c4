"""`fedkl check`: what is wrong, what can be done, and nothing changed."""

import os
import shutil
import signal
import time

import pytest
from commands import call
from finished_runs import SMALLEST, finish
from waiting import until

import fedkl
from fedkl.experiments import compare, workers
from fedkl.training import api

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return finish(tmp_path_factory.mktemp("check") / "run").path


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def test_a_run_that_is_well(run, capsys):
    code, out, err = call(capsys, "check", run)
    assert (code, out, err) == (0, f"{run}: all is well, 2 rounds\n", "")


def test_everything_that_is_wrong_is_said_with_what_to_do(run, capsys):
    (run / "thesis.tex").write_text("years")
    (run / "clients.csv").write_text("client\n")
    (run / "summary.json").write_text("{")
    (run / "checkpoints" / ".x.1.ab.fedkl-tmp").write_text("half")
    max((run / "checkpoints").glob("0*")).unlink()
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("learning_rate = 0.05", "learning_rate = 0.5"))
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text() + '{"round')
    code, out, err = call(capsys, "check", run)
    assert code == 2
    for words in (
        "thesis.tex is not of a run",
        "clients.csv is not what the config says",
        "summary.json is not valid JSON",
        "was left by a write that was interrupted",
        "the checkpoint of round 2 is missing",
        "learner.learning_rate was 0.05, is 0.5",
        "is torn",
    ):
        assert words in out
    assert out.count("what to do: ") == 7
    assert err == f"fedkl: 7 things are wrong with {run}\n"


def test_what_only_policies_need_is_missed_too(tmp_path, capsys):
    run = finish(tmp_path / "run", settings={"checkpoint.keep_best": True})
    best = run.summary()["best_round"]
    (run.path / "spaces.json").unlink()
    next((run.path / "best").glob(f"{best:06d}.*")).unlink()
    code, out, _ = call(capsys, "check", run.path)
    assert code == 2
    assert "has no spaces.json" in out
    assert f"round {best} was better, but its checkpoint" in out


def test_several_runs_are_checked_one_by_one(tmp_path, capsys):
    path = tmp_path / "both"
    plan = compare.ComparisonPlan("probe-point", ("fedkl", "fedavg"), (0,), 1)
    compare.create(path, plan, lambda a, s, _: fedkl.preset("probe-point", a, s, SMALLEST))
    code, out, _ = call(capsys, "check", path)
    assert (code, out.count("all is well, 0 rounds")) == (0, 2)
    (path / "fedavg-seed0" / "config.toml").write_text("seed = ")
    code, out, err = call(capsys, "check", path)
    assert code == 2
    assert "fedavg-seed0/config.toml is not valid TOML" in out
    assert "1 thing is wrong" in err


def test_what_is_no_run_is_said(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "nowhere"):
        code, _, err = call(capsys, "check", path)
        assert code == 2
        assert err.count("\n") == 1


def test_plugins_of_somebody_else_are_not_run(run, tmp_path, monkeypatch, capsys):
    plugin = tmp_path / "theirs.py"
    plugin.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("plugins = []", f'plugins = ["{plugin}"]'))
    for command in ("check", "resume", "evaluate", "heterogeneity"):
        code, out, err = call(capsys, command, run)
        assert code == 2
        assert f"have not agreed to: {plugin} (sha256 " in out + err
        assert not (tmp_path / "ran").exists()
    code, out, _ = call(capsys, "check", run, "--trust-plugins")
    assert "agreed to" not in out
    code, _, err = call(capsys, "resume", run)
    assert "plugins are not as they were (theirs.py)" in err
    assert (tmp_path / "ran").exists()
    assert call(capsys, "evaluate", run, "--accept-changes", "--episodes", 1)[0] == 0


def test_a_port_of_somebody_else_is_not_opened(run, capsys):
    (run / "serving.toml").write_text(
        'host = "0.0.0.0"\nport = 9092\nkeys = ""\nlocal = 0\nattached = false\nwait = 1.0\n'
        f'federation = "{"a" * 32}"\n'
    )
    for command in ("check", "resume", "evaluate"):
        code, out, err = call(capsys, command, run)
        assert code == 2
        assert "a port that is opened at 0.0.0.0:9092, without TLS and keys" in out + err
    code, out, _ = call(capsys, "check", run, "--trust-plugins")
    assert "agreed to" not in out


def test_a_run_of_a_comparison_that_lies_elsewhere_is_left_alone(run, tmp_path, capsys):
    path = tmp_path / "comparison"
    plan = compare.ComparisonPlan("probe-point", ("fedkl",), (0,), 1)
    compare.create(path, plan, lambda a, s, _: fedkl.preset("probe-point", a, s, SMALLEST))
    shutil.rmtree(path / "fedkl-seed0")
    (path / "fedkl-seed0").symlink_to(run)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    code, _, err = call(capsys, "resume", path)
    assert code == 2
    assert "fedkl-seed0 is a symbolic link" in err
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_a_comparison_respects_the_umask(tmp_path):
    plan = compare.ComparisonPlan("probe-point", ("fedkl",), (0,), 1)
    before = os.umask(0o077)
    try:
        compare.create(tmp_path / "x", plan, lambda a, s, _: fedkl.preset("probe-point", a, s))
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o700


def test_rounds_are_counted_by_reading_what_is_new(tmp_path):
    (tmp_path / "a").mkdir()
    log, count = tmp_path / "a" / "metrics.jsonl", workers.RoundCounter([tmp_path / "a"])
    assert count() == 0
    log.write_bytes(b"1\n2\n3")
    assert count() == 2
    log.write_bytes(b"1\n2\n3\n4\n")
    assert count() == 4
    log.write_bytes(b"1\n")  # resumed from an earlier round
    assert count() == 1


def test_an_incomplete_summary_is_said(run, capsys):
    (run / "summary.json").write_text('{"rounds": 2}')
    code, _, err = call(capsys, "resume", run)
    assert code == 2
    assert "summary.json is incomplete" in err
    assert err.count("\n") == 1


def test_a_second_ctrl_c_ends_at_once_without_a_traceback(tmp_path, child):
    path = tmp_path / "run"
    process = child("-m", "fedkl", "train", "probe-point", "--rounds", 100_000, "--run", path,
                    "--set", "learner.steps=64", "evaluation.episodes=1", stdout=None)  # fmt: skip
    until((path / "metrics.jsonl").exists)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    _, err = process.communicate(timeout=60)
    # By the signal itself, if it came when Python was all but gone.
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in err


def test_a_number_beyond_what_code_can_count_is_refused_and_leaves_nothing(tmp_path, capsys):
    path = tmp_path / "run"
    code, _, err = call(
        capsys, "train", "probe-point", "--run", path, "--set", "learner.steps=1000000000000"
    )
    assert code == 2
    assert "learner.steps must be at most 2147483647" in err
    assert not path.exists()


def test_too_little_memory_is_a_sentence(tmp_path, capsys, monkeypatch):
    def full(*_args, **_options):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 10 bytes.")

    monkeypatch.setattr(api, "run_remaining", full)
    path = tmp_path / "run"
    code, _, err = call(capsys, "train", "probe-point", "--run", path)
    assert (code, err) == (2, "fedkl: there is not enough memory for this\n")
    assert not path.exists()


def test_what_lies_among_what_flower_writes_is_found(run, capsys):
    flower = run / "flower"
    state = flower / "clients" / "0" / ("0" * 32)
    state.mkdir(parents=True)
    (flower / "node-0").mkdir()
    for path in (
        flower / "superlink.log",
        flower / "node-0" / "supernode.log",
        flower / "clients" / "0" / "worker.log",
        state / "000001.safetensors",
    ):
        path.touch()
    assert call(capsys, "check", run)[0] == 0
    (flower / "home" / "apps" / "one").mkdir(parents=True)
    (flower / "node-0" / "bin").mkdir()
    (flower / "clients" / "0" / "sitecustomize.py").touch()
    (state / "link").symlink_to("/etc")
    os.mkfifo(state / "000002.safetensors")
    code, out, err = call(capsys, "check", run)
    assert code == 2
    assert f"{flower / 'home'} is not of a run" in out
    assert f"{flower / 'node-0' / 'bin'} is not of a run" in out
    assert f"{flower / 'clients' / '0' / 'sitecustomize.py'} is not of a run" in out
    assert f"{state / 'link'} is a symbolic link" in out
    assert f"{state / '000002.safetensors'} is not an ordinary file" in out
    assert "5 things are wrong" in err
