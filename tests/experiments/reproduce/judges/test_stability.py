"""Who is stable on Reacher: tables whose answer is known."""

import numpy as np
import pytest
import tables

from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, IN_PART, OPEN
from fedkl.experiments.reproduce.judges.stability import judge_stability

EXPERIMENT = EXPERIMENTS["reacher-init-state"]
RISES = np.concatenate([np.linspace(-40, -8, 30), np.full(30, -8.0)])


def falling(seed, rounds=10):
    """Rises, falls for some rounds from round 31 + seed on, and is back."""
    values = RISES.copy()
    values[30 + seed : 30 + seed + rounds] = -30.0
    return values


STEADY = [RISES + 0.01 * seed for seed in range(5)]
FALLS = [falling(seed) for seed in range(5)]


def judged(group="letter", more=None, **curves):
    runs = tables.of_group("reacher-init-state", group, curves)
    return judge_stability(EXPERIMENT, runs | (more or {}))


def test_fedkl_is_stable_where_only_its_rivals_collapse():
    finding = judged(fedkl=STEADY, fedavg=FALLS, fedprox=FALLS, fmarl=STEADY)
    assert tables.verdicts(finding)["stable"] == HOLDS
    # Ten rounds of fifty are collapsed.
    assert "FedKL 0 %, FedAvg 20 %, FedProx 20 %, FMARL 0 %" in finding.verdicts[0].measured


@pytest.mark.parametrize(
    ("fedavg", "fedprox", "said"), [(STEADY, STEADY, FAILS), (FALLS, STEADY, IN_PART)]
)
def test_rivals_that_are_stable_too_refute_it(fedavg, fedprox, said):
    finding = judged(fedkl=STEADY, fedavg=fedavg, fedprox=fedprox)
    assert tables.verdicts(finding)["stable"] == said


def test_fedkl_that_collapses_is_not_stable_however_its_rivals_are():
    worse = [falling(seed, 25) for seed in range(5)]
    finding = judged(fedkl=FALLS, fedavg=worse, fedprox=worse)
    assert tables.verdicts(finding)["stable"] == FAILS
    assert "stable is at most 10%" in finding.verdicts[0].measured


def test_the_table_has_the_median_of_c1_of_who_has_one():
    coefficients = [{"c1": 10.0**t, "c2": 1.0} for t in range(60)]
    runs = tables.of_group("reacher-init-state", "letter", {"fedavg": STEADY[:1]})
    runs |= tables.of_group(
        "reacher-init-state", "letter", {"fedkl": STEADY[:1]}, coefficients=coefficients
    )
    finding = judge_stability(EXPERIMENT, runs)
    lines = [line for line in finding.text.splitlines() if line.startswith("| Fed")]
    assert [line.split(" | ")[-1] for line in lines] == ["5.5e+29 |", " |"]
    assert [row["c1"] for row in finding.rows] == [pytest.approx(5.5e29), None]


def test_one_seed_cannot_tell():
    finding = judged(fedkl=STEADY[:1], fedavg=FALLS[:1], fedprox=FALLS[:1])
    assert tables.verdicts(finding)["stable"] == OPEN


def test_a_smaller_step_that_is_calm_and_late_is_what_the_paper_says():
    late = [np.repeat(RISES[:30], 2) - 0.01 * seed for seed in range(3)]
    smaller = tables.of_group("reacher-init-state", "smaller", {"fedavg": late, "fedprox": late})
    finding = judged(more=smaller, fedkl=STEADY, fedavg=FALLS, fedprox=FALLS)
    assert tables.verdicts(finding)["slow"] == HOLDS
    falls = [values - np.where(np.arange(60) % 5 == 0, 50.0, 0.0) for values in late]
    unstable = tables.of_group("reacher-init-state", "smaller", {"fedavg": falls, "fedprox": falls})
    finding = judged(more=unstable, fedkl=STEADY, fedavg=FALLS, fedprox=FALLS)
    assert tables.verdicts(finding)["slow"] != HOLDS
    assert "stable is at most 10%" in finding.verdicts[1].measured
    calm = tables.of_group("reacher-init-state", "smaller", {"fedavg": STEADY, "fedprox": STEADY})
    finding = judged(more=calm, fedkl=STEADY, fedavg=FALLS, fedprox=FALLS)
    assert tables.verdicts(finding)["slow"] == IN_PART


def test_a_distance_that_grows_before_a_loss_precedes_it_and_one_that_does_not_does_not():
    rng = np.random.default_rng(0)
    returns = -20 + rng.normal(size=60)
    drops = -np.diff(returns, prepend=returns[0])
    for sign, said in ((1, HOLDS), (-1, FAILS)):
        runs = tables.of_group(
            "reacher-init-state", "letter", {"fedavg": [returns]}, distance_global=3 + sign * drops
        )
        assert tables.verdicts(judge_stability(EXPERIMENT, runs))["precedes"] == said


def test_what_has_not_been_run_cannot_be_told_and_is_not_drawn():
    finding = judged(fedavg=STEADY)
    verdicts = tables.verdicts(finding)
    assert (verdicts["stable"], verdicts["slow"]) == (OPEN, OPEN)
    assert [axes.get_title(loc="left") for axes in finding.draw().axes] == ["as the paper says"]


def test_the_figure_has_a_panel_for_each_group_and_says_what_left_it():
    deep = [np.where(np.arange(60) == 50, -250.0, RISES) for _ in range(3)]
    guarded = tables.of_group("reacher-init-state", "guarded", {"fedkl": STEADY[:3]})
    figure = judged(more=guarded, fedkl=deep, fedavg=STEADY).draw()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["as the paper says (lowest: -250)", "with our guard"]
    assert figure.axes[0].get_ylim()[0] > -50


def test_a_run_that_is_no_longer_finite_counts_as_its_lowest_to_the_end_of_the_experiment():
    values = [*RISES[:30], -500.0, -30.0, None, None]
    lost = [0] * 32 + [60] * 2
    failed = [[]] * 32 + [[{"client": 0, "reason": "it is not finite"}]] * 2
    runs = tables.of_group(
        "reacher-init-state",
        "letter",
        {"fedkl": [values]},
        unevaluated=[[{}] * n for n in lost],
        rejected=failed,
    )
    (row,) = judge_stability(EXPERIMENT, runs).rows
    assert (row["rounds"], row["final_return"]) == (200, -500.0)
    # Rounds 31 to 200, of which one is back for a moment, and still lacks more than a quarter.
    assert row["rounds_collapsed"] == pytest.approx(170 / 190)


def test_a_run_that_gave_up_stays_where_it_was():
    short = tables.of_group("reacher-init-state", "letter", {"fedavg": [RISES, RISES[:20]]})
    (row,) = judge_stability(EXPERIMENT, short).rows
    assert row["rounds"] == 60
    assert row["final_return"] == pytest.approx((-8 + RISES[19]) / 2, rel=1e-4)


def test_references_are_drawn_in_grey_dashes_and_have_a_row():
    runs = tables.of_group(
        "reacher-init-state",
        "guarded",
        {"fedkl": STEADY[:3], "alone": FALLS[:3], "centralised": STEADY[:3]},
    )
    finding = judge_stability(EXPERIMENT, runs)
    assert [row["algorithm"] for row in finding.rows] == ["fedkl", "alone", "centralised"]
    lines = {line.get_label(): line for line in finding.draw().axes[0].lines}
    assert lines["each alone"].get_linestyle() == "--"
    assert lines["centralised"].get_linestyle() != "-"
