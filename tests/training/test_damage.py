"""Damage to any file of a run: what is done with it is the same as before, or something is said."""

import os
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from finished_runs import finish, smallest

import fedkl
from fedkl.report import load_runs
from fedkl.training import lifecycle, verify
from fedkl.training.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_compilation")

SETTINGS = {"federation.rounds": 3, "checkpoint.keep_best": True}


def silent(_):
    pass


class Case:
    """A finished run, another one, and what may be done with a copy of the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run, self.other = (finish(folder / f"seed{s}", s, SETTINGS) for s in (0, 1))
        self.federation = fedkl.Federation(smallest(settings=SETTINGS))
        self.first = self.federation.save()
        self.files = sorted(
            path.relative_to(self.run.path) for path in self.run.path.rglob("*") if path.is_file()
        )
        self.expected = {do: do(self, self.run.path, pytest.fail) for do in DEEDS}

    def fresh(self, path: Path) -> fedkl.Federation | None:
        """The federation at its start; None if the config may say something else."""
        if (path / "config.toml").read_bytes() != (self.run.path / "config.toml").read_bytes():
            return None
        self.federation.restore(self.first.arrays, {})
        return self.federation

    def judge(self, damage) -> list[str]:
        """What is wrong with what comes of a damage: tracebacks, and differences without a word."""
        problems = []
        for do in DEEDS:
            path = self.folder / "copy"
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.run.path, path)
            damage(path)
            before = contents(path)
            said: list[str] = []
            try:
                found = do(self, path, said.append)
            except fedkl.UserError as error:
                said.append(str(error))
            except Exception as error:
                problems.append(f"{do.__name__}: {type(error).__name__}: {error}")
                continue
            if not said and found != self.expected[do]:
                problems.append(f"{do.__name__} differs without a word")
            if do is not resume and contents(path) != before:
                problems.append(f"{do.__name__} writes")
        return problems


def contents(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def saved(run):
    found = run.checkpoints.latest(silent)
    rows = {n: {k: v.tobytes() for k, v in row.items()} for n, row in found.rows.items()}
    return found.round, {k: v.tobytes() for k, v in found.arrays.items()}, rows


def resume(case, path, warn):
    run = RunDirectory.open(path)
    lifecycle.run_remaining(run, silent, warn, case.fresh(path))
    measured = ("seconds", "seconds_training", "time", "log")
    records = [{k: v for k, v in r.items() if k not in measured} for r in run.metrics.read()]
    summary = {k: v for k, v in run.summary().items() if k not in measured}
    return saved(run), records, summary


def evaluate(case, path, warn):
    federation = lifecycle.load(RunDirectory.open(path), warn, case.fresh(path))
    return {name: array.tobytes() for name, array in federation.save().arrays.items()}


def act(case, path, warn):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        policies = [fedkl.load(path, best=best) for best in (False, True)]
    for warning in caught:
        warn(str(warning.message))
    seen = np.linspace(-3.0, 3.0, policies[0].spaces.observation_size)
    return [(policy.round, policy(seen).tobytes(), policy.spaces) for policy in policies]


def report(case, path, warn):
    (run,) = load_runs(path, warn=warn)
    if not run.finished:
        warn("the report says that it is not finished")
    returns = [(r.clients.tolist(), r.returns.tolist()) for r in run.client_returns()]
    series = [run.series(n).tobytes() for n in ("return_mean", "kl_local", "bytes_up", "seconds")]
    return run.label, run.seed, run.config, returns, series, run.summary


def check(case, path, warn):
    for finding in verify.check(RunDirectory.open(path)):
        warn(finding.what)
    files = {str(f.relative_to(path)): d for f, d in contents(path).items()}
    # Both are looked at by what they mean, and one of two checkpoints is enough.
    older = [str(min(f for f in case.files if f.parts[0] == n)) for n in ("best", "checkpoints")]
    return {
        name: data for name, data in files.items() if name not in (".lock", "config.toml", *older)
    }, RunDirectory.open(path).config()


DEEDS = (resume, evaluate, act, report, check)


def flip(case, chance):
    file = chance.choice(case.files)
    position = chance.randrange(8 * (case.run.path / file).stat().st_size)

    def damage(path):
        data = bytearray((path / file).read_bytes())
        data[position // 8] ^= 1 << position % 8
        (path / file).write_bytes(bytes(data))

    return f"bit {position} of {file}", damage


def truncate(case, chance):
    file = chance.choice(case.files)
    length = chance.randrange((case.run.path / file).stat().st_size)
    return f"{file} to {length} bytes", lambda path: os.truncate(path / file, length)


def delete(case, chance):
    gone = chance.sample(case.files, chance.choice([1, 1, 2, 3]))
    # Either says how far the run had come. Without both it has come as far as its checkpoints.
    if {".lock", "summary.json"} <= {str(file) for file in gone}:
        return delete(case, chance)
    return f"without {gone}", lambda path: [(path / file).unlink() for file in gone]


def swap(case, chance):
    if chance.random() < 0.5:
        one, other = chance.sample(case.files, 2)

        def damage(path):
            first, second = (path / one).read_bytes(), (path / other).read_bytes()
            (path / one).write_bytes(second)
            (path / other).write_bytes(first)

        return f"{one} and {other}", damage
    file = chance.choice([file for file in case.files if (case.other.path / file).exists()])
    return f"{file} of another", lambda path: shutil.copyfile(case.other.path / file, path / file)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "IN_A_LINE", 2)  # so that there are files with returns
        yield Case(tmp_path_factory.mktemp("damage"))


def suffer(case, kinds, seed):
    chance, problems = random.Random(seed), []
    for kind in kinds:
        name, damage = kind(case, chance)
        problems += [f"{name}: {problem}" for problem in case.judge(damage)]
    assert problems == []


def test_the_run_has_every_kind_of_file(case):
    assert {file.parts[0] for file in case.files} == {
        "config.toml", "clients.csv", "metrics.jsonl", "summary.json", "checkpoints", "returns",
        "best", "spaces.json", ".lock",
    }  # fmt: skip
    assert case.judge(lambda path: None) == []


def test_a_few_damages_are_said_or_change_nothing(case):
    suffer(case, [flip] * 24 + [truncate, delete, swap] * 6, seed=0)


@pytest.mark.slow
def test_ten_thousand_flips_are_said_or_change_nothing(case):
    suffer(case, [flip] * 10_000, seed=1)


@pytest.mark.slow
def test_two_thousand_truncations_deletions_and_swaps_are_said_or_change_nothing(case):
    suffer(case, [truncate, delete, swap] * 667, seed=2)
