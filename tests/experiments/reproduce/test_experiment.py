"""The table of experiments: what it names exists, can be trained, and is judged."""

import re
from pathlib import Path

import pytest

from fedkl.config.config import preset
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FIRST_SEED
from fedkl.experiments.reproduce.judges import JUDGES
from fedkl.experiments.reproduce.plan import ALL, ReproductionPlan, run_name

CASES = [case for one in EXPERIMENTS.values() for case in one.cases if case.experiment == one.name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: run_name(case, 10))
def test_every_case_is_a_config_of_its_algorithm_with_seeds_that_nothing_was_chosen_on(case):
    config = ReproductionPlan(case.experiment).configure(case, case.seeds[0])
    assert config.algorithm.name == case.algorithm
    assert (config.federation.personal == "all") == (case.reference == "alone")
    assert (config.federation.data == "pooled") == (case.reference == "centralised")
    assert config.federation.rounds == case.rounds
    assert case.seeds == tuple(range(FIRST_SEED, FIRST_SEED + len(case.seeds)))
    assert not {*case.seeds} & {*config.tuned_on}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda one: one.name)
def test_every_experiment_has_a_judge_claims_and_a_quick_look(experiment):
    assert experiment.judge in JUDGES
    assert experiment.claims
    assert experiment.differs.endswith(".")
    quick = experiment.quickly()
    assert 0 < len(quick.cases) <= len(experiment.cases)
    assert {len(case.seeds) for case in quick.cases} == {1}


def test_runs_have_names_of_their_own():
    names = [run_name(case, seed) for case in CASES for seed in case.seeds]
    assert len({*names}) == len(names)
    assert {run.path.name for run in ReproductionPlan(ALL).runs(Path("x"))} == {*names}


def test_what_an_experiment_uses_of_another_is_the_others_run():
    same = {case.name: case for case in EXPERIMENTS["figure-eight-same-step"].cases}
    assert same["mixed-fedkl"] in EXPERIMENTS["figure-eight"].cases
    names = [run.path.name for run in ReproductionPlan("figure-eight-same-step").runs(Path("x"))]
    assert "figure-eight-mixed-fedkl-seed10" in names


def test_the_papers_figures_are_all_there():
    figures = " ".join(one.figure for one in EXPERIMENTS.values())
    assert {*map(int, re.findall(r"Fig\. (\d+)", figures))} == {4, 5, 6, 7, 8, 9, 10}


@pytest.mark.parametrize(
    ("experiment", "names"),
    [("reacher-init-state", "init-state"), ("reacher-dynamics", "dynamics")],
)
def test_experiment_1_is_of_the_papers_size_and_word(experiment, names):
    letter = [c for c in EXPERIMENTS[experiment].cases if (c.group, c.tier) == ("letter", 1)]
    assert [c.algorithm for c in letter] == ["fedkl", "fedavg", "fedprox", "fmarl"]
    assert {(c.preset, c.rounds, len(c.seeds)) for c in letter} == {
        (f"reacher-{names}-paper", 200, 5)
    }
    assert not any(c.settings for c in letter)


def test_what_the_claims_rest_on_is_of_the_first_tier_and_anchored_fedkl_of_a_later_one():
    first = {(c.experiment, c.group) for c in CASES if c.tier == 1}
    for name in ("reacher-init-state", "reacher-dynamics"):
        assert {g for e, g in first if e == name} >= {"letter", "smaller", "guarded"}
    assert ("reacher-init-state", "arm") in first
    assert {e for e, _ in first} == {*EXPERIMENTS} - {
        "communication",
        "hierarchical",
        "price",
        "anchors",
    }
    anchored = [c for c in CASES if c.algorithm == "fedkl-anchored"]
    assert {c.tier for c in anchored} == {2, 3}
    compared = {"reacher-init-state", "reacher-dynamics", "figure-eight"}
    assert {c.experiment for c in anchored} == compared | {"price", "anchors"}


def test_an_experiment_is_judged_when_what_it_needs_is_there():
    experiment = EXPERIMENTS["reacher-init-state"]
    letter = [c for c in experiment.cases if (c.group, c.tier) == ("letter", 1)]
    runs = {case.name: {seed: [{}] for seed in (10, 11, 12)} for case in letter}
    assert experiment.enough(runs)
    assert not experiment.enough(runs | {letter[0].name: {10: [{}]}})


def test_a_setting_for_one_algorithm_is_that_algorithms_alone():
    guarded = {
        c.algorithm: c for c in EXPERIMENTS["reacher-dynamics"].cases if c.group == "guarded"
    }
    assert guarded["fedkl"].settings["algorithm.c1_bounds"] == [0.0001, 20.0]
    assert "algorithm.c1_bounds" not in guarded["fedavg"].settings
    ours = preset("reacher-dynamics").learner
    for case in guarded.values():
        learner = ReproductionPlan(case.experiment).configure(case, 10).learner
        assert (learner.guard, learner.c2_bounds) == (ours.guard, ours.c2_bounds)


def test_the_levels_of_heterogeneity_have_one_learner_and_one_d_local():
    cases = EXPERIMENTS["heterogeneity-level"].cases
    for ours in (False, True):
        some = [c for c in cases if c.group.startswith("ours-") == ours]
        configs = [ReproductionPlan(c.experiment).configure(c, 10) for c in some]
        assert len({(str(c.learner), str(c.critic), str(c.algorithm)) for c in configs}) == 1


@pytest.mark.parametrize(("group", "spread"), [("noise-0.2", 0.2), ("noise-0.4", 0.4)])
def test_the_two_levels_of_noise_are_offsets_of_these_deviations(group, spread):
    (case,) = [c for c in EXPERIMENTS["heterogeneity-level"].cases if c.group == group]
    offsets = ReproductionPlan(case.experiment).configure(case, 10).clients()["action_offset"]
    assert offsets.shape == (60, 2)
    assert offsets.std() == pytest.approx(spread, rel=0.2)
