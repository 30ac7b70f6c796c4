"""A directory of experiments: what is in it, what is refused, and that it grows."""

import shutil
from pathlib import Path

import pytest

from fedkl.core.errors import UserError
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.plan import (
    ALL,
    ReproductionPlan,
    Run,
    add_missing,
    create,
    tables_of,
)
from fedkl.training import binding
from fedkl.training.directory import RunDirectory

QUICK = ReproductionPlan("heterogeneity-level", jobs=2, quick=True, rounds=1)


def test_a_directory_has_a_run_for_each_case_and_seed_and_its_plan(tmp_path):
    create(tmp_path / "x", QUICK)
    names = {path.name for path in (tmp_path / "x").iterdir()}
    runs = {
        f"heterogeneity-level-{group}-fedkl-seed10" for group in ("iid", "noise-0.2", "noise-0.4")
    }
    assert names == runs | {"reproduce.toml"}
    assert ReproductionPlan.is_in(tmp_path / "x")
    assert ReproductionPlan.read(tmp_path / "x") == QUICK
    assert {run.path.name for run in QUICK.runs(tmp_path / "x")} == runs


def test_settings_of_the_plan_are_in_every_run_and_survive_toml(tmp_path):
    plan = ReproductionPlan("negative-potential", seeds=1, settings={"learner.steps": 50})
    create(tmp_path / "x", plan)
    assert ReproductionPlan.read(tmp_path / "x") == plan
    for run in plan.runs(tmp_path / "x"):
        assert RunDirectory(run.path).config()["learner"]["steps"] == 50


def test_only_what_the_table_says_is_full():
    assert ReproductionPlan("step-sizes", jobs=2).full
    assert not ReproductionPlan("step-sizes", quick=True).full
    assert ReproductionPlan("step-sizes", seeds=1).full  # each of them is whole
    assert not ReproductionPlan("step-sizes", rounds=3).full
    assert not ReproductionPlan("step-sizes", settings={"learner.steps": 50}).full


def test_of_all_experiments_the_first_seeds_of_the_first_tier_are_trained_first():
    runs = ReproductionPlan(ALL).runs(Path("x"))
    first = [run for run in runs if run.case.tier == 1 and run.seed < 13]
    assert runs[: len(first)] == first
    tiers = [run.case.tier for run in runs]
    assert tiers == sorted(tiers)


def test_settings_that_were_chosen_on_a_seed_of_the_plan_are_refused(tmp_path, monkeypatch):
    case = EXPERIMENTS["local-critic"].cases[0]
    monkeypatch.setattr(ReproductionPlan, "runs", lambda _, path: [Run(path / "one", case, 100)])
    with pytest.raises(UserError, match="chosen on seeds 100"):
        create(tmp_path / "x", ReproductionPlan("local-critic"))
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_that_would_measure_nothing_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(UserError, match=r"^heterogeneity\.every must not be 0"):
        create(
            tmp_path / "x",
            ReproductionPlan("negative-potential", settings={"heterogeneity.every": 0}),
        )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_experiment_in_a_plan_is_refused(tmp_path):
    (tmp_path / "reproduce.toml").write_text('experiment = "magic"\n')
    with pytest.raises(UserError, match=r"experiment must be one of reacher-init-state"):
        ReproductionPlan.read(tmp_path)


def test_runs_that_the_table_has_gained_are_made_when_the_directory_is_resumed(tmp_path):
    path = tmp_path / "x"
    create(path, QUICK)
    gone = QUICK.runs(path)[0].path
    shutil.rmtree(gone)
    binding.require(QUICK, path, lambda said: None)
    assert add_missing(path, QUICK) == [gone]
    binding.require(QUICK, path, pytest.fail)
    assert add_missing(path, QUICK) == []
    assert RunDirectory(gone).config()["federation"]["rounds"] == 1


def test_a_run_that_is_not_the_plans_is_refused_and_named(tmp_path):
    path = tmp_path / "x"
    create(path, QUICK)
    one, other = (run.path for run in QUICK.runs(path)[:2])
    text = (one / "config.toml").read_text()
    (one / "config.toml").write_text(text.replace("d_local = 0.01", "d_local = 0.5"))
    sentence = (
        rf"{one.name} is not the run that .*reproduce\.toml says: its learner\.d_local is 0\.5"
    )
    with pytest.raises(UserError, match=sentence):
        binding.require(QUICK, path, pytest.fail)
    assert other.is_dir()


def test_a_setting_that_an_older_version_did_not_have_is_no_difference(tmp_path):
    path = tmp_path / "x"
    create(path, QUICK)
    one = QUICK.runs(path)[0].path
    text = (one / "config.toml").read_text()
    (one / "config.toml").write_text(text.replace("world_seed = -1\n", ""))
    binding.require(QUICK, path, pytest.fail)


def test_tables_are_by_case_and_seed(tmp_path):
    path = tmp_path / "x"
    create(path, QUICK)
    tables = tables_of(QUICK.runs(path))
    assert tables == {f"{g}-fedkl": {10: []} for g in ("iid", "noise-0.2", "noise-0.4")}
