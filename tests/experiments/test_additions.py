"""What is added to comparisons, tunings and experiments: exactly that is trained."""

import dataclasses
import json
import shutil
from functools import partial
from typing import ClassVar

import pytest
from commands import call
from finished_runs import SMALLEST
from places import InThisProcess, Stub

from fedkl.cli import report
from fedkl.experiments import compare, workers
from fedkl.training import binding
from fedkl.training.directory import RunDirectory

TINY = [f"{key}={value}" for key, value in SMALLEST.items() if "rounds" not in key]
COMPARE = ["compare", "probe-point", "--set", *TINY]
THREE = [*COMPARE, "--rounds", 2, "--algorithms", "fedkl", "fedavg", "fedprox"]


@pytest.fixture
def stub(monkeypatch):
    place = Stub()
    monkeypatch.setattr(workers, "Processes", lambda jobs: place)
    monkeypatch.setattr(report, "write", lambda *_: None)
    monkeypatch.setattr(workers.time, "sleep", lambda seconds: None)
    return place


def contents(path):
    """All files of a directory's runs but their copies of the plan, which follow it."""
    return {
        file.relative_to(path).as_posix(): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in path.glob("*/**/*")
        if file.is_file() and file.name != binding.COPY
    }


def whole(path):
    """Every file, to see that nothing was written."""
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_three_algorithms_and_five_seeds_extended_by_two_seeds_train_six_runs(
    tmp_path, capsys, stub
):
    path = tmp_path / "x"
    assert call(capsys, *THREE, "--seeds", 5, "--run", path)[0] == 0
    assert len(stub.trained) == 15
    before = contents(path)
    stub.trained.clear()
    code, out, err = call(capsys, "compare", "probe-point", "--seeds", 7, "--run", path, "--add")
    assert (code, err) == (0, "")
    new = [f"{name}-seed{seed}" for seed in (5, 6) for name in ("fedkl", "fedavg", "fedprox")]
    assert stub.trained == new
    assert f"6 runs added to {path}" in out
    after = contents(path)
    assert {name: after[name] for name in before} == before
    for run in new:
        made, twin = (RunDirectory(path / name).config() for name in (run, run[:-1] + "0"))
        assert made == twin | {"seed": int(run[-1])}
    stub.trained.clear()
    code, out, _ = call(capsys, "compare", "probe-point", "--seeds", 7, "--run", path, "--add")
    assert (code, stub.trained, f"0 runs added to {path}" in out) == (0, [], True)
    assert call(capsys, "resume", path)[0] == 0
    assert stub.trained == []


def test_algorithms_levels_references_and_rounds_are_added(tmp_path, capsys, stub):
    path = tmp_path / "x"
    start = [*COMPARE, "--seeds", 2, "--run", path]
    assert call(capsys, *start, "--rounds", 2, "--algorithms", "fedavg")[0] == 0
    for more, made in (
        (["--algorithms", "fedprox"], {"fedprox-seed0", "fedprox-seed1"}),
        (["--references", "alone"], {"alone-seed0", "alone-seed1"}),
        (
            ["--vary", "learner.d_local=0.2,0.3"],
            {f"{a}-d_local={d}-seed{s}" for a in ("fedavg", "fedprox", "alone")
             for d in (0.2, 0.3) for s in (0, 1)},
        ),
        (
            ["--vary", "learner.d_local=0.3,0.4"],
            {f"{a}-d_local=0.4-seed{s}" for a in ("fedavg", "fedprox", "alone") for s in (0, 1)},
        ),
        (["--first-seed", 9, "--seeds", 1, "--algorithms", "fedavg"], 12),
    ):  # fmt: skip
        stub.trained.clear()
        before = contents(path)
        code, _, err = call(capsys, "compare", "probe-point", "--run", path, "--add", *more)
        assert (code, err) == (0, "")
        assert ({*stub.trained} if isinstance(made, set) else len(stub.trained)) == made
        assert contents(path).items() >= before.items()
    runs = compare.ComparisonPlan.read(path).run_paths(path)
    assert {RunDirectory(run).config()["federation"]["rounds"] for run in runs} == {2}
    stub.trained.clear()
    code, _, err = call(capsys, "compare", "probe-point", "--run", path, "--add", "--rounds", 3)
    assert (code, err) == (0, "")
    assert {*stub.trained} == {run.name for run in runs}
    assert {RunDirectory(run).summary()["rounds"] for run in runs} == {3}
    assert call(capsys, "resume", path)[0] == 0
    code, _, err = call(capsys, *COMPARE, "--run", path, "--add", "--algorithms", "fedkl")
    assert (code, err) == (0, "")
    assert RunDirectory(path / "fedkl-seed9").summary()["rounds"] == 3


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "x"
    settings = tuple(TINY)
    plan = compare.ComparisonPlan(
        "probe-point", ("fedavg",), (0, 1, 2), settings=settings, rounds=4
    )
    compare.create(path, plan, partial(compare.config_of, plan))
    return path


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["demo"], "are made from probe-point, not from demo"),
        (["probe-point", "--seeds", 2], "--seeds 2 counts all seeds, and there are 3 already"),
        (["probe-point", "--seeds", 0], "--seeds must be at least 1, not 0"),
        (["probe-point", "--first-seed", 7], "say with --seeds how many"),
        (["probe-point", "--rounds", 3], "--rounds must be at least 4, which"),
        (["probe-point", "--rounds", 0], "federation.rounds must be at least 1, not 0"),
        (["probe-point", "--algorithms", "fedsgd"], "no algorithm 'fedsgd'"),
        (["probe-point", "--algorithms", "fedkl", "fedkl"], "names an algorithm twice"),
        (
            ["probe-point", "--algorithms", "fedkl", "--set", "learner.steps=32"],
            "was made with something else than this command says: ",
        ),
        (["probe-point", "--vary", "learner.steps=8,16"], "learner.steps is given in --set, too"),
        (
            ["probe-point", "--vary", "learner.d_local=0.05,0.1"],
            "fedavg-d_local=0.05 is fedavg of",
        ),
        (["probe-point", "--vary", "algorithm.mu=1,2"], "algorithm.mu is not a setting"),
        (["probe-point", "--references", "best"], "invalid choice: 'best'"),
        (["probe-point", "--jobs", 0], "--jobs must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_added_is_one_sentence_and_nothing_is_written(
    untrained, capsys, given, sentence
):
    before = whole(untrained)
    code, out, err = call(capsys, "compare", *given, "--run", untrained, "--add")
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert whole(untrained) == before


def test_there_is_something_to_add_to_and_without_add_it_is_refused(untrained, tmp_path, capsys):
    code, _, err = call(
        capsys, "compare", "probe-point", "--seeds", 5, "--run", tmp_path / "gone", "--add"
    )
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "does not hold a comparison: it has no compare.toml" in err
    code, _, err = call(
        capsys, "compare", "probe-point", "--algorithms", "fedavg", "--seeds", 5, "--run", untrained
    )
    assert code == 2
    assert "holds a comparison already; go on with it by `fedkl resume" in err
    assert "or add to it with --add" in err


def test_seeds_that_settings_were_chosen_on_are_not_added(tmp_path, capsys, stub):
    (tmp_path / "tuned.toml").write_text('extends = ["probe-point"]\ntuned_on = [3]\n')
    start = ["compare", tmp_path / "tuned.toml", "--run", tmp_path / "x"]
    code, _, _ = call(capsys, *start, "--algorithms", "fedavg", "--seeds", 2, "--set", *TINY)
    assert code == 0
    before = whole(tmp_path)
    code, _, err = call(capsys, *start, "--seeds", 4, "--add")
    assert code == 2
    assert "settings were chosen on seeds 3 (tuned_on)" in err
    assert whole(tmp_path) == before


def test_a_plugin_that_was_edited_is_not_compared_with_what_it_was(tmp_path, capsys, monkeypatch):
    place = InThisProcess()
    monkeypatch.setattr(workers, "Processes", lambda jobs: place)
    monkeypatch.setattr(report, "write", lambda *_: None)
    plugin = tmp_path / "own.py"
    text = (
        "import fedkl\n"
        "@fedkl.register_algorithm\n"
        "class Own(fedkl.Algorithm):\n"
        "    name = 'own-one'\n"
    )
    plugin.write_text(text)
    start = ["compare", "probe-point", "--run", tmp_path / "x", "--plugin", plugin]
    more = ["--algorithms", "own-one", "--seeds", 1, "--rounds", 1, "--set", *TINY]
    code, _, err = call(capsys, *start, *more)
    assert code == 0, err
    plugin.write_text(text + "# another one\n")
    before = whole(tmp_path)
    code, _, err = call(capsys, *start, "--seeds", 2, "--add")
    assert code == 2
    assert whole(tmp_path) == before


@pytest.mark.parametrize(
    "named", [{"plugins": ("PLANTED",)}, {"settings": ("world.id=planted:World-v0",)}]
)
def test_code_that_somebody_elses_plan_names_is_not_run(untrained, tmp_path, capsys, named):
    (tmp_path / "planted.py").write_text("raise SystemExit('it ran')")
    path = shutil.copytree(untrained, tmp_path / "x")
    given = {
        key: tuple(text.replace("PLANTED", str(tmp_path / "planted.py")) for text in texts)
        for key, texts in named.items()
    }
    plan = dataclasses.replace(compare.ComparisonPlan.read(path), **given)
    plan.write(path)
    for run in plan.run_paths(path):
        binding.bind(plan, run)
    before = whole(path)
    more = ["--algorithms", "fedprox", "--run", path, "--add"]
    code, _, err = call(capsys, "compare", "probe-point", *more)
    assert code == 2
    assert "runs code that you have not agreed to" in err
    assert whole(path) == before


@pytest.mark.usefixtures("quick_compilation")
def test_the_table_and_the_page_have_what_was_added(tmp_path, capsys, monkeypatch):
    place = InThisProcess()
    monkeypatch.setattr(workers, "Processes", lambda jobs: place)
    path = tmp_path / "x"
    start = ["compare", "probe-point", "--run", path, "--json"]
    code, out, _ = call(
        capsys, *start, "--algorithms", "fedavg", "--seeds", 1, "--rounds", 2, "--set", *TINY
    )
    assert code == 0
    (alone,) = json.loads(out)["rows"]
    assert (alone["seeds"], alone["rounds"]) == (1, 2)
    page = (path / "report.html").read_text()
    code, out, _ = call(capsys, *start, "--seeds", 2, "--rounds", 3, "--add")
    assert code == 0
    (both,) = json.loads(out)["rows"]
    assert (both["seeds"], both["rounds"]) == (2, 3)
    assert (path / "report.html").read_text() != page
    # One that was made longer ends as one that was so long from the start.
    other = tmp_path / "other"
    start = ["compare", "probe-point", "--run", other, "--json"]
    call(capsys, *start, "--algorithms", "fedavg", "--seeds", 2, "--rounds", 3, "--set", *TINY)
    for name in ("fedavg-seed0", "fedavg-seed1"):
        returns = [
            [record["return_mean"] for record in RunDirectory(run / name).metrics.read()]
            for run in (path, other)
        ]
        assert returns[0] == returns[1]


# Tunings.

TUNE = ["tune", "probe-point", "--algorithm", "fedprox", "--set", *TINY]


class Judged(Stub):
    """Returns that depend on the candidate and the seed, so that seeds change who is dropped."""

    SCORES: ClassVar = {(0, 1000): 9, (1, 1000): 5, (2, 1000): 7, (3, 1000): 1}

    def start(self, run, slot, slots, until):
        self.trained.append((run.name, until))
        directory = RunDirectory(run)
        planned = directory.config()["federation"]["rounds"]
        number, seed = (int(text) for text in run.name.split("-seed"))
        value = self.SCORES.get((number, seed), 2.0 * number if seed == 1001 else 0)
        for round in range(directory.metrics.count() + 1, (until or planned) + 1):
            directory.metrics.append(
                {"round": round, "env_steps": 10 * round, "return_mean": float(value)}
            )
        if until is None:
            directory.write_summary({"rounds": planned})
        return self


@pytest.fixture
def judged(monkeypatch):
    place = Judged()
    monkeypatch.setattr(workers, "Processes", lambda jobs: place)
    monkeypatch.setattr(workers.time, "sleep", lambda seconds: None)
    return place


def grid(*values):
    return ["--grid", "algorithm.mu=" + ",".join(map(str, values))]


def results(path):
    """What a tuning came to, without what was spent on the way."""
    tried = json.loads((path / "tuning.json").read_text())
    for candidate in tried["candidates"]:
        del candidate["rounds_per_seed"], candidate["env_steps_per_seed"]
    del tried["env_steps"]
    return tried, (path / "best.toml").read_text()


@pytest.mark.parametrize(
    ("first", "more", "at_once"),
    [
        (
            [*grid(0.1, 0.2, 0.3, 0.4), "--seeds", 1, "--rounds", 4],
            ["--seeds", 2],
            [*grid(0.1, 0.2, 0.3, 0.4), "--seeds", 2, "--rounds", 4],
        ),
        (
            [*grid(0.1, 0.2), "--seeds", 2, "--rounds", 4],
            grid(0.1, 0.2, 0.3, 0.4),
            [*grid(0.1, 0.2, 0.3, 0.4), "--seeds", 2, "--rounds", 4],
        ),
        (
            [*grid(0.1, 0.2, 0.3), "--seeds", 2, "--rounds", 4],
            ["--rounds", 8],
            [*grid(0.1, 0.2, 0.3), "--seeds", 2, "--rounds", 8],
        ),
    ],
)
def test_a_tuning_that_was_added_to_comes_to_what_a_whole_one_comes_to(
    first, more, at_once, tmp_path, capsys, judged
):
    path, other = tmp_path / "x", tmp_path / "y"
    halvings = ["--halvings", 1]
    assert call(capsys, *TUNE, *first, *halvings, "--run", path)[0] == 0
    assert call(capsys, *TUNE, *at_once, *halvings, "--run", other)[0] == 0
    logs = {file: file.read_bytes() for file in path.glob("*/metrics.jsonl")}
    code, _, err = call(capsys, "tune", "probe-point", *more, "--run", path, "--add")
    assert (code, err) == (0, "")
    assert results(path) == results(other)
    for file, before in logs.items():
        assert file.read_bytes().startswith(before)  # no round was trained twice
    judged.trained.clear()
    assert call(capsys, "resume", path)[0] == 0
    assert judged.trained == []


def test_candidates_beyond_ten_leave_the_names_of_the_others(tmp_path, capsys, judged):
    path = tmp_path / "x"
    start = ["--halvings", 0, "--rounds", 1, "--seeds", 1]
    assert call(capsys, *TUNE, *grid(1, 2), *start, "--run", path)[0] == 0
    code, _, err = call(capsys, "tune", "probe-point", *grid(*range(1, 13)), "--run", path, "--add")
    assert (code, err) == (0, "")
    names = {run.name for run in path.iterdir() if run.is_dir()}
    assert names == {f"{number}-seed1000" for number in range(12)}
    assert call(capsys, "resume", path)[0] == 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--algorithm", "fedkl"], "tunes fedprox, not fedkl"),
        (["--halvings", 2], "has 1 halvings, which cannot be changed"),
        (["--rounds", 2], "--rounds must be at least 4, which"),
        (["--seeds", 1], "--seeds 1 counts all seeds, and there are 2 already"),
        (["--grid", "learner.d_local=1,2"], "tunes algorithm.mu: --grid must have values of all"),
        (["--grid", "algorithm.mu=-1,2"], "algorithm.mu must be"),
        (
            ["--grid", "algorithm.mu=0.7", "--set", "learner.steps=32"],
            "was made with something else than this command says",
        ),
    ],
)
def test_what_a_tuning_cannot_be_given_is_one_sentence_and_nothing_is_written(
    tmp_path, capsys, judged, given, sentence
):
    path = tmp_path / "x"
    start = [*grid(0.1, 0.2), "--halvings", 1, "--rounds", 4, "--seeds", 2]
    assert call(capsys, *TUNE, *start, "--run", path)[0] == 0
    before = whole(path)
    code, out, err = call(capsys, "tune", "probe-point", *given, "--run", path, "--add")
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert whole(path) == before


# The paper's experiments.

REPRODUCE = ["reproduce", "heterogeneity-level"]


@pytest.fixture
def unjudged(monkeypatch, stub):
    """Nothing is drawn of what was not trained."""
    from fedkl.experiments.reproduce import plan

    monkeypatch.setattr(plan, "findings_of", lambda *_: {})
    return stub


def test_seeds_rounds_and_the_rest_of_a_quick_look_are_added(tmp_path, capsys, unjudged):
    path = tmp_path / "x"
    code, _, err = call(capsys, *REPRODUCE, "--quick", "--rounds", 2, "--run", path)
    assert (code, err) == (0, "")
    quick = [*unjudged.trained]
    for given, rounds, new in (
        (["--quick", "--rounds", 3], 3, 0),
        (["--seeds", 2, "--rounds", 3], 3, None),
        (["--seeds", 2, "--rounds", 4], 4, 0),
    ):
        there = {run.name for run in path.iterdir() if run.is_dir()}
        unjudged.trained.clear()
        code, out, err = call(capsys, *REPRODUCE, *given, "--run", path, "--add")
        assert (code, err) == (0, "")
        runs = {run.name for run in path.iterdir() if run.is_dir()}
        if new is None:
            new = len(runs) - len(there)
            assert new > 0
        assert f"{new} runs added" in out
        assert {*unjudged.trained} == (runs if new == 0 else runs - there)
        assert {RunDirectory(path / run).summary()["rounds"] for run in runs} == {rounds}
        assert {*quick} <= runs
        assert call(capsys, "resume", path)[0] == 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--rounds", 1], "rounds, and this command says 1; nothing is taken away"),
        (["--quick", "--rounds", 2], "is no run of what this command says"),
        (["--rounds", 2, "--set", "learner.steps=50"], "was made with something else"),
        (["--rounds", 2, "--seeds", 0], "--seeds must be at least 1, not 0"),
    ],
)
def test_what_an_experiment_cannot_be_given_is_one_sentence_and_nothing_is_written(
    tmp_path, capsys, unjudged, given, sentence
):
    path = tmp_path / "x"
    assert call(capsys, *REPRODUCE, "--seeds", 2, "--rounds", 2, "--run", path)[0] == 0
    before = whole(path)
    code, out, err = call(capsys, *REPRODUCE, *given, "--run", path, "--add")
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert whole(path) == before
