"""Sweeps and reports across runs, as a user meets them."""

import csv
import io
import json
import signal
import sys
import tomllib
from contextlib import nullcontext

import pytest
from commands import call
from waiting import runs, until

from fedkl.cli import compare as compare_command
from fedkl.cli import progress
from fedkl.config import config
from fedkl.core.errors import UserError
from fedkl.experiments import compare, workers
from fedkl.experiments import progress as following
from fedkl.training import lifecycle
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import of_run

pytestmark = pytest.mark.usefixtures("quick_compilation")

TINY = [
    "--set", "federation.clients=3", "federation.clients_per_round=2", "learner.iterations=2",
    "learner.steps=64", "learner.epochs=2", "evaluation.episodes=2",
]  # fmt: skip
SWEEP = [
    "compare", "probe-point", "--algorithms", "fedkl", "fedavg", "--vary",
    "learner.d_local=0.01,0.02", "--seeds", "2", "--jobs", "2", *TINY,
]  # fmt: skip
CELLS = [f"{a}-d_local={d}" for a in ("fedkl", "fedavg") for d in ("0.01", "0.02")]


@pytest.fixture
def untrained(monkeypatch):
    """Plans are made, and nothing is trained."""
    monkeypatch.setattr(compare_command, "_run_remaining", lambda path, place, options: None)


def test_every_cell_of_a_sweep_is_an_ordinary_run(tmp_path, capsys, untrained):
    path = tmp_path / "sweep"
    code, _, err = call(capsys, *SWEEP, "--run", path)
    assert (code, err) == (0, "")
    plan = compare.ComparisonPlan.read(path)
    assert [*plan.cells()] == CELLS
    runs = plan.run_paths(path)
    assert [run.name for run in runs] == [f"{cell}-seed{s}" for s in (0, 1) for cell in CELLS]
    assert {run.name for run in runs} == {p.name for p in path.iterdir() if p.is_dir()}
    for run, (algorithm, settings) in zip(runs, 2 * [*plan.cells().values()], strict=True):
        made = config.from_mapping(RunDirectory.open(run).config())
        assert made.algorithm.name == algorithm
        assert made.learner.d_local == settings["learner.d_local"]
        assert made.federation.clients == 3


def test_who_lacks_a_setting_is_trained_once_for_all_its_values(tmp_path, capsys, untrained):
    path = tmp_path / "sweep"
    code, out, err = call(
        capsys, "compare", "probe-point", "--algorithms", "fedavg", "fedkl", *TINY, "--seeds", "1",
        "--vary", "algorithm.d_global=0.1,0.3", "--vary", "learner.d_local=0.01,0.02",
        "--run", path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out == "fedavg has no algorithm.d_global: it is trained once for all values\n"
    by_hand = ["fedavg-d_local=0.01", "fedavg-d_local=0.02"]
    by_hand += [f"fedkl-d_global={g}-d_local={d}" for g in (0.1, 0.3) for d in (0.01, 0.02)]
    assert [*compare.ComparisonPlan.read(path).cells()] == by_hand
    assert {f"{cell}-seed0" for cell in by_hand} == {p.name for p in path.iterdir() if p.is_dir()}


def made_in(path):
    """The configs of a comparison's runs, by the name of the cell."""
    plan = compare.ComparisonPlan.read(path)
    runs = {run.name.removesuffix("-seed0"): run for run in plan.run_paths(path)}
    return {name: of_run(RunDirectory.open(run)) for name, run in runs.items()}


def test_references_are_two_more_cells(tmp_path, capsys, untrained):
    path = tmp_path / "made"
    code, _, err = call(
        capsys, "compare", "probe-point", "--algorithms", "fedkl", *TINY, "algorithm.d_global=0.1",
        "--seeds", "1", "--references", "--run", path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    made = made_in(path)
    assert [*made] == ["fedkl", "alone", "centralised"]
    assert [c.algorithm.name for c in made.values()] == ["fedkl", "fedavg", "fedavg"]
    assert [c.federation.personal for c in made.values()] == ["none", "all", "none"]
    assert [c.federation.data for c in made.values()] == ["own", "own", "pooled"]


def test_references_are_trained_with_what_is_varied_if_they_go_by_it(tmp_path, capsys, untrained):
    path = tmp_path / "made"
    code, out, err = call(
        capsys, "compare", "probe-point", "--algorithms", "fedkl", *TINY, "--seeds", "1",
        "--vary", "federation.critic=federated,local", "--vary", "learner.d_local=0.01,0.02",
        "--references", "alone", "--run", path,
    )  # fmt: skip
    assert code == 0
    assert "alone does not go by federation.critic: it is trained once" in out + err
    made = made_in(path)
    alone = [name for name in made if name.startswith("alone")]
    assert len(made) == 6
    assert [made[name].learner.d_local for name in alone] == [0.01, 0.02]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["probe-point", "--references", "best"], "invalid choice: 'best'"),
        (["figure-eight", "--references"], "whose clients are agents of one simulation"),
    ],
)
def test_references_that_cannot_be_are_one_sentence(tmp_path, capsys, given, sentence):
    path = tmp_path / "made"
    code, _, err = call(capsys, "compare", *given, "--algorithms", "fedavg", "--run", path)
    assert code == 2
    assert sentence in err
    assert not path.exists()


def test_a_comparison_with_references_is_trained_and_reported(tmp_path, capsys):
    path = tmp_path / "made"
    code, out, _ = call(
        capsys, "compare", "probe-point", "--algorithms", "fedavg", *TINY, "--seeds", "1",
        "--references", "--run", path, "--json",
    )  # fmt: skip
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [row["label"] for row in rows] == ["fedavg", "each alone", "centralised"]
    assert rows[1]["megabytes_down"] == 0
    steps = {
        run.name: RunDirectory.open(run).summary()["env_steps"]
        for run in compare.ComparisonPlan.read(path).run_paths(path)
    }
    assert len({*steps.values()}) == 1


def test_one_run_is_not_several(tmp_path, monkeypatch):
    said = []

    def bar(console, label, total, lines):
        said.append(label)
        return nullcontext(lambda done, going_on: None)

    monkeypatch.setattr(following, "bar", bar)
    for name in ("a", "b"):
        lifecycle.create(config.preset("probe-point"), tmp_path / name)
    for some in ([tmp_path / "a"], [tmp_path / "a", tmp_path / "b"]):
        progress.with_bar(some, lambda train: None, None, rounds=1)
    assert said == ["1 run, round", "2 runs, round"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--vary", "learner.d_local=0.01,0.01"], "--vary has the same twice"),
        (
            ["--vary", "algorithm.mu=1,2"],
            "algorithm.mu is not a setting; the algorithm fedkl has: ",
        ),
        (
            ["--vary", "learner.d_locl=1,2"],
            "learner.d_locl is not a setting (did you mean learner.d_local",
        ),
        (["--vary", "learner.d_local"], "is not of the form dotted.key=value,value"),
        (["--vary", "learner.d_local=1,"], "--vary learner.d_local=1, lacks a value"),
        (["--vary", "seed=1,2"], "seed is not for --vary: give how many seeds by --seeds N, and"),
        (
            ["--vary", "algorithm.name=fedkl,fedavg"],
            "algorithm.name is not for --vary: give",
        ),
        (["--vary", "learner.steps=64,128"], "learner.steps is given in --set, too"),
        (["--vary", "learner.d_local=-1,1"], "learner.d_local must be above 0"),
    ],
)
def test_a_wrong_sweep_is_one_sentence_and_leaves_nothing(tmp_path, capsys, given, sentence):
    algorithms = ["--algorithms", "fedkl"]
    code, out, err = call(
        capsys, "compare", "probe-point", *algorithms, *TINY, *given, "--run", tmp_path / "x"
    )
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_plan_whose_sweep_is_damaged_is_answered_with_a_sentence(tmp_path, capsys, untrained):
    path = tmp_path / "sweep"
    call(capsys, *SWEEP, "--run", path)
    text = (path / "compare.toml").read_text()
    (path / "compare.toml").write_text(text[: text.index("vary")] + 'vary = "d_local"\n')
    with pytest.raises(UserError, match=r"compare\.toml\.vary must be a list of tables, not 'd_l"):
        compare.ComparisonPlan.read(path)
    (path / "compare.toml").write_text(f"{text}\n[lacks]\nfedavg = 1\n")
    with pytest.raises(UserError, match=r"compare\.toml\.lacks must be a table of lists, not {'f"):
        compare.ComparisonPlan.read(path)


def test_settings_that_no_folder_can_be_named_after_are_still_apart():
    from fedkl.training.comparison import ComparisonPlan

    plan = ComparisonPlan("x", ("fedkl",), (0,), vary=({"a.b": "u/v"}, {"a.b": "u:v"}))
    first, second = plan.cells()
    assert (first, len(second)) == ("fedkl-b=u-v", len("fedkl-b=u-v-") + 8)
    # The name is of the value alone, so that it stays when the comparison grows.
    more = ComparisonPlan(
        "x", ("fedavg", "fedkl"), (0,), vary=({"a.b": "u/v"}, {"a.b": 3}, {"a.b": "u:v"})
    )
    assert {first, second} < {*more.cells()}


def test_cells_have_plain_names_whatever_their_values_are():
    from fedkl.training.comparison import ComparisonPlan

    values = [[], [32, 32], {"uniform": [5, 15]}, {"linspace": [5, 15]}, True, -1.5]
    plan = ComparisonPlan("x", ("fedkl",), (0,), vary=tuple({"a.b": value} for value in values))
    assert [*plan.cells()] == [
        "fedkl-b=empty",
        "fedkl-b=32-32",
        "fedkl-b=uniform-5-15",
        "fedkl-b=linspace-5-15",
        "fedkl-b=true",
        "fedkl-b=-1.5",
    ]


def trained(path, algorithm="fedkl", seed=0, **settings):
    """A run of two rounds."""
    tiny = dict(config.parse_assignment(text) for text in TINY[1:])
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    chosen = config.preset("probe-point", algorithm, seed, tiny | {"federation.rounds": 2} | dotted)
    lifecycle.run_remaining(lifecycle.create(chosen, path), lambda _: None, lambda _: None)
    return path


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        trained(folder / "a"),
        trained(folder / "b", seed=1),
        trained(folder / "c", learner__d_local=0.5),
    ]


def test_any_runs_are_reported_together_where_one_says(three, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "report", *three, "--out", tmp_path / "deep" / "here")
    assert (code, err) == (0, "")
    page = (tmp_path / "deep" / "here" / "report.html").read_text()
    for text in (out, page):
        assert "fedkl d_local=0.05" in text
        assert "fedkl d_local=0.5" in text
    assert "differ in more than algorithm and seed" not in page
    code, out, _ = call(capsys, "report", *three)
    assert out.splitlines()[-1] == "report: report/report.html"
    assert (tmp_path / "report" / "report.html").is_file()
    assert not list(three[0].parent.glob("*/report.html"))


def test_a_machine_gets_the_rows_and_nothing_else(three, tmp_path, capsys):
    _, out, err = call(capsys, "report", *three, "--out", tmp_path, "--json")
    assert err == ""
    rows = json.loads(out)["rows"]
    assert [row["label"] for row in rows] == ["fedkl d_local=0.05", "fedkl d_local=0.5"]
    assert [row["seeds"] for row in rows] == [2, 1]
    _, out, _ = call(capsys, "report", *three, "--out", tmp_path, "--csv")
    first, second = csv.DictReader(io.StringIO(out))
    assert float(first["final"]) == rows[0]["final"]
    assert (first["learner.d_local"], second["final_low"]) == ("0.05", "")
    code, _, err = call(capsys, "report", *three, "--csv", "--json")
    assert code == 2
    assert "not allowed with argument" in err


def test_a_report_that_cannot_be_written_is_one_sentence(three, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, out, err = call(capsys, "report", *three, "--out", tmp_path / "file")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_a_comparison_tells_a_machine_the_table_alone(tmp_path, capsys):
    path = tmp_path / "c"
    code, out, err = call(
        capsys, "compare", "probe-point", "--algorithms", "fedkl", "--vary",
        "learner.d_local=0.01,0.02", "--seeds", 1, "--jobs", 2, "--rounds", 1, "--run", path,
        *TINY, "--json",
    )  # fmt: skip
    assert code == 0
    assert [row["learner.d_local"] for row in json.loads(out)["rows"]] == [0.01, 0.02]
    assert "fedkl-d_local=0.02-seed0 finished: return " in err
    (path / "fedkl-d_local=0.02-seed0" / "summary.json").unlink()
    code, out, _ = call(capsys, "resume", path)
    assert code == 0
    assert "fedkl-d_local=0.02-seed0 started" in out
    assert "fedkl-d_local=0.01-seed0 started" not in out
    assert "2 runs, round 2/2" not in out  # it was there before


def test_matplotlib_is_missed_before_anything_is_trained(tmp_path, monkeypatch, capsys, untrained):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(workers, "run_all", lambda *_: pytest.fail("something was trained"))
    code, _, err = call(capsys, *SWEEP, "--run", tmp_path / "x")
    assert code == 2
    assert "pip install -e '.[report]'" in err
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_trained_longer_and_its_history_says_so(tmp_path, capsys):
    longer, whole = trained(tmp_path / "a"), tmp_path / "b"
    code, out, err = call(capsys, "resume", longer, "--rounds", 3)
    assert code == 0
    assert err == ""  # it was asked for
    assert out.splitlines()[0].startswith("round 3/3 ")
    assert tomllib.loads((longer / "config.toml").read_text())["federation"]["rounds"] == 3
    summary = json.loads((longer / "summary.json").read_text())
    assert summary["rounds"] == 3
    assert summary["history"][-1]["changes"] == ["federation.rounds was 2, is 3"]
    assert summary["history"][-1]["round"] == 2
    trained(whole, federation__rounds=3)
    returns = [[r["return_mean"] for r in RunDirectory(p).metrics.read()] for p in (longer, whole)]
    assert returns[0] == returns[1]
    code, _, _ = call(capsys, "check", longer)
    assert code == 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--rounds", "1"], "rounds must be at least 2, which"),
        (["--rounds", "0"], "rounds must be at least 2, which"),
        (["--rounds", "3", "--until", "4"], "--until 4 is beyond --rounds 3"),
    ],
)
def test_a_run_is_never_made_shorter_than_it_is(three, capsys, given, sentence):
    before = (three[0] / "config.toml").read_bytes()
    code, _, err = call(capsys, "resume", three[0], *given)
    assert code == 2
    assert sentence in err
    assert (three[0] / "config.toml").read_bytes() == before


def test_a_comparison_begins_with_the_first_seed_it_is_given(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(workers, "run_all", lambda *_: None)
    monkeypatch.setattr(compare_command, "_run_remaining", lambda path, place, options: None)
    path = tmp_path / "comparison"
    code, _, _ = call(
        capsys, "compare", "probe-point", "--algorithms", "fedkl", "--seeds", 2,
        "--first-seed", 7, "--set", "tuned_on=[6, 9]", "--run", path,
    )  # fmt: skip
    assert code == 0
    assert {p.name for p in path.iterdir() if p.is_dir()} == {"fedkl-seed7", "fedkl-seed8"}


def test_a_comparison_trains_all_and_writes_the_page(tmp_path, capsys):
    path = tmp_path / "comparison"
    code, out, err = call(
        capsys, "compare", "probe-point", "--algorithms", "fedkl", "fedavg", "--seeds", 2,
        "--jobs", 2, "--rounds", 2, "--run", path, *TINY,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert (path / "report.html").exists()
    assert {p.name for p in path.iterdir() if p.is_dir()} == {
        "fedkl-seed0", "fedkl-seed1", "fedavg-seed0", "fedavg-seed1", "figures",
    }  # fmt: skip
    assert "(4/4)" in out
    (path / "fedavg-seed1" / "summary.json").unlink()
    code, out, _ = call(capsys, "resume", path)
    assert code == 0
    assert "fedavg-seed1 started" in out
    assert "fedkl-seed0 started" not in out


def test_a_comparison_says_which_runs_have_stalled_and_fails_if_all_have(tmp_path, capsys):
    one = ["compare", "probe-point", "--algorithms", "fedavg", "--seeds", "1", *TINY,
           "federation.rounds=3", "federation.max_empty_rounds=1"]  # fmt: skip
    varied = ["--vary", "learner.learning_rate=0.0003,1000000"]
    code, out, err = call(capsys, *one, *varied, "--run", tmp_path / "some")
    assert (code, err) == (0, "")
    assert "1 of 2 runs have stalled: fedavg-learning_rate=1000000-seed0\n" in out
    code, _, err = call(capsys, *one, "learner.learning_rate=1000000", "--run", tmp_path / "all")
    assert code == 3
    assert "every run has stalled" in err
    assert "Traceback" not in err
    assert (tmp_path / "all/report.html").is_file()


def test_a_comparison_cannot_be_made_twice_or_run_twice_at_once(tmp_path, capsys):
    path = tmp_path / "comparison"
    command = ["compare", "probe-point", "--algorithms", "fedkl", "--seeds", "1", "--run", path]
    assert call(capsys, *command, "--rounds", 1, *TINY)[0] == 0
    code, _, err = call(capsys, *command)
    assert code == 2
    assert "holds a comparison already" in err
    with compare.lock_directory(path):
        code, _, err = call(capsys, "resume", path)
    assert code == 2
    assert "in use by process" in err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("jobs = 1", "jobs = 0", "jobs must be at least 1"),
        ("jobs = 1", "jobs = ", "not valid TOML"),
    ],
)
def test_a_damaged_plan_is_answered_with_a_sentence(tmp_path, capsys, old, new, sentence):
    from fedkl.config import config

    path = tmp_path / "comparison"
    plan = compare.ComparisonPlan("probe-point", ("fedkl",), (0,), 1)
    compare.create(path, plan, lambda *_: config.preset("probe-point"))
    text = (path / "compare.toml").read_text()
    assert old in text
    (path / "compare.toml").write_text(text.replace(old, new))
    code, _, err = call(capsys, "resume", path)
    assert code == 2
    assert sentence in err


def test_a_comparison_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise UserError("the disk is full")

    monkeypatch.setattr(workers.RunDirectory, "create", fail)
    plan = compare.ComparisonPlan("probe-point", ("fedkl",), (0,), 1)
    with pytest.raises(UserError, match="full"):
        compare.create(tmp_path / "x", plan, lambda *_: config.preset("probe-point"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_a_comparison(tmp_path, child, how):
    path = tmp_path / "comparison"
    process = child(
        "-m", "fedkl", "compare", "probe-point", "--algorithms", "fedkl", "fedavg", "--seeds", 1,
        "--jobs", 2, "--rounds", 100000, "--run", path, *TINY,
    )  # fmt: skip
    logs = [path / f"{a}-seed0" / "metrics.jsonl" for a in ("fedkl", "fedavg")]
    until(lambda: all(log.exists() for log in logs))
    processes = [int((log.parent / ".lock").read_text().split()[0]) for log in logs]
    process.send_signal(how)
    process.communicate(timeout=60)
    until(lambda: not any(runs(number) for number in processes))
