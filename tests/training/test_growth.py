"""Growth of a directory of runs: all at once, also where the process is killed in between."""

import dataclasses
import os
import shutil
from functools import partial

import pytest
from commands import call
from finished_runs import SMALLEST

from fedkl.cli import common, report
from fedkl.core.errors import UserError
from fedkl.experiments import compare, workers
from fedkl.io.locks import lock_directory
from fedkl.training import binding, growth
from fedkl.training.directory import RunDirectory
from fedkl.training.plans import ADDING

SETTINGS = tuple(f"{key}={value}" for key, value in SMALLEST.items() if "rounds" not in key)
PLAN = compare.ComparisonPlan("probe-point", ("fedavg", "fedprox"), (0, 1), settings=SETTINGS)
LARGER = dataclasses.replace(PLAN, seeds=(0, 1, 2), rounds=20)


def configs(plan, seeds):
    return {
        f"{name}-seed{seed}": compare.config_of(plan, name, seed, {}).mapping()
        for name in plan.algorithms
        for seed in seeds
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("growth") / "x"
    compare.create(path, PLAN, partial(compare.config_of, PLAN))
    return path


@pytest.fixture
def path(made, tmp_path):
    return shutil.copytree(made, tmp_path / "x")


@pytest.fixture(autouse=True)
def untrained(monkeypatch):
    monkeypatch.setattr(workers, "run_all", lambda *_, **__: None)
    monkeypatch.setattr(report, "write", lambda *_: None)


def contents(path):
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def faults(path):
    plan = common.plan_in(path)
    return [finding.what for finding in binding.check_plan(plan, path)]


def grow(path):
    growth.grow(path, compare.ComparisonPlan.read(path), LARGER, configs(LARGER, [2]))


def test_a_plan_its_runs_and_their_copies_grow_together(path):
    before = contents(path)
    grow(path)
    assert compare.ComparisonPlan.read(path) == LARGER
    assert faults(path) == []
    for run in LARGER.run_paths(path):
        assert binding.read_copy(run).plan["seeds"] == [0, 1, 2]
        assert RunDirectory(run).config()["federation"]["rounds"] == 20
    after = contents(path)
    changed = {name.rpartition("/")[2] for name in before if after[name] != before[name]}
    assert changed == {"compare.toml", "plan.toml", "config.toml"}  # the last for its rounds


class KilledError(Exception):
    """Stands for SIGKILL: nothing is cleaned up after it."""


def killed_at(step, monkeypatch, path):
    """Lets a process be killed at one of its steps on disk; False if it has fewer."""
    steps = iter(range(10_000))

    def counted(function):
        def call(*arguments, **named):
            if next(steps) == step:
                raise KilledError
            return function(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", counted(os.replace))
        patch.setattr(type(path), "rename", counted(type(path).rename))
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        try:
            grow(path)
        except KilledError:
            return True
    return False


def test_killed_at_any_step_it_is_as_before_or_completed_by_resume(
    made, tmp_path, monkeypatch, capsys
):
    ends = []
    for step in range(100):
        path = shutil.copytree(made, tmp_path / str(step))
        if not killed_at(step, monkeypatch, path):
            break
        decided = (path / ADDING).exists()
        if decided:
            (said,) = faults(path)
            assert said == f"{path} was being added to when that was interrupted"
        else:
            assert faults(path) == []
        code, _, err = call(capsys, "resume", path)
        assert code == 0
        assert ("it is completed" in err) == decided
        grown = compare.ComparisonPlan.read(path) == LARGER
        assert grown or not decided
        assert faults(path) == []
        if not grown:
            grow(path)  # what was left behind is in nobody's way
        assert {run.name for run in path.iterdir() if run.is_dir()} == {
            run.name for run in LARGER.run_paths(path)
        } | {left.name for left in path.glob(f"{ADDING}.*")}
        ends.append(grown)
    assert ends == sorted(ends)  # once it is decided, it is always completed
    assert {*ends} == {True, False}


def test_what_cannot_be_grown_is_one_sentence_and_nothing_is_written(path):
    before = contents(path)
    with lock_directory(path), pytest.raises(UserError, match="is in use by"):
        grow(path)
    with RunDirectory(path / "fedavg-seed1").lock(), pytest.raises(UserError, match="in use by"):
        grow(path)
    other = dataclasses.replace(PLAN, seeds=(0,))
    with pytest.raises(UserError, match="was changed meanwhile"):
        growth.grow(path, other, LARGER, configs(LARGER, [2]))
    (path / "fedprox-seed2").mkdir()
    with pytest.raises(UserError, match="fedprox-seed2 is in the way of a new run"):
        grow(path)
    assert contents(path) == before


def test_an_addition_without_a_plan_is_not_guessed_at(path):
    (path / ADDING).mkdir()
    with pytest.raises(UserError, match="has no plan, and so cannot be completed"):
        common.complete_addition(path)


def test_a_link_in_the_place_of_an_addition_is_not_followed(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (path / ADDING).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a symbolic link"):
        common.complete_addition(path)
