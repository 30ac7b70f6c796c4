"""`fedkl reproduce`, as a user meets it."""

import csv
import subprocess
import sys

import pytest
from commands import call

TINY = [
    "federation.clients=3", "federation.clients_per_round=2", "learner.iterations=1",
    "learner.steps=50", "learner.epochs=1", "evaluation.episodes=1",
    "heterogeneity.trajectories=4", "heterogeneity.features=4",
]  # fmt: skip


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    path = tmp_path_factory.mktemp("reproduce") / "x"
    arguments = ["--rounds", "4", "--seeds", "1", "--run", str(path), "--set", *TINY]
    command = [sys.executable, "-m", "fedkl", "reproduce", "negative-potential", *arguments]
    return path, subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_an_experiment_leaves_a_figure_a_table_and_a_text_and_prints_it(experiment):
    path, result = experiment
    assert (result.returncode, result.stderr) == (0, "")
    for suffix in (".png", ".svg", ".csv", ".md"):
        assert (path / f"negative-potential{suffix}").stat().st_size > 0
    assert "G < 0 for a selected client" in result.stdout
    text = (path / "negative-potential.md").read_text(encoding="utf-8")
    assert text in result.stdout
    lines = (path / "negative-potential.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]
    assert rows[0]["gain"] == ""


def test_a_finished_experiment_is_judged_again_by_resume(experiment, capsys):
    path, _ = experiment
    before = (path / "negative-potential.png").read_bytes()
    (path / "negative-potential.md").unlink()
    code, out, _ = call(capsys, "resume", str(path))
    assert code == 0
    assert "started" not in out
    assert (path / "negative-potential.md").exists()
    assert (path / "negative-potential.png").read_bytes() == before


def test_an_experiment_that_is_there_is_not_begun_again(experiment, capsys):
    path, _ = experiment
    code, _, err = call(capsys, "reproduce", "negative-potential", "--run", str(path))
    assert code == 2
    assert "holds an experiment already" in err


def test_an_unknown_experiment_is_answered_with_those_there_are(tmp_path, capsys):
    code, _, err = call(capsys, "reproduce", "figure-7", "--run", str(tmp_path / "x"))
    assert code == 2
    assert err.strip() == (
        "fedkl: there is no experiment 'figure-7', only heterogeneity-level, negative-potential"
    )
    assert list(tmp_path.iterdir()) == []
