"""`fedkl reproduce`, as a user meets it."""

import csv
import gzip
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
    command = [sys.executable, "-m", "fedkl", "reproduce", "negative-potential", "--quick"]
    command += arguments
    return path, subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_an_experiment_leaves_a_figure_a_table_and_verdicts_and_prints_them(experiment):
    path, result = experiment
    assert (result.returncode, result.stderr) == (0, "")
    for suffix in (".png", ".svg", ".csv", ".md"):
        assert (path / f"negative-potential{suffix}").stat().st_size > 0
    assert "Training slows down in rounds in which G < 0" in result.stdout
    text = (path / "negative-potential.md").read_text(encoding="utf-8")
    assert text in result.stdout
    lines = (path / "negative-potential.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    assert [row["round"] for row in rows] == ["1.0", "2.0", "3.0", "4.0"]
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


def test_only_what_is_missing_is_trained(made_up, tmp_path, capsys):
    made_up(lambda run, round: {}, rounds=4)
    table = tmp_path / "results" / "negative-potential" / "noise-0.4-fedkl-seed10.csv.gz"
    table.parent.mkdir(parents=True)
    table.touch()
    options = ["--results", str(tmp_path / "results"), "--run", str(tmp_path / "runs")]
    code, out, _ = call(capsys, "reproduce", "negative-potential", "--missing", *options)
    assert (code, out.splitlines()[-1]) == (
        0,
        "5 runs trained, 1 left out; for the verdicts: fedkl reproduce report --run "
        f"{tmp_path / 'runs'} --commit HASH",
    )
    there = sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert len(there) == 5
    assert "negative-potential-noise-0.4-fedkl-seed10" not in there
    assert call(capsys, "resume", str(tmp_path / "runs"))[0] == 0


def test_where_nothing_is_missing_nothing_is_made(tmp_path, capsys):
    for group in ("noise-0.4", "ours-noise-0.4"):
        for seed in (10, 11, 12):
            table = tmp_path / "results" / "negative-potential" / f"{group}-fedkl-seed{seed}.csv.gz"
            table.parent.mkdir(parents=True, exist_ok=True)
            table.touch()
    options = ["--results", str(tmp_path / "results"), "--run", str(tmp_path / "runs")]
    code, _, err = call(capsys, "reproduce", "negative-potential", "--missing", *options)
    assert code == 2
    assert "nothing is missing" in err
    assert not (tmp_path / "runs").exists()


def test_an_experiment_that_is_there_is_not_begun_again(experiment, capsys):
    path, _ = experiment
    code, _, err = call(capsys, "reproduce", "negative-potential", "--run", str(path))
    assert code == 2
    assert "holds an experiment already" in err


def test_a_quick_look_cannot_stand_for_the_experiment(experiment, tmp_path, capsys):
    path, _ = experiment
    options = ["--results", str(tmp_path / "results"), "--commit", "abc", "--out", str(tmp_path)]
    code, _, err = call(capsys, "reproduce", "report", "--run", str(path), *options)
    assert code == 2
    assert "these runs were cut down" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["magic"], "there is no experiment 'magic'; available: reacher-init-state, "),
        (["negative-potental"], "(did you mean negative-potential?)"),
        (["negative-potential"], "say with --run where the runs are to be kept"),
        (["step-sizes", "--run", "RUN", "--seeds", "0"], "--seeds must be at least 1, not 0"),
        (["step-sizes", "--run", "RUN", "--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["report", "--results", "RUN"], "there is no folder "),
        (["report", "--run", "RUN"], "holds no experiments: it has no reproduce.toml"),
    ],
)
def test_mistakes_are_answered_in_a_sentence_and_nothing_is_written(
    arguments, sentence, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    given = [str(tmp_path / "x") if a == "RUN" else a for a in arguments]
    code, _, err = call(capsys, "reproduce", *given)
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_another_experiment_is_not_written_into(experiment, capsys):
    path, _ = experiment
    before = sorted(path.iterdir())
    code, _, err = call(capsys, "reproduce", "step-sizes", "--run", str(path))
    assert code == 2
    assert "holds an experiment already" in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(path.iterdir()) == before


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"no table", "is damaged, or no table of a run", id="damaged"),
        pytest.param(
            gzip.compress(b"round,return_mean\n1,-40\n"),
            "has 1 rounds and its case 100: it is of another experiment, or of a quick one",
            id="of a quick look",
        ),
    ],
)
def test_results_that_cannot_be_judged_are_named_and_the_page_stays(
    content, sentence, tmp_path, capsys
):
    table = tmp_path / "results" / "negative-potential" / "noise-0.4-fedkl-seed10.csv.gz"
    table.parent.mkdir(parents=True)
    table.write_bytes(content)
    page = tmp_path / "docs" / "reproduction.md"
    page.parent.mkdir()
    page.write_text("old")
    options = ["--results", str(tmp_path / "results"), "--out", str(page.parent)]
    code, _, err = call(capsys, "reproduce", "report", *options)
    assert code == 2
    assert str(table) in err
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert (page.read_text(), table.read_bytes()) == ("old", content)
