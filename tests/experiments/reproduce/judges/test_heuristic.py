"""The recipe for d_global: tables whose answer is known."""

import pytest
import tables

from fedkl.config.config import preset
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, OPEN
from fedkl.experiments.reproduce.judges.heuristic import judge_heuristic

EXPERIMENT = EXPERIMENTS["d-global-heuristic"]


def runs_of(**early):
    """Three seeds each that have a return for twenty rounds, and -10 for the other forty."""
    return {
        case.name: {
            10 + seed: tables.table([early[case.group] + 0.1 * seed] * 20 + [-10.0] * 40)
            for seed in range(3)
        }
        for case in EXPERIMENT.cases
        if case.group in early
    }


def test_the_recipe_is_faster_if_its_first_third_is_better():
    finding = judge_heuristic(EXPERIMENT, runs_of(best=-20.0, larger=-16.0, recipe=-15.0))
    assert tables.verdicts(finding) == {"faster": HOLDS}
    said = finding.verdicts[0].measured
    assert "the best d_local and no penalty: 5 [" in said
    assert "the larger d_local and no penalty: 1 [" in said
    assert [row["early_return"] for row in finding.rows] == pytest.approx([-19.9, -15.9, -14.9])
    assert len(finding.draw().axes) == 3


def test_a_recipe_that_is_slower_refutes_it():
    finding = judge_heuristic(EXPERIMENT, runs_of(best=-15.0, recipe=-20.0))
    assert tables.verdicts(finding) == {"faster": FAILS}


def test_without_the_recipe_or_what_it_is_compared_with_nothing_can_be_told():
    for runs in ({}, runs_of(best=-20.0, larger=-16.0), runs_of(recipe=-1.0)):
        assert tables.verdicts(judge_heuristic(EXPERIMENT, runs)) == {"faster": OPEN}


def test_the_recipe_goes_half_as_far_again_as_what_was_best_without_the_penalty():
    cases = {case.group: case for case in EXPERIMENT.cases}
    best, larger, recipe = (
        cases[name].settings["learner.d_local"] for name in ("best", "larger", "recipe")
    )
    assert best == preset("reacher-init-state", "fedavg").learner.d_local
    assert (larger, recipe) == (pytest.approx(1.5 * best), larger)
    # 1.1 times the mean distance that `fedkl tune-d-global` measured.
    assert cases["recipe"].settings["algorithm.d_global"] == pytest.approx(1.1 * 1.389, abs=0.005)
