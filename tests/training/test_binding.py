"""Plans and their runs: damage to either is found by `fedkl check` and by `fedkl resume`."""

import json
import random
import re
import shutil
import tomllib

import pytest
from commands import call

from fedkl.cli import common, report
from fedkl.cli import reproduce as reproduce_command
from fedkl.config import config
from fedkl.core.errors import UserError
from fedkl.experiments import compare, d_global, tune, workers
from fedkl.experiments.reproduce.plan import ReproductionPlan as ReproducePlan
from fedkl.experiments.reproduce.plan import create as create_reproduction
from fedkl.training import binding
from fedkl.training.directory import RunDirectory
from fedkl.training.plans import PLANS

KINDS = ("compare", "tune", "d_global", "reproduce")


def made_up_log(run, rounds, value):
    """Puts records in the place of training."""
    directory = RunDirectory(run)
    for round in range(1, rounds + 1):
        moved = [{"distance_global": 0.1 * round}]
        record = {"round": round, "env_steps": 10 * round, "return_mean": value, "clients": moved}
        directory.metrics.append(record)
    directory.write_summary({"rounds": rounds})


def make_comparison(path):
    plan = compare.ComparisonPlan(
        "probe-point", ("fedkl", "fedavg"), (0, 1), 2, ("alone",),
        ({"learner.d_local": 0.01, "algorithm.d_global": 0.5}, {"learner.d_local": 0.02,
         "algorithm.d_global": 0.6}), {"fedavg": ["algorithm.d_global"],
         "alone": ["algorithm.d_global"]},
    )  # fmt: skip

    def configure(algorithm, seed, varied):
        name = "fedavg" if algorithm == "alone" else algorithm
        made = config.preset("probe-point", name, seed, dict(varied))
        return compare.MAKE[algorithm](made) if algorithm == "alone" else made

    compare.create(path, plan, configure)


def make_tuning(path):
    plan = tune.TuningPlan(
        "probe-point", "fedkl", settings=("learner.steps=64",), seeds=(7, 8), rungs=(1, 3), jobs=2,
        candidates=tuple({"learner.d_local": d, "learner.optimiser": o}
                         for d, o in ((0.01, "sgd"), (0.1, "adam"), (0.05, "sgd"))),
    )  # fmt: skip
    shared = {"learner.steps": 64, "federation.rounds": 3}
    tune.create(
        path, plan, lambda one, seed: config.preset("probe-point", "fedkl", seed, shared | one)
    )
    for run, value in zip(plan.run_paths(path), (1.0, 2.0, 5.0, 6.0, 3.0, 3.0), strict=True):
        made_up_log(run, 3, value)
    write_results(plan, path)


def make_measurement(path):
    settings = {"algorithm.distance": "kl", "federation.rounds": 3}
    made = config.preset("probe-point", "fedavg", 7, settings)
    plan = d_global.DGlobalPlan(
        "probe-point", seeds=(7, 8), rounds=3, distance="kl", d_local=made.learner.d_local
    )
    d_global.create(path, plan, lambda seed: config.preset("probe-point", "fedavg", seed, settings))
    for run in plan.run_paths(path):
        made_up_log(run, 3, 1.0)
    write_results(plan, path)


def make_reproduction(path):
    create_reproduction(path, ReproducePlan("heterogeneity-level", jobs=2, quick=True, rounds=1))


def write_results(plan, path):
    for name, data in plan.results(path).items():
        (path / name).write_bytes(data)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory of each kind, to be copied and spoilt."""
    folder = tmp_path_factory.mktemp("plans")
    make_comparison(folder / "compare")
    make_tuning(folder / "tune")
    make_measurement(folder / "d_global")
    make_reproduction(folder / "reproduce")
    return folder


@pytest.fixture
def untrained(monkeypatch):
    """Runs are as long as they will be; what is drawn of them is left out."""
    monkeypatch.setattr(workers, "run_all", lambda *_, **__: None)
    monkeypatch.setattr(report, "write", lambda *_: None)
    monkeypatch.setattr(reproduce_command, "_run_remaining", lambda *_: None)


@pytest.fixture
def copied(made, tmp_path):
    return lambda kind: shutil.copytree(made / kind, tmp_path / kind)


def plan_file(path):
    (file,) = [path / name for name in PLANS if (path / name).is_file()]
    return file


def faults(path):
    """What `fedkl check` says of the plan and of the results."""
    try:
        plan = common.plan_in(path)
    except UserError as error:
        return [str(error)]
    if plan is None:
        lost = common.recall_plan(path)
        return [] if lost is None else [f"{lost.FILE} is missing"]
    found = [*binding.check_plan(plan, path), *binding.check_results(plan, path)]
    return [finding.what for finding in found]


def meaning(path):
    """All that a directory says: a comment, a space or `jobs` is no part of it."""
    said = {}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.suffix not in (".toml", ".json") or file.name == "summary.json":
            continue
        try:
            text = file.read_text()
            value = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
            value.pop("jobs", None)
            if name in PLANS:
                plan = common.plan_in(path)
                value = plan.values() | {"jobs": 0}
            elif file.name == binding.COPY:
                value["plan"].pop("jobs", None)
                kind = next(k for k in common._plan_kinds() if value["file"] == k.FILE)
                value["plan"] = kind.parse(value["plan"], "").values() | {"jobs": 0}
        except (ValueError, KeyError, AttributeError, StopIteration, UserError):
            value = "damaged"
        said[name] = json.dumps(value, sort_keys=True)
    return said


def test_a_directory_that_was_just_made_agrees_with_its_plan(made, untrained, copied, capsys):
    for kind in KINDS:
        path = copied(kind)
        assert faults(path) == []
        before = meaning(path)
        code, _, err = call(capsys, "resume", path)
        assert (code, err) == (0, "")
        assert meaning(path) == before


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def swap(one, other):
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def strip(path):
    """Makes a directory one of an older fedkl, whose runs have no copies of the plan."""
    for copy in path.glob(f"*/{binding.COPY}"):
        copy.unlink()


def emptied(path):
    plan_file(path).write_text("")


def without_an_algorithm(path):
    edit(path / "compare.toml", '    "fedavg",\n', "")


def another_grid_value(path):
    edit(path / "tune.toml", '"learner.d_local" = 0.1', '"learner.d_local" = 0.3')


def without_a_candidate(path):
    text = (path / "tune.toml").read_text()
    parts = text.split("[[candidates]]")
    if len(parts) == 1:
        cut = re.sub(r"    \{[^{}]*0\.1,[^{}]*\},\n", "", text)
        assert cut != text
    else:
        cut = "[[candidates]]".join([*parts[:2], *parts[3:]])
    (path / "tune.toml").write_text(cut)


def candidates_swapped(path):
    swap(path / "0-seed7", path / "1-seed7")


def seeds_swapped(path):
    swap(path / "fedavg-seed7", path / "fedavg-seed8")


def another_factor(path):
    edit(path / "tune-d-global.toml", "d_global_factor = 1.1", "d_global_factor = 2.1")


def other_rungs(path):
    edit(path / "tune.toml", "rungs = [\n    1,\n    3,\n]", "rungs = [\n    3,\n]")


def a_whole_experiment(path):
    edit(path / "reproduce.toml", "quick = true", "quick = false")


def another_experiment(path):
    edit(path / "reproduce.toml", "heterogeneity-level", "negative-potential")


def without_a_run(path):
    shutil.rmtree(min(run for run in path.iterdir() if run.is_dir()))


def two_plans(path):
    shutil.copy(plan_file(path), path / "compare.toml")


DAMAGES = [
    ("compare", emptied, "algorithms was"),
    ("compare", without_an_algorithm, r"made by: algorithms was .*fedavg"),
    ("compare", without_a_run, "is missing, which"),
    ("tune", emptied, "candidates must be a list of tables"),
    ("tune", another_grid_value, r"made by: candidates\.1\.learner\.d_local was 0\.1, is 0\.3"),
    ("tune", without_a_candidate, r"made by: candidates\.1\.learner\.d_local was 0\.1"),
    ("tune", candidates_swapped, "1-seed7 was made as 0-seed7|0-seed7 was made as 1-seed7"),
    ("tune", other_rungs, r"rungs was \[1, 3\], is \[3\]"),
    ("tune", two_plans, r"has compare\.toml and tune\.toml"),
    ("d_global", seeds_swapped, "was made as fedavg-seed"),
    ("d_global", another_factor, r"d_global_factor was 1\.1, is 2\.1"),
    ("reproduce", a_whole_experiment, "quick was true, is false"),
    ("reproduce", another_experiment, 'experiment was "heterogeneity-level"'),
]
OF_OLDER_RUNS = [
    ("compare", emptied, r"compare\.toml does not name .*alone-d_local=0\.01-seed0"),
    ("compare", without_an_algorithm, r"compare\.toml does not name .*fedavg-d_local=0\.01"),
    ("compare", without_a_run, "is missing, which"),
    ("tune", another_grid_value, r"1-seed7 is not the run .* its learner\.d_local is 0\.1, not 0"),
    ("tune", without_a_candidate, r"1-seed7 is not the run .* its learner\.d_local is 0\.1, not 0"),
    ("tune", candidates_swapped, r"0-seed7 is not the run .* its learner\.d_local is 0\.1, not 0"),
    ("d_global", seeds_swapped, "fedavg-seed7 is not the run .* its seed is 8, not 7"),
    ("reproduce", another_experiment, r"reproduce\.toml does not name"),
]


@pytest.mark.parametrize(("kind", "spoil", "sentence"), DAMAGES)
def test_a_plan_that_is_not_its_runs_is_refused_and_nothing_is_written(
    kind, spoil, sentence, copied, untrained, capsys
):
    path = copied(kind)
    spoil(path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    code, out, err = call(capsys, "resume", path)
    assert (code, out) == (2, "")
    assert re.search(sentence, err.replace("\n", " "))
    assert any(re.search(sentence, fault) for fault in faults(path))
    after = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert {file: after[file] for file in before} == before
    assert after.keys() - before.keys() <= {path / ".lock"}


@pytest.mark.parametrize(("kind", "spoil", "sentence"), OF_OLDER_RUNS)
def test_runs_without_a_copy_of_their_plan_are_judged_by_their_configs(
    kind, spoil, sentence, copied, untrained, capsys
):
    path = copied(kind)
    strip(path)
    spoil(path)
    code, _, err = call(capsys, "resume", path)
    assert code == 2
    assert re.search(sentence, err.replace("\n", " "))
    assert any(re.search(sentence, fault) for fault in faults(path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_of_an_older_fedkl_is_resumed_and_bound(kind, copied, untrained, capsys):
    path = copied(kind)
    copies = {file: file.read_bytes() for file in path.glob(f"*/{binding.COPY}")}
    strip(path)
    (said,) = faults(path)
    assert "because an older fedkl made them" in said
    code, _, err = call(capsys, "resume", path)
    assert code == 0
    assert "because an older fedkl made them" in err
    assert {file: file.read_bytes() for file in path.glob(f"*/{binding.COPY}")} == copies
    assert faults(path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_that_is_gone_is_written_again_as_its_runs_know_it(kind, copied, untrained, capsys):
    path = copied(kind)
    file = plan_file(path)
    before = file.read_bytes()
    file.unlink()
    assert faults(path) == [f"{file.name} is missing"]
    code, out, _ = call(capsys, "check", path)
    assert f"{file} is missing, by which the runs here were made" in out
    code, _, err = call(capsys, "resume", path)
    assert (code, file.read_bytes()) == (0, before)
    assert "was missing: it is as its runs know it" in err.replace("\n", " ")


def test_a_copy_that_is_gone_or_damaged_is_said_and_made_again(copied, untrained, capsys):
    path = copied("tune")
    copy = path / "1-seed8" / binding.COPY
    before = copy.read_bytes()
    copy.unlink()
    (said,) = faults(path)
    assert said.startswith(f"{copy.parent} has no plan.toml, and other runs of ")
    code, _, err = call(capsys, "resume", path)
    assert (code, "has no plan.toml" in err) == (0, True)
    assert copy.read_bytes() == before
    edit(copy, "0.1", "0.7")
    (said,) = faults(path)
    assert f"{copy.parent} was made by another plan" in said
    code, _, err = call(capsys, "resume", path)
    assert code == 2
    copy.write_text("run = 1")
    (said,) = faults(path)
    assert "is damaged: it must have a file, a run and a plan" in said
    copy.unlink()
    assert call(capsys, "resume", path)[0] == 0


def test_jobs_may_be_edited_and_a_run_may_be_longer_but_not_shorter(copied, untrained, capsys):
    path = copied("tune")
    edit(path / "tune.toml", "jobs = 2", "jobs = 5 # there are more cores now")
    edit(path / "0-seed7" / "config.toml", "rounds = 3", "rounds = 30")
    assert faults(path) == []
    assert call(capsys, "resume", path)[0] == 0
    edit(path / "0-seed7" / "config.toml", "rounds = 30", "rounds = 2")
    (said,) = faults(path)
    assert "its federation.rounds is 2, not 3" in said
    assert call(capsys, "resume", path)[0] == 2


def test_a_run_of_ones_own_among_those_of_a_plan_is_left_alone(copied, untrained, capsys):
    path = copied("compare")
    RunDirectory.create(path / "mine", config.preset("probe-point").mapping())
    assert faults(path) == [f"{path / 'mine'} is not of {path / 'compare.toml'}, and is left alone"]
    assert call(capsys, "resume", path)[0] == 0
    assert not (path / "mine" / binding.COPY).exists()


def test_a_setting_that_can_be_written_in_several_ways_is_the_same(tmp_path):
    plan = compare.ComparisonPlan(
        "probe-point", ("fedkl",), (0,),
        vary=({"aggregation.each": ["clip"]}, {"aggregation.each": []}),
    )  # fmt: skip
    compare.create(
        tmp_path / "x", plan, lambda a, s, varied: config.preset("probe-point", a, s, dict(varied))
    )
    strip(tmp_path / "x")
    assert len(faults(tmp_path / "x")) == 1  # of an older fedkl, and nothing else


def test_no_module_that_a_plan_names_is_imported_to_compare_it(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = compare.ComparisonPlan(
        "probe-point", ("fedkl",), (0,), vary=({"world.module": "planted"},)
    )
    RunDirectory.create(
        tmp_path / "x" / "fedkl-module=planted-seed0", config.preset("probe-point").mapping()
    )
    plan.write(tmp_path / "x")
    assert any("its world.module is not there" in fault for fault in faults(tmp_path / "x"))


@pytest.mark.parametrize(
    ("kind", "file", "old", "new"),
    [
        ("tune", "best.toml", "d_local = 0.1", "d_local = 0.2"),
        ("tune", "tuning.json", '"best": 1', '"best": 2'),
        ("d_global", "best.toml", "d_global = 0.22", "d_global = 0.23"),
        ("d_global", "tuning.json", '"distance_rounds": 6', '"distance_rounds": 7'),
    ],
)
def test_results_that_the_runs_do_not_say_are_found_and_written_again(
    kind, file, old, new, copied, untrained, capsys
):
    path = copied(kind)
    before = (path / file).read_bytes()
    for spoil in (lambda: edit(path / file, old, new), (path / file).unlink):
        spoil()
        (said,) = faults(path)
        assert str(path / file) in said
        assert call(capsys, "resume", path)[0] == 0
        assert (path / file).read_bytes() == before
    (path / file).write_text("{")
    (said,) = faults(path)
    assert "cannot be used" in said


def test_a_tuning_that_is_not_finished_has_no_results_yet(copied):
    path = copied("tune")
    for name in ("best.toml", "tuning.json", "1-seed7/summary.json"):
        (path / name).unlink()
    assert faults(path) == []


# Random damage.

WORDS = {"true": "false", "false": "true", "sgd": "adam", "adam": "sgd", "kl": "tv"}


def flip(data, chance):
    place = chance.randrange(8 * len(data))
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def truncate(data, chance):
    return data[: chance.randrange(len(data))]


def delete_line(data, chance):
    lines = data.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def swap_lines(data, chance):
    lines = data.splitlines(keepends=True)
    i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


def edit_token(data, chance):
    """Puts another number or another word in the place of one."""
    text = data.decode()
    token = chance.choice([*re.finditer(r"[A-Za-z_-]+|[0-9.]+", text)])
    if token[0][0].isdigit():
        new = chance.choice(["0", "1", "2", "7", "0.5", "1e-3", "-1", token[0] + "1"])
    else:
        new = WORDS.get(token[0], chance.choice(["fedkl", "fedavg", token[0] + "x", ""]))
    return (text[: token.start()] + new + text[token.end() :]).encode()


def empty(data, chance):
    return b""


IN_A_FILE = (flip, truncate, delete_line, swap_lines, edit_token, empty)


def damaged(path, chance):
    """Damages a directory at random, and says how."""
    files = [plan_file(path)] * 3
    files += [path / name for name in ("best.toml", "tuning.json") if (path / name).exists()]
    files.append(chance.choice([*path.glob(f"*/{binding.COPY}")]))
    file = chance.choice(files)
    runs = [run for run in path.iterdir() if run.is_dir()]
    how = chance.choice([*IN_A_FILE] * 3 + ["delete", "swap folders", "swap files"])
    if how == "delete":
        file.unlink()
    elif how == "swap folders":
        swap(*chance.sample(runs, 2))
    elif how == "swap files":
        one, other = chance.sample(runs, 2)
        swap(one / binding.COPY, other / binding.COPY)
    else:
        file.write_bytes(how(file.read_bytes(), chance))
        how = how.__name__
    return f"{how} of {file.relative_to(path)}"


def is_silent(kind, path, chance, capsys):
    """Damages a directory; returns how, if neither command says so or makes it as it was.

    What it says is the same if its files are read to the same: a space, a comment, a line whose
    value is the default, a number written otherwise, and `jobs` are no damage.
    """
    before = meaning(path)
    how = damaged(path, chance)
    harmless = meaning(path) == before
    said = faults(path)
    code, _, err = call(capsys, "resume", path)
    assert "Traceback" not in err
    if harmless:
        assert (said, code) == ([], 0), (kind, how)
        return None
    mended = code == 0 and meaning(path) == before
    told = code == 2 or "warning" in err or mended
    return None if said and all(said) and told else f"{kind}: {how}"


def silent_ones(made, folder, kinds, chance, capsys):
    found = []
    for number, kind in enumerate(kinds):
        path = shutil.copytree(made / kind, folder / str(number))
        found.append(is_silent(kind, path, chance, capsys))
        shutil.rmtree(path)
    return [how for how in found if how is not None]


def test_no_damage_of_a_plan_is_silent(made, untrained, tmp_path, capsys):
    chance = random.Random(1)
    assert silent_ones(made, tmp_path, KINDS * 10, chance, capsys) == []


@pytest.mark.slow
def test_none_of_five_hundred_damages_of_plans_is_silent(made, untrained, tmp_path, capsys):
    chance = random.Random(2)
    assert silent_ones(made, tmp_path, KINDS * 125, chance, capsys) == []
