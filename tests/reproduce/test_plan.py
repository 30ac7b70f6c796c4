"""An experiment's directory."""

import pytest

from fedkl import config
from fedkl.errors import UserError
from fedkl.reproduce import EXPERIMENTS
from fedkl.reproduce.plan import Plan, create, is_reproduction, read_plan

TINY = {"federation.rounds": 1}


def configure(case, seed):
    return config.preset(case.preset, None, seed, {**case.settings, **TINY})


def test_a_directory_has_a_run_for_each_case_and_seed_and_its_plan(tmp_path):
    plan = Plan("heterogeneity-level", (3, 4), jobs=2)
    create(tmp_path / "x", plan, configure)
    names = {path.name for path in (tmp_path / "x").iterdir()}
    runs = {f"{case}-seed{s}" for case in plan.it().cases for s in (3, 4)}
    assert names == runs | {"reproduce.toml"}
    assert is_reproduction(tmp_path / "x")
    assert read_plan(tmp_path / "x") == plan
    assert {run.name for run in plan.runs(tmp_path / "x")} == runs


def test_seeds_that_settings_were_chosen_on_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(UserError, match="chosen on seeds 100"):
        create(tmp_path / "x", Plan("negative-potential", (99, 100)), configure)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_that_would_measure_nothing_is_refused_and_nothing_is_written(name, tmp_path):
    def unmeasured(case, seed):
        settings = {**case.settings, **TINY, "heterogeneity.every": 0}
        return config.preset(case.preset, None, seed, settings)

    with pytest.raises(UserError, match=r"^heterogeneity\.every must not be 0"):
        create(tmp_path / "x", Plan(name, (3,)), unmeasured)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_experiment_in_a_plan_is_refused(tmp_path):
    (tmp_path / "reproduce.toml").write_text('experiment = "magic"\nseeds = [1]\n')
    with pytest.raises(UserError, match=r"experiment must be one of heterogeneity-level"):
        read_plan(tmp_path)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_case_of_an_experiment_can_be_configured(name):
    for case in EXPERIMENTS[name].cases.values():
        assert configure(case, 10).heterogeneity.every == 1
