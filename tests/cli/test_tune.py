"""The commands that choose settings, as a user meets them."""

import json
import signal
import subprocess
import sys
import tomllib

import pytest
from commands import call
from waiting import runs, until

from fedkl.config import config
from fedkl.experiments import workers
from fedkl.training.directory import RunDirectory

TINY = [
    "federation.clients=3", "federation.clients_per_round=2", "learner.iterations=2",
    "learner.steps=64", "learner.epochs=2", "evaluation.episodes=2",
]  # fmt: skip
TUNE = [
    "tune", "probe-point", "--algorithm", "fedkl", "--grid", "learner.d_local=0.01,0.1,0.05",
    "--grid", "algorithm.d_global=0.5", "--seeds", "1", "--rounds", "4", "--halvings", "1",
    "--jobs", "2", "--set", *TINY,
]  # fmt: skip


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "tuned"
    command = [sys.executable, "-m", "fedkl", *TUNE, "--run", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return path, result


def comparable(run):
    """Every metric but the time it took."""
    records = RunDirectory(run).metrics.read()
    return [{k: v for k, v in record.items() if k not in ("seconds", "time")} for record in records]


def test_a_tuning_prints_a_table_and_says_what_is_best(tuned):
    _, result = tuned
    assert result.stderr == ""
    *_, head, zero, one, two, last = result.stdout.splitlines()
    assert head.split() == ["d_local", "d_global", "round", "2", "round", "4", "steps"]
    assert max(map(len, (head, zero, one, two))) <= 80
    ends = [row.split()[-1] for row in (zero, one, two)]
    assert sorted(ends)[1:] == ["best", "dropped"]
    assert last.startswith("best for fedkl: learner.d_local=0.")
    # 2 clients, 2 iterations, 64 steps: 256 a round, 3 candidates for 2 and 2 for 2 more.
    assert "2,560 environment steps for all" in last
    assert last.endswith("best.toml")


def test_a_tuning_leaves_its_runs_what_was_tried_and_a_config_file(tuned):
    path, _ = tuned
    names = {p.name for p in path.iterdir()} - {".lock"}
    runs = {f"{number}-seed1000" for number in range(3)}
    assert names == runs | {"tune.toml", "tuning.json", "best.toml"}
    tried = json.loads((path / "tuning.json").read_text())
    assert tried["settings"] == TINY
    rounds = {True: [2], False: [4]}
    for candidate in tried["candidates"]:
        assert candidate["rounds_per_seed"] == rounds[candidate["dropped"]]
        run = path / f"{candidate['number']}-seed1000"
        assert (run / "summary.json").exists() == (not candidate["dropped"])
        assert tomllib.loads((run / "config.toml").read_text())["federation"]["rounds"] == 4
    best = tried["candidates"][tried["best"]]["settings"]
    chosen = config.preset(str(path / "best.toml"), "fedkl")
    assert chosen.learner.d_local == best["learner.d_local"]
    assert chosen.algorithm.d_global == best["algorithm.d_global"] == 0.5
    assert chosen.tuned_on == (1000,)
    # What the tuning was run with, for whoever is compared with the winner as well; not its length.
    other = config.preset(str(path / "best.toml"), "fedprox")
    for one in (chosen, other):
        assert (one.federation.clients, one.learner.steps) == (3, 64)
    assert other.federation.rounds == config.preset("probe-point", "fedprox").federation.rounds


def test_a_comparison_refuses_the_seeds_of_a_tuning(tuned, tmp_path, capsys):
    best = tuned[0] / "best.toml"
    code, out, err = call(
        capsys, "compare", best, "--algorithms", "fedkl", "--first-seed", 999,
        "--run", tmp_path / "x",
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert "settings were chosen on seeds 1000 (tuned_on)" in err
    assert list(tmp_path.iterdir()) == []


def test_a_tuning_cannot_be_made_twice(tuned, capsys):
    path, _ = tuned
    code, _, err = call(capsys, *TUNE, "--run", path)
    assert code == 2
    assert "holds a tuning already; go on with it by `fedkl resume" in err
    code, _, err = call(capsys, "resume", path, "--until", 2)
    assert code == 2
    assert "--until is for a run" in err


def test_killed_and_resumed_a_tuning_ends_the_same(tuned, tmp_path, capsys, child):
    path = tmp_path / "killed"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = child("-m", "fedkl", *TUNE, "--run", path, **quiet)
    until(lambda: list(path.glob("*/metrics.jsonl")))
    workers = [int(lock.read_text().split()[0]) for lock in path.glob("*/.lock")]
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(runs, workers)))  # they die with it
    code, out, err = call(capsys, "resume", path)
    assert (code, err) == (0, "")
    for name in ("tuning.json", "best.toml"):
        assert (path / name).read_bytes() == (tuned[0] / name).read_bytes()
    for number in range(3):
        run = f"{number}-seed1000"
        assert comparable(path / run) == comparable(tuned[0] / run)
    again = call(capsys, "resume", path)
    assert (again[0], again[1].splitlines()) == (0, out.splitlines()[-5:])


def test_a_relative_file_is_found_from_where_best_toml_is(tmp_path, monkeypatch, capsys, made_up):
    made_up(lambda name, round: {"return_mean": float(name[0])}, 4)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('extends = ["probe-point"]\n[learner]\nsteps = 77\n')
    code, out, err = call(
        capsys, "tune", "mine.toml", "--algorithm", "fedprox", "--grid", "algorithm.mu=0.1,0.2",
        "--rounds", 4, "--run", "deep/down",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "best for fedprox: algorithm.mu=0.2; " in out
    monkeypatch.chdir("/")
    chosen = config.preset(str(tmp_path / "deep" / "down" / "best.toml"), "fedprox")
    assert (chosen.learner.steps, chosen.algorithm.mu) == (77, 0.2)
    assert chosen.tuned_on == (1000, 1001, 1002)


def test_d_global_is_measured_in_fedkls_distance_and_written(tmp_path, capsys, made_up):
    """The figure-eight has d_local 0.0002 without a global penalty, and 0.0003 with FedKL's."""
    made_up(lambda name, round: {"clients": [{"distance_global": 0.1 * round}]}, 3)
    path = tmp_path / "measured"
    code, out, err = call(
        capsys, "tune-d-global", "figure-eight", "--seeds", 2, "--rounds", 3, "--run", path
    )
    assert (code, err) == (0, "")
    assert "with learner.d_local=0.0002: mean distance (sqrt_kl) 0.2 over 6 rounds" in out
    assert "for fedkl: algorithm.d_global=0.22 learner.d_local=0.0003; written to" in out
    ran = tomllib.loads((path / "fedavg-seed1001" / "config.toml").read_text())
    assert (ran["algorithm"]["name"], ran["algorithm"]["distance"]) == ("fedavg", "sqrt_kl")
    chosen = config.preset(str(path / "best.toml"), "fedkl")
    assert (chosen.algorithm.d_global, chosen.learner.d_local) == (0.22, 0.0003)
    assert chosen.tuned_on == (1000, 1001)
    assert config.preset(str(path / "best.toml"), "fedavg").learner.d_local == 0.0002
    code, again, _ = call(capsys, "resume", path)
    assert code == 0
    assert again.splitlines()[-2:] == out.splitlines()[-2:]


def test_d_global_takes_its_factors_from_the_command_line(tmp_path, capsys, made_up):
    made_up(lambda name, round: {"clients": [{"distance_global": 0.5}]}, 2)
    code, out, _ = call(
        capsys, "tune-d-global", "probe-point", "--rounds", 2, "--d-global-factor", 2,
        "--d-local-factor", 1, "--set", "algorithm.distance=kl", "--run", tmp_path / "measured",
    )  # fmt: skip
    assert code == 0
    assert "(kl) 0.5 over 6 rounds" in out
    assert "algorithm.d_global=1.0 learner.d_local=0.05; " in out


START = ["tune", "probe-point", "--algorithm", "fedkl", "--run", "x"]
GRID = ["--grid", "learner.d_local=0.1,0.2,0.3,0.4"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (START, "the following arguments are required: --grid"),
        ([*START, "--grid"], "argument --grid: expected at least one argument"),
        ([*START, "--grid", "learner.d_local="], "--grid learner.d_local= lacks a value"),
        ([*START, "--grid", "learner.d_local"], "is not of the form dotted.key=value,value"),
        ([*START, "--grid", "learner.d_local=1,2", "learner.steps=8"], "of the same length"),
        ([*START, *GRID, *GRID], "learner.d_local is given twice in --grid"),
        ([*START, *GRID, "--set", "learner.d_local=1"], "learner.d_local is given in --set, too"),
        ([*START, "--grid", "learner.nope=1,2"], "learner.nope is not a setting"),
        ([*START, "--grid", "learner.d_local=0.1,-1"], "learner.d_local must be above 0"),
        ([*START, "--grid", "learner.d_local=0.1,fast"], "learner.d_local must be a number"),
        ([*START, "--grid", "a.b.c=1,2"], "a.b.c is not a setting"),
        ([*START, *GRID, "--seeds", "0"], "--seeds must be at least 1, not 0"),
        ([*START, *GRID, "--first-seed", "-1"], "--first-seed must be at least 0, not -1"),
        ([*START, *GRID, "--jobs", "0"], "--jobs must be at least 1, not 0"),
        ([*START, *GRID, "--halvings", "-1"], "--halvings must be at least 0, not -1"),
        ([*START, *GRID, "--halvings", "4"], "10 rounds are too few for 4 halvings"),
        ([*START, *GRID, "--rounds", "0"], "federation.rounds must be at least 1, not 0"),
        ([*START, *GRID, "--set", "seed=1"], "seed is given twice"),
        ([*START, *GRID, "--plugin", "gone.py"], "gone.py is not a file"),
        (["tune", "demo", "--algorithm", "nope", "--run", "x", *GRID], "no algorithm 'nope'"),
        (["tune", "nope", "--algorithm", "fedkl", "--run", "x", *GRID], "no preset 'nope'"),
        (["tune", "probe-point", "--run", "x", *GRID], "are required: --algorithm"),
        (["tune-d-global", "nope", "--run", "x"], "no preset 'nope'"),
        (["tune-d-global", "demo", "--run", "x", "--seeds", "0"], "--seeds must be at least 1"),
        (
            ["tune-d-global", "demo", "--run", "x", "--d-global-factor", "0"],
            "--d-global-factor must be a finite number above 0, not 0.0",
        ),
        (
            ["tune-d-global", "demo", "--run", "x", "--d-local-factor", "nan"],
            "--d-local-factor must be a finite number above 0, not nan",
        ),
        (
            ["tune-d-global", "demo", "--run", "x", "--set", "algorithm.d_global=1"],
            "algorithm.d_global is not a setting; the algorithm fedavg has: distance",
        ),
    ],
)
def test_a_mistake_ends_in_one_sentence_and_code_2_and_writes_nothing(
    tmp_path, monkeypatch, capsys, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "run_all", lambda *_: pytest.fail("something was trained"))
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
