"""The command line as a user meets it: what it prints, what it returns, what it leaves behind."""

import json
import signal
import subprocess
import sys

import pytest
from commands import call
from waiting import until

TINY = [
    "--set", "federation.clients=3", "federation.clients_per_round=2", "learner.iterations=2",
    "learner.steps=64", "learner.epochs=2", "evaluation.episodes=2",
]  # fmt: skip


def fedkl(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "fedkl", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    result = fedkl("train", "probe-point", "--rounds", 2, "--run", path, "--tensorboard", *TINY)
    assert result.returncode == 0, result.stderr
    return path, result


def test_training_prints_a_line_a_round_and_leaves_a_run_directory(trained):
    path, result = trained
    lines = result.stdout.splitlines()
    assert lines[0].startswith("round 1/2  return ")
    assert "sqrt_kl from global 0." in lines[0]
    assert lines[1].endswith(" 0:00:00 left")
    assert lines[-1].startswith("probe-point fedkl seed 0: return ")
    for name in ("config.toml", "metrics.jsonl", "summary.json", "checkpoints", "tensorboard"):
        assert (path / name).exists()
    assert len((path / "metrics.jsonl").read_text().splitlines()) == 2
    assert result.stderr == ""


def test_a_run_starts_from_the_policy_of_another(trained, tmp_path, monkeypatch, capsys):
    path, _ = trained
    monkeypatch.chdir(tmp_path)
    started = ["--algorithm", "fedavg", "--from", path, "--rounds", 1]
    code, _, err = call(capsys, "train", "probe-point", *started, *TINY)
    assert (code, err) == (0, "")
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("probe-point-from-run-fedavg-")
    assert len([*(run / "start").iterdir()]) == 1
    assert call(capsys, "check", run)[1] == f"{run}: all is well, 1 round\n"
    assert call(capsys, "resume", run)[0] == 0


def test_evaluation_prints_json_for_machines_and_words_for_people(trained, capsys):
    path, _ = trained
    code, out, _ = call(capsys, "evaluate", path, "--episodes", 3, "--deterministic", "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["round"], result["episodes"], result["deterministic"]) == (2, 3, True)
    assert len(result["return_per_client"]) == 3
    code, out, _ = call(capsys, "evaluate", path, "--episodes", 3)
    assert "stochastic global policy after round 2, 3 episodes on each of 3 clients" in out
    assert ", 1 episode on each of 3 clients" in call(capsys, "evaluate", path, "--episodes", 1)[1]


def test_evaluation_leaves_the_run_as_it_was(trained, capsys):
    path, _ = trained
    before = {f: f.read_bytes() for f in path.rglob("*") if f.is_file()}
    call(capsys, "evaluate", path, "--episodes", 2)
    assert before == {f: f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_a_report_of_a_run_is_a_page(trained, capsys):
    path, _ = trained
    code, out, _ = call(capsys, "report", path)
    assert code == 0
    assert (path / "report.html").read_text().startswith("<!doctype html>")
    assert str(path / "report.html") in out.replace("\n", "")


def test_resuming_a_finished_run_says_its_result(trained, capsys):
    path, result = trained
    code, out, _ = call(capsys, "resume", path)
    assert code == 0
    assert out.splitlines()[-2] == result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "nope"], "there is no preset 'nope'; available: acrobot"),
        (["train", "demo", "--algorithm", "nope"], "there is no algorithm 'nope'"),
        (["train", "demo", "--set", "learner.nope=1"], "learner.nope is not a setting"),
        (["train", "demo", "--set", "learner.steps=abc"], "learner.steps must be a whole number"),
        (["train", "demo", "--set", "learner.steps"], "'learner.steps' is not of the form"),
        (["train", "demo", "--rounds", "0"], "federation.rounds must be at least 1, not 0"),
        (["train", "demo", "--rounds", "x"], "argument --rounds: must be a whole number, not 'x'"),
        (["train", "demo", "--set", "federation.clients=2"], "federation.clients_per_round must"),
        (["train", "demo", "--plugin", "gone.py"], "gone.py is not a file"),
        (["train", "gone.toml"], "there is no config file 'gone.toml'"),
        (["train", "demo", "--nope"], "unrecognized arguments: --nope"),
        (["train"], "the following arguments are required: PRESET"),
        (["nope"], "invalid choice: 'nope'"),
        ([], "the following arguments are required: COMMAND"),
        (["resume", "gone"], "gone"),
        (["evaluate", "gone"], "gone"),
        (["report", "gone"], "gone"),
        (["compare", "demo", "--algorithms", "fedkl", "fedkl", "--run", "x"], "twice"),
        (["compare", "demo", "--algorithms", "nope", "--run", "x"], "there is no algorithm 'nope'"),
        (
            ["compare", "demo", "--algorithms", "fedkl", "--seeds", "0", "--run", "x"],
            "--seeds must",
        ),
        (["compare", "demo", "--algorithms", "fedkl", "--jobs", "0", "--run", "x"], "--jobs must"),
        (
            ["compare", "demo", "--algorithms", "fedkl", "--run", "x", "--set", "seed=5"],
            "seed is given twice",
        ),
        (
            ["compare", "demo", "--algorithms", "fedkl", "--run", "x", "--first-seed", "-1"],
            "--first-seed must be at least 0, not -1",
        ),
        (
            [
                "compare",
                "demo",
                "--algorithms",
                "fedkl",
                "--run",
                "x",
                "--first-seed",
                "4",
                "--set",
                "tuned_on=[3, 6, 5]",
            ],
            "settings were chosen on seeds 5, 6 (tuned_on), which cannot judge them",
        ),
        (["train", "demo", "--from", "gone"], "gone does not exist"),
        (["train", "demo", "--from-round", "2"], "--from-round needs --from RUN"),
        (["train", "demo", "--seed", "-1"], "seed must be at least 0, not -1"),
        (["resume", ".", "--until", "0"], "--until must be at least 1, not 0"),
        (
            ["train", "demo", "--set", "learner.d_local=inf"],
            "learner.d_local must be finite, not inf",
        ),
        (
            ["train", "reacher-both", "--set", "world.clients.action_noise=inf"],
            "world.clients.action_noise must be between -1e30 and 1e30, not inf",
        ),
        (["train", "_reacher"], "there is no preset '_reacher'"),
        (["train", "demo", "--set", "aggregation.reduce=nope"], "there is no reducer 'nope'"),
        (["train", "demo", "--set", 'aggregation.each=["nope"]'], "there is no transform 'nope'"),
        (["train", "demo", "--set", "aggregation.step=nope"], "there is no server step 'nope'"),
        (["train", "demo", "--set", "selection.name=nope"], "there is no selector 'nope'"),
        (
            ["train", "demo", "--set", "aggregation.reduce=krum"],
            "needs federation.clients_per_round of at least 5, not 3",
        ),
        (
            ["train", "demo", "--set", "aggregation.trim=0.4"],
            "aggregation.trim is not a setting; with these links",
        ),
        (["train", "demo", "--set", "federation.quorum=4"], "federation.quorum must be at most"),
        (
            ["train", "demo", "--algorithm", "scaffold", "--set", "aggregation.reduce=grouped"],
            "aggregation.reduce must not be grouped with scaffold",
        ),
        (
            ["train", "demo", "--algorithm", "scaffold", "--set", "learner.optimiser=adam"],
            "learner.optimiser must be sgd",
        ),
        (["resume", "x" * 300], "the name is too long"),
    ],
)
def test_a_mistake_ends_in_one_sentence_and_code_2_and_writes_nothing(
    tmp_path, monkeypatch, capsys, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_existing_run_directory_is_left_alone(trained, capsys):
    path, _ = trained
    before = (path / "metrics.jsonl").read_bytes()
    code, _, err = call(capsys, "train", "probe-point", "--run", path)
    assert code == 2
    assert f"fedkl resume {path}" in err.replace("\n", "")
    assert (path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("rounds = 2", 'rounds = "two"', "federation.rounds must be a whole number, not 'two'"),
        ("rounds = 2", "rounds = ", "config.toml"),
        ('name = "fedkl"', "name = 3", "algorithm.name must say which"),
        ("[federation]", "[federatoin]", "federatoin is not a setting"),
    ],
)
def test_a_config_with_a_mistake_is_answered_with_a_sentence(
    trained, tmp_path, capsys, old, new, sentence
):
    import shutil

    path = tmp_path / "copy"
    shutil.copytree(trained[0], path)
    text = (path / "config.toml").read_text()
    assert old in text
    (path / "config.toml").write_text(text.replace(old, new))
    for command in ("resume", "evaluate"):
        code, _, err = call(capsys, command, path)
        assert code == 2
        assert sentence in err.replace("\n", "")


def test_when_no_checkpoint_can_be_read_nothing_is_lost(trained, tmp_path, capsys):
    import shutil

    path = tmp_path / "copy"
    shutil.copytree(trained[0], path)
    for file in (path / "checkpoints").iterdir():
        file.write_bytes(b"rubbish")
    before = (path / "metrics.jsonl").read_bytes()
    code, _, err = call(capsys, "resume", path)
    assert code == 2
    assert "Traceback" not in err
    assert (path / "metrics.jsonl").read_bytes() == before


def test_a_plugin_whose_name_is_taken_is_refused(tmp_path, monkeypatch, capsys):
    plugin = tmp_path / "taken.py"
    plugin.write_text(
        "import fedkl\n"
        "@fedkl.register_algorithm\n"
        "class Mine(fedkl.Algorithm):\n"
        "    name = 'fedkl'\n"
        "    summary = 'of my own'\n"
    )
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "train", "demo", "--plugin", plugin)
    assert code == 2
    assert "there are two algorithms named 'fedkl'" in err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == [plugin]


def test_closed_output_is_no_error(trained):
    path, _ = trained
    command = f"{sys.executable} -m fedkl evaluate {path} --episodes 1"
    for closed in (">&-", "| head -c 1"):
        result = subprocess.run(
            ["bash", "-c", f"{command} {closed}"], capture_output=True, text=True, timeout=300
        )
        assert "Traceback" not in result.stderr


def test_ctrl_c_says_how_to_resume_and_the_run_can_be(tmp_path, child):
    path = tmp_path / "run"
    process = child("-m", "fedkl", "train", "probe-point", "--rounds", 5000, "--run", path, *TINY)
    log = path / "metrics.jsonl"
    until(lambda: log.exists() and log.read_text().count("\n") > 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"fedkl resume {path}" in err
    assert "Traceback" not in err
