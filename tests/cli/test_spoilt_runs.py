"""A run in which somebody has spoilt a file is answered with a sentence, by every command."""

import re
import shutil

import pytest
from commands import call

import fedkl
from fedkl.training import lifecycle

SETTINGS = {
    "federation.clients": 3, "federation.clients_per_round": 2, "federation.rounds": 2,
    "learner.iterations": 2, "learner.steps": 64, "learner.epochs": 2, "evaluation.episodes": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("spoilt") / "run"
    made = lifecycle.create(fedkl.preset("probe-point", set=SETTINGS), path)
    lifecycle.run_remaining(made, lambda record: None, lambda warning: None)
    return path


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def spoil(run, old, new):
    """Changes one place of the config."""
    text, changes = re.subn(old, new, (run / "config.toml").read_text(), count=1, flags=re.M)
    assert changes == 1
    (run / "config.toml").write_text(text)


def test_a_run_whose_config_lacks_its_rounds_has_as_many_as_by_default(capsys, run):
    spoil(run, r"^rounds = 2\n", "")
    code, out, err = call(capsys, "resume", run, "--until", "2")
    assert code == 0
    assert "federation.rounds was 2, is " in err
    assert "probe-point fedkl seed 0: " in out


def test_a_run_whose_config_lacks_its_preset_still_says_its_result(capsys, run):
    spoil(run, r'^preset = "probe-point"\n', "")
    code, out, _ = call(capsys, "resume", run, "--accept-changes")
    assert code == 0
    assert "fedkl seed 0: return " in out


@pytest.mark.parametrize(
    ("table", "arguments"),
    [
        ("federation", ["resume", "--rounds=5"]),
        ("heterogeneity", ["heterogeneity", "--trajectories=2"]),
    ],
)
def test_a_table_that_is_none_is_named_by_commands_that_change_it(capsys, run, table, arguments):
    command, *options = arguments
    text = (run / "config.toml").read_text()
    parts = re.split(r"^(?=\[)", text, flags=re.M)
    kept = [part for part in parts[1:] if not part.startswith(f"[{table}]")]
    (run / "config.toml").write_text(parts[0] + f"{table} = 3\n\n" + "".join(kept))
    code, _, err = call(capsys, command, run, *options)
    assert code == 2
    assert f"{table} must be a table of settings, not 3" in err


def test_a_log_without_rounds_cannot_be_measured_after_one(capsys, run):
    (run / "metrics.jsonl").write_text('{"a":1}\n{"a":1}\n')
    code, _, err = call(capsys, "heterogeneity", run)
    assert code == 2
    assert "metrics.jsonl: a record has no round" in err.replace("\n", "")


def test_a_served_run_with_half_a_summary_is_not_served_again(capsys, run):
    pytest.importorskip("flwr")
    from fedkl.network.flower.serve_settings import ServeSettings
    from fedkl.network.messages import new_federation

    ServeSettings("127.0.0.1", 0, None, 1, False, 1.0, new_federation()).write(run)
    (run / "summary.json").write_text("{}")
    code, _, err = call(capsys, "resume", run)
    assert code == 2
    assert "is incomplete: it has no sensible best_round" in " ".join(err.split())
    assert not (run / "flower").exists()
