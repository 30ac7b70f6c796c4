"""What a check says of a run is so: beside a training, after a death, and after resuming."""

import os
import shutil
from pathlib import Path

import pytest
from commands import call
from finished_runs import SMALLEST, smallest
from scripted import scripted
from waiting import until

import fedkl
from fedkl.io.locks import holder, lock_directory
from fedkl.training import checkpoint_files, lifecycle, verify
from fedkl.training.checkpoint_files import FileGoneError
from fedkl.training.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_compilation")

RETURNS = [1.0, 5.0, 4.0, 7.0, 6.0]
"""Of each round: the best is the second, then the fourth."""
KEPT = {"checkpoint.keep_best": True, "federation.rounds": len(RETURNS)}


def go_on(run, warn=pytest.fail, **options):
    with scripted(lifecycle.config_of(run), RETURNS) as federation:
        lifecycle.run_remaining(run, lambda record: None, warn, federation, **options)


def contents(path):
    """Every file but the lock, whose number is that of the last process."""
    return {
        file.relative_to(path): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def faults(path):
    return [finding.what for finding in verify.check(RunDirectory.open(path)) if finding.remedy]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = lifecycle.create(smallest(settings=KEPT), tmp_path_factory.mktemp("verify") / "run")
    go_on(run)
    return run.path


@pytest.fixture
def run(finished, tmp_path):
    return RunDirectory.open(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    """The directory of a run in front of each call that changes it, as a death there leaves it."""
    folder = tmp_path_factory.mktemp("deaths")
    path, taken = folder / "run", []

    def watched(call):
        def first(*args, **options):
            if path.exists():
                taken.append(shutil.copytree(path, folder / f"{len(taken):03d}" / "run"))
            return call(*args, **options)

        return first

    run = lifecycle.create(smallest(settings=KEPT), path)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "unlink", "fsync", "ftruncate"):
            patch.setattr(os, name, watched(getattr(os, name)))
        patch.setattr(Path, "unlink", watched(Path.unlink))
        go_on(run)
    return taken


def test_after_a_death_anywhere_nothing_is_missed_that_is_there(deaths, tmp_path):
    """What an interrupted write leaves is named, and resuming mends it."""
    assert len(deaths) > 40
    passing = ("was left by a write that was interrupted", "is torn", "has all its rounds and no s")
    for number, path in enumerate(deaths):
        said = [fault for fault in faults(path) if not any(words in fault for words in passing)]
        assert said == [], path
        if number % 12 == 0:
            left = RunDirectory.open(shutil.copytree(path, tmp_path / str(number)))
            go_on(left)
            assert faults(left.path) == []


def test_a_death_between_the_best_and_the_checkpoint_is_no_missing_checkpoint(tmp_path):
    run = lifecycle.create(smallest(settings=KEPT), tmp_path / "run")
    save = run.checkpoints.save

    def dies(round, *state):
        if round == 4:
            raise KeyboardInterrupt
        save(round, *state)

    run.checkpoints.save = dies
    with pytest.raises(KeyboardInterrupt):
        go_on(run)
    assert run.best.rounds() == [2, 4]
    assert faults(run.path) == []


def damage_older(run):
    min(run.checkpoints.directory.glob("0*")).write_bytes(b"x")


def damage_newest(run):
    max(run.checkpoints.directory.glob("0*")).write_bytes(b"x")


def damage_older_best(run):
    min(run.best.directory.glob("0*")).write_bytes(b"x")


def leave_temporaries(run):
    for folder in (run.path, run.checkpoints.directory, run.best.directory):
        (folder / ".x.1.ab.fedkl-tmp").write_text("half")


def tear_the_log(run):
    with run.metrics.path.open("ab") as log:
        log.write(b'{"round": 6, "ret')


def remove(name):
    return lambda run: (run.path / name).unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        damage_older,
        damage_newest,
        damage_older_best,
        leave_temporaries,
        tear_the_log,
        remove("summary.json"),
        remove("spaces.json"),
        remove("clients.csv"),
    ],
)
def test_resuming_a_finished_run_mends_what_a_check_says_it_mends(run, spoil):
    before = contents(run.path)
    spoil(run)
    assert faults(run.path)
    go_on(run, lambda warning: None)
    assert faults(run.path) == []
    best, newest = run.checkpoint(pytest.fail, best=True), run.checkpoint(pytest.fail, best=False)
    assert (best.round, newest.round) == (4, 5)
    log = RunDirectory.open(run.path).metrics.read()
    assert [record["return_mean"] for record in log] == RETURNS
    kept = {name for name in before if name.parts[0] not in ("checkpoints", "best")}
    assert contents(run.path).keys() >= kept


def test_a_change_that_is_accepted_for_a_finished_run_is_written_down(run):
    config = run.config()
    changed = {**config, "learner": {**config["learner"], "learning_rate": 0.5}}
    run.replace_config(changed)
    # The two last checkpoints, and the two best.
    assert sum("learner.learning_rate was 0.05, is 0.5" in fault for fault in faults(run.path)) == 4
    go_on(run, lambda warning: None, accept=True)
    assert faults(run.path) == []
    assert "learner.learning_rate was" in str(run.summary()["history"][-1]["changes"])
    go_on(run)
    assert fedkl.load(run.path, best=True).round == 4


def test_a_finished_run_that_is_well_is_left_as_it_is(run):
    before = contents(run.path)
    go_on(run)
    assert contents(run.path) == before


def test_resuming_says_that_the_best_round_is_gone_or_damaged(run):
    best = max(run.best.directory.glob("0*"))
    whole = best.read_bytes()
    for spoil, sentence in (
        (lambda: best.write_bytes(b"x"), "is damaged"),
        (best.unlink, "round 4 was better, but its checkpoint"),
    ):
        spoil()
        said = []
        go_on(run, said.append)
        assert any(sentence in warning for warning in said)
        assert any("round 4" in fault or str(best) in fault for fault in faults(run.path))
    best.write_bytes(whole)
    go_on(run)


@pytest.mark.filterwarnings("default")
def test_an_older_best_round_is_not_used_silently_when_the_newest_checkpoint_is_gone(
    tmp_path, capsys
):
    path = tmp_path / "run"
    run = lifecycle.create(smallest(settings=KEPT | {"federation.rounds": 4}), path)
    go_on(run)
    assert fedkl.load(path, best=True).round == 4
    next((path / "checkpoints").glob("000004.*")).unlink()
    sentence = "the checkpoint of round 4 is missing, so the best round up to round 3 is used"
    with pytest.warns(UserWarning, match=sentence):
        assert fedkl.load(path, best=True).round == 2
    code, _, err = call(capsys, "evaluate", path, "--best", "--episodes", 1)
    assert (code, sentence in " ".join(err.split())) == (0, True)
    assert any("the checkpoint of round 4 is missing" in fault for fault in faults(path))
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(fedkl.UserError, match="has a log of 4 rounds and no checkpoint"):
        fedkl.load(path, best=True)
    code, _, err = call(capsys, "evaluate", path, "--best", "--episodes", 1)
    assert (code, "has a log of 4 rounds and no checkpoint" in " ".join(err.split())) == (2, True)


def edited(run):
    config = (run.path / "config.toml").read_text()
    assert "learning_rate = 0.05" in config
    (run.path / "config.toml").write_text(
        config.replace("learning_rate = 0.05", "learning_rate = 0.5")
    )


def with_a_gap(run):
    lines = run.metrics.path.read_bytes().splitlines(keepends=True)
    run.metrics.path.write_bytes(b"".join(lines[1:]))


def without_checkpoints(run):
    shutil.rmtree(run.checkpoints.directory)


@pytest.mark.parametrize(
    ("spoil", "rounds"),
    [(edited, 20), (with_a_gap, 20), (without_checkpoints, 20), (lambda run: None, 3)],
    ids=["edited", "gap", "no checkpoints", "too few"],
)
def test_lengthening_that_is_refused_changes_nothing(run, spoil, rounds, capsys):
    spoil(run)
    (run.path / "clients.csv").unlink()
    before = contents(run.path)
    code, _, err = call(capsys, "resume", run.path, "--rounds", rounds)
    assert (code, len(err.splitlines())) == (2, 1)
    assert contents(run.path) == before
    with pytest.raises(fedkl.UserError):
        fedkl.resume(run.path, rounds=rounds)
    assert contents(run.path) == before


def test_lengthening_a_run_that_is_in_use_changes_nothing(run, capsys):
    with lock_directory(run.path):
        before = contents(run.path)
        code, _, err = call(capsys, "resume", run.path, "--rounds", 20)
        assert (code, "is in use by process" in err) == (2, True)
        assert contents(run.path) == before


def test_a_run_that_is_made_longer_and_stopped_on_the_way_is_well(run):
    with scripted(lifecycle.config_of(run, 8), [*RETURNS, 1.0, 1.0, 1.0]) as federation:
        lifecycle.run_remaining(
            run, lambda record: None, pytest.fail, federation, until=7, lengthened=True
        )
    assert run.config()["federation"]["rounds"] == 8
    assert (run.summary()["rounds"], len(run.metrics.read())) == (5, 7)
    assert faults(run.path) == []


def test_who_holds_a_run_is_known_and_a_number_that_was_given_again_is_nobody(tmp_path):
    assert holder(tmp_path) is None
    with lock_directory(tmp_path):
        assert holder(tmp_path) == os.getpid()
    assert holder(tmp_path) is None
    (tmp_path / ".lock").write_text("999999999999999999999\n")
    assert holder(tmp_path) is None


def test_what_belongs_to_writing_is_no_damage_while_somebody_writes(run, capsys):
    leave_temporaries(run)
    tear_the_log(run)
    (run.path / "summary.json").unlink()
    assert len(faults(run.path)) == 5
    with lock_directory(run.path):
        leave_temporaries(run)
        assert faults(run.path) == []
        code, out, err = call(capsys, "check", run.path)
        assert (code, err) == (0, "")
        assert f"{run.path} is being written by process {os.getpid()}" in out
        damage_older(run)
        (said,) = faults(run.path)
        assert "its bytes do not match" in said


def test_a_file_that_goes_while_a_run_is_looked_at_is_no_damage(run, monkeypatch):
    read, looks = checkpoint_files.read, []

    def gone(file):
        looks.append(file)
        (run.path / ".lock").write_text(f"1\n{len(looks)}\n")
        raise FileGoneError

    monkeypatch.setattr(checkpoint_files, "read", gone)
    findings = verify.check(run)
    assert [finding.remedy for finding in findings] == [""]
    assert "is being written by another process" in findings[0].what
    monkeypatch.setattr(checkpoint_files, "read", read)


def test_beside_a_training_no_check_finds_damage(tmp_path, child):
    path = tmp_path / "run"
    settings = [f"{key}={value}" for key, value in SMALLEST.items() if key != "federation.rounds"]
    process = child("-m", "fedkl", "train", "probe-point", "--rounds", 100_000, "--run", path,
                    "--set", *settings, "checkpoint.keep_best=true", stdout=None)  # fmt: skip
    until((path / "checkpoints").exists)
    run, writing = RunDirectory.open(path), 0
    for _ in range(25):
        findings = verify.check(run)
        assert all(finding.what and not finding.remedy for finding in findings), findings
        writing += bool(findings)
    assert writing
    assert process.poll() is None


def test_the_runs_and_the_plan_of_a_directory_are_all_checked(tmp_path, capsys):
    from fedkl.experiments import tune

    path = tmp_path / "tuning"
    plan = tune.TuningPlan(
        "probe-point", "fedkl", seeds=(7,), rungs=(2,),
        candidates=({"learner.d_local": 0.01}, {"learner.d_local": 0.1}),
    )  # fmt: skip
    tune.create(path, plan, lambda one, seed: smallest(seed, one))
    code, out, err = call(capsys, "check", path)
    assert (code, err, out.count("all is well, 0 rounds")) == (0, "", 2)
    for one in plan.run_paths(path):
        lifecycle.run_remaining(RunDirectory.open(one), lambda record: None, pytest.fail)
    code, out, err = call(capsys, "check", path)
    assert (code, out.count("cannot be used: cannot read")) == (2, 2)  # not written yet
    for name, data in plan.results(path).items():
        (path / name).write_bytes(data)
    assert call(capsys, "check", path)[0] == 0
    best = (path / "best.toml").read_text()
    (path / "best.toml").write_text(best.replace("d_local = 0.", "d_local = 0.9"))
    code, out, err = call(capsys, "check", path)
    assert code == 2
    assert f"{path / 'best.toml'} is not what the runs of {path} say" in out
    assert "1 thing is wrong" in err


def test_of_a_table_of_clients_without_an_end_only_as_much_is_read_as_there_should_be(run):
    table = run.path / "clients.csv"
    with table.open("ab") as file:
        file.truncate(2**40)  # it takes no room, and would fill the memory
    assert faults(run.path) == [f"{table} is not what the config says of the clients"]
