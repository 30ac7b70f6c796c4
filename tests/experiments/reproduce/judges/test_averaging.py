"""Averages beside mixtures, and means beside maxima: tables whose answer is known."""

import numpy as np
import pytest
import tables

from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, IN_PART, OPEN
from fedkl.experiments.reproduce.judges.averaging import judge_averaging

EXPERIMENT = EXPERIMENTS["averaging"]
RISES = np.linspace(-40.0, -10.0, 60)


def averaging(mixture, mean, most):
    member = {
        "client": 0,
        "return_mean": mixture,
        "distance_mean": mean,
        "distance_max": most,
        "distance_mean_elsewhere": 2 * mean,
        "distance_max_elsewhere": 3 * most,
    }
    other = member | {"return_mean": mixture - 2.0, "distance_mean": 3 * mean}
    return {"mixture_return_mean": mixture, "kl": 0.5, "tv": 0.25, "members": [member, other]}


def group(name, above, most=lambda mean: 4 * mean, algorithms=("fedkl", "fedavg")):
    """Three seeds in which the mixture is so much above the average, by algorithm."""
    runs = {}
    for algorithm in algorithms:
        for case in EXPERIMENT.cases:
            if (case.group, case.algorithm) != (name, algorithm):
                continue
            for seed in range(3):
                returns = RISES + 0.01 * seed
                means = [0.1 + 0.01 * (7 * t % 10) for t in range(60)]
                found = [
                    averaging(value + above + 0.001 * seed, mean, most(mean))
                    for value, mean in zip(returns, means, strict=True)
                ]
                runs.setdefault(case.name, {})[10 + seed] = tables.table(returns, averaging=found)
    return runs


def test_an_average_that_is_as_good_as_the_mixture_can_stand_for_it():
    finding = judge_averaging(EXPERIMENT, group("ours", 0.5))
    assert tables.verdicts(finding) == {"parameters": HOLDS, "mean": HOLDS}
    # The last six of sixty rounds less the first: 30 less the mean of 0 to 5 steps of 30 / 59.
    gained = 30 - 2.5 * 30 / 59
    said = finding.verdicts[0].measured
    assert f"FedKL, our learner 0.5 [0.5, 0.5] where it gains {gained:.3g}" in said


def test_a_mixture_that_is_better_by_more_than_the_margin_refutes_it():
    # A twentieth of 28.7 is 1.4.
    finding = judge_averaging(EXPERIMENT, group("ours", 1.5))
    assert tables.verdicts(finding)["parameters"] == FAILS
    both = group("ours", 1.5, algorithms=["fedavg"]) | group("ours", -1.0, algorithms=["fedkl"])
    assert tables.verdicts(judge_averaging(EXPERIMENT, both))["parameters"] == IN_PART


def test_a_maximum_that_goes_the_other_way_is_not_what_the_mean_says():
    finding = judge_averaging(EXPERIMENT, group("ours", 0.0, most=lambda mean: 1.0 - mean))
    assert tables.verdicts(finding)["mean"] == FAILS
    assert "rank correlation of the mean distance and the largest: FedKL, our learner -1 [" in (
        finding.verdicts[1].measured
    )


def test_rows_are_medians_over_rounds_of_means_over_members():
    row = judge_averaging(EXPERIMENT, group("ours", 0.5)).rows[0]
    # Means of 0.1 to 0.19, of two members of which one goes three times as far: 2 x 0.145.
    assert row["member_distance_mean"] == pytest.approx(0.29)
    assert row["member_distance_max"] == pytest.approx(0.58)
    assert row["member_distance_mean_elsewhere"] == pytest.approx(0.29)
    assert (row["tv"], row["group"]) == (0.25, "ours")
    assert row["mixture_less_average"] == pytest.approx(0.501, abs=2e-4)


def test_each_group_has_returns_and_distances_in_the_figure():
    runs = group("ours", 0.5) | group("letter", 0.5)
    axes = judge_averaging(EXPERIMENT, runs).draw().axes
    assert [len(one.lines) for one in axes] == [6, 4, 6, 4]


def test_what_has_not_been_run_or_measured_cannot_be_told():
    plain = tables.of_group("averaging", "ours", {"fedkl": [RISES]})
    for runs in ({}, plain):
        finding = judge_averaging(EXPERIMENT, runs)
        assert tables.verdicts(finding) == {"parameters": OPEN, "mean": OPEN}
        finding.draw()
