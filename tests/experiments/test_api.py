"""Comparisons and tunings from Python: as the commands do them."""

import json

import pytest
from commands import call
from finished_runs import SMALLEST
from places import InThisProcess, Stub

import fedkl
from fedkl.experiments import compare, tune, workers
from fedkl.training.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_compilation")

TINY = {key: value for key, value in SMALLEST.items() if "rounds" not in key}
TEXTS = [f"{key}={value}" for key, value in TINY.items()]


@pytest.fixture
def here(monkeypatch):
    """Runs are trained in this process."""
    place = InThisProcess()
    monkeypatch.setattr(workers, "Processes", lambda jobs: place)
    return place


@pytest.fixture
def stub(monkeypatch):
    """Nothing is trained."""
    place = Stub()
    monkeypatch.setattr(workers, "Processes", lambda jobs: place)
    monkeypatch.setattr(workers.time, "sleep", lambda seconds: None)
    return place


class Heard(fedkl.Callback):
    def __init__(self, run, heard):
        self.run, self.heard = run, heard

    def on_start(self, run, config):
        assert run == self.run
        self.heard.append((run.name, "start", config["seed"]))

    def on_round(self, record):
        self.heard.append((self.run.name, "round", record["round"]))

    def on_end(self, summary):
        self.heard.append((self.run.name, "end", summary and summary["rounds"]))


def test_a_comparison_from_python_is_the_commands(tmp_path, capsys, here):
    heard = []
    rows = fedkl.compare(
        "probe-point", tmp_path / "python", ["fedavg"], 2, rounds=2, set=TINY,
        vary={"learner.d_local": [0.1, 0.2]}, callbacks=lambda run: [Heard(run, heard)],
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert out == ""
    assert "fedavg-d_local=0.1-seed0 started" in err
    assert "4 runs, round 8/8" in err
    code, out, _ = call(
        capsys, "compare", "probe-point", "--algorithms", "fedavg", "--seeds", 2, "--rounds", 2,
        "--vary", "learner.d_local=0.1,0.2", "--set", *TEXTS, "--run", tmp_path / "shell", "--json",
    )  # fmt: skip
    assert code == 0
    timed = ("seconds", "seconds_to_target", "seconds_training", "steps_per_second")
    shell = json.loads(out)["rows"]
    for row in (*rows, *shell):
        for key in timed:
            row.pop(key, None)
    assert json.loads(json.dumps(rows)) == shell
    for run in compare.ComparisonPlan.read(tmp_path / "shell").run_paths(tmp_path / "shell"):
        same = (tmp_path / "python" / run.name / "config.toml").read_bytes()
        assert (run / "config.toml").read_bytes() == same
    assert (tmp_path / "python" / "report.html").is_file()
    of_one = [entry[1:] for entry in heard if entry[0] == "fedavg-d_local=0.2-seed1"]
    assert of_one == [("start", 1), ("round", 1), ("round", 2), ("end", 2)]
    assert len(heard) == 4 * len(of_one)
    # The same again, with a seed more.
    before = [*here.trained]
    heard.clear()
    rows = fedkl.compare(
        "probe-point", tmp_path / "python", seeds=[5], add=True, progress=False,
        callbacks=lambda run: [Heard(run, heard)],
    )  # fmt: skip
    assert {*here.trained[len(before) :]} == {f"fedavg-d_local={d}-seed5" for d in (0.1, 0.2)}
    assert [row["seeds"] for row in rows] == [3, 3]
    assert {run for run, *_ in heard} == {*here.trained[len(before) :]}
    assert capsys.readouterr() == ("", "")


def test_a_tuning_from_python_is_the_commands(tmp_path, capsys, stub):
    best = fedkl.tune(
        "probe-point", tmp_path / "python", {"algorithm.mu": [1, 2, 30]}, "fedprox", 2, rounds=4,
        set=TINY, halvings=1,
    )  # fmt: skip
    code, _, _ = call(
        capsys, "tune", "probe-point", "--algorithm", "fedprox", "--grid", "algorithm.mu=1,2,30",
        "--seeds", 2, "--rounds", 4, "--halvings", 1, "--set", *TEXTS, "--run", tmp_path / "shell",
    )  # fmt: skip
    assert code == 0
    tried = json.loads((tmp_path / "shell" / "tuning.json").read_text())
    assert best == tried["candidates"][tried["best"]]["settings"]
    python = json.loads((tmp_path / "python" / "tuning.json").read_text())
    assert python == tried
    toml = [(tmp_path / name / "best.toml").read_text() for name in ("python", "shell")]
    assert toml[0] == toml[1]
    best = fedkl.tune("probe-point", tmp_path / "python", {"algorithm.mu": [40]}, add=True)
    assert len(tune.TuningPlan.read(tmp_path / "python").candidates) == 4


def test_a_config_stands_for_its_preset_and_what_it_changes(tmp_path, stub):
    settings = TINY | {"algorithm.mu": 0.3}
    chosen = fedkl.preset("probe-point", "fedprox", seed=7, set=settings)
    fedkl.tune(chosen, tmp_path / "x", {"learner.d_local": [0.1, 0.2]}, rounds=2, seeds=1)
    made = RunDirectory(tmp_path / "x" / "0-seed1000").config()
    wanted = fedkl.preset(
        "probe-point", "fedprox", 1000,
        settings | {"learner.d_local": 0.1, "federation.rounds": 2},
    )  # fmt: skip
    assert made == wanted.mapping()
    best = fedkl.preset(tmp_path / "x" / "best.toml", "fedprox")
    assert best.algorithm.mu == 0.3  # what it was tuned with


@pytest.mark.parametrize(
    ("call_it", "sentence"),
    [
        (lambda x: fedkl.compare("demo", x, ["nope"]), "no algorithm 'nope'"),
        (lambda x: fedkl.compare("demo", x, "fedkl"), "algorithms must be a list of names"),
        (lambda x: fedkl.compare("demo", x, ["fedkl", "fedkl"]), "names an algorithm twice"),
        (lambda x: fedkl.compare("demo", x, ["fedkl"], 0), "seeds must be a whole number from 1"),
        (lambda x: fedkl.compare("demo", x, ["fedkl"], []), "seeds must name a seed"),
        (lambda x: fedkl.compare("demo", x, ["fedkl"], [-1]), "a seed must be a whole number"),
        (lambda x: fedkl.compare("demo", x, ["fedkl"], jobs=0), "jobs must be a whole number"),
        (lambda x: fedkl.compare("demo", x, ["fedkl"], rounds=0), "rounds must be a whole number"),
        (lambda x: fedkl.compare("demo", x, ["fedkl"], vary=3), "vary must be a dict such as"),
        (lambda x: fedkl.compare("demo", x, ["fedkl"], vary={"seed": 1}), "vary must be a dict"),
        (lambda x: fedkl.compare("demo", x, references=["best"]), "no reference 'best'"),
        (lambda x: fedkl.compare("nope", x, ["fedkl"]), "no preset 'nope'"),
        (lambda x: fedkl.compare("demo", 3, ["fedkl"]), "must be the path of a run's directory"),
        (lambda x: fedkl.compare("demo", x, ["fedkl"], add=True), "does not hold a comparison"),
        (lambda x: fedkl.tune("demo", x), "grid must say what to try"),
        (lambda x: fedkl.tune("demo", x, {"seed": [1, 2]}), "seed cannot be in a grid"),
        (lambda x: fedkl.tune("demo", x, {"learner.d_local": [1]}, halvings=-1), "halvings must"),
        (
            lambda x: fedkl.tune("demo", x, {"learner.d_local": [1]}, set={"learner.d_local": 2}),
            "learner.d_local is given in --set, too",
        ),
    ],
)
def test_a_mistake_is_a_sentence_and_writes_nothing(tmp_path, call_it, sentence, stub):
    with pytest.raises(fedkl.UserError, match=sentence):
        call_it(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    assert stub.trained == []


def test_a_callback_that_raises_ends_the_comparison_and_hears_of_the_end(tmp_path, here):
    heard = []

    class Fails(Heard):
        def on_round(self, record):
            super().on_round(record)
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        fedkl.compare(
            "probe-point", tmp_path / "x", ["fedavg"], 1, rounds=2, set=TINY, progress=False,
            callbacks=lambda run: [Fails(run, heard)],
        )  # fmt: skip
    assert [what for _, what, _ in heard] == ["start", "round", "end"]
