"""Whether rounds gain less where G < 0: on tables whose answer is known."""

import numpy as np
import pytest
import tables

from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import HOLDS, OPEN
from fedkl.experiments.reproduce.judges.negative_potential import gap, judge_negative_potential
from fedkl.experiments.reproduce.statistics import stages


def client(number, g, alignment):
    return {
        "client": number,
        "advantage": 1.0,
        "heterogeneity": 1.0,
        "learning_potential": g,
        "alignment": alignment,
    }


def log_of(gains, marks, aligned):
    """Two clients of three are selected; the third, whose G is very low, is not."""
    measured = [
        [client(0, -1.0 if mark else 2.0, a), client(1, 3.0, a), client(2, -9.0, -9.0)]
        for mark, a in zip(marks, aligned, strict=True)
    ]
    selected = [[0, 1]] * len(measured)
    return tables.table(-100.0 + np.cumsum(gains), heterogeneity=measured, selected=selected)


def judged(*logs):
    runs = {"noise-0.4-fedkl": {10 + i: log for i, log in enumerate(logs)}}
    return judge_negative_potential(EXPERIMENTS["negative-potential"], runs)


def test_a_round_is_marked_by_the_least_g_of_those_selected():
    log = log_of([0, 1, 2], [False, True, False], [1.0, 1.0, 1.0])
    rows = judged(log).rows
    assert [row["selected_learning_potential_least"] for row in rows] == [2.0, -1.0, 2.0]
    assert [row["selected_learning_potential_mean"] for row in rows] == [2.5, 1.0, 2.5]
    assert [row["selected_learning_potential_sum"] for row in rows] == [5.0, 2.0, 5.0]
    assert [row["gain"] for row in rows] == [None, 1.0, 2.0]


def test_the_gap_is_found_within_stages_although_marks_come_late():
    stage = stages([0] * 40, range(2, 42), first=2)
    assert np.unique(stage, return_counts=True)[1].tolist() == [10] * 4
    marked = (np.arange(40) % 10 < stage * 2).astype(float)
    # Later stages gain less, for everybody; a mark costs 0.5.
    gain = 10.0 - 3 * stage - 0.5 * marked
    assert gap(gain, marked, stage) == pytest.approx(-0.5)
    assert gain[marked == 1].mean() - gain[marked == 0].mean() < -2


def test_a_gap_is_unknown_where_all_rounds_of_a_stage_are_alike():
    assert np.isnan(gap(np.ones(4), np.array([1.0, 1, 0, 0]), np.array([0, 0, 1, 1])))


def test_a_perfect_predictor_correlates_with_the_gain_and_an_idle_one_does_not():
    rng = np.random.default_rng(0)
    gains = rng.normal(size=61)
    text = judged(log_of(gains, gains < -1, gains), log_of(gains, gains < -1, gains)).text
    g, alignment = (line for line in text.splitlines() if " < 0 for a selected" in line)
    assert alignment.endswith("| 1 [1, 1] |")
    low, high = g.rsplit("[", 1)[1].rstrip("] |").split(", ")
    assert 0 < float(low) < float(high) < 1  # only the sign of G follows the gain


def test_marked_rounds_that_gain_less_than_others_of_their_stage_slow_training():
    marks = np.arange(1, 42) % 2 == 0
    finding = judged(log_of(np.where(marks, 1.0, 2.0), marks, np.ones(41)))
    assert tables.verdicts(finding) == {"slows": HOLDS}
    assert finding.verdicts[0].measured == (
        "marked rounds gain 1, the others 2; within 10 rounds of a seed the difference is -1 "
        "[-1, -1]."
    )


def test_the_text_has_gains_after_the_first_stage_and_a_mark_by_the_sum():
    """Rounds 2 to 11 gain 5, later ones 1, of which every other has a client with G < 0 and one
    with an alignment < 0 that costs it 2. The sum of G is never below 0."""
    late = np.arange(1, 22) > 11
    marks = np.arange(1, 22) % 2 == 0
    aligned = np.where(late & marks, -1.0, 1.0)
    gains = np.where(late, 1.0, 5.0) - 2.0 * (aligned < 0)
    lines = judged(log_of(gains, marks, aligned)).text.splitlines()
    least, total, aligned_line = lines[-3:]
    assert "| 10 of 20 |" in least
    assert "| -1 and 1 |" in least
    assert total.startswith("| sum of the selected clients' G < 0 | 0 of 20 | - |")
    # By the alignment -2 in the second stage, and in the first nothing is marked.
    assert "| -2 [-2, -2] |" in aligned_line


def test_rounds_without_evaluation_or_measurement_are_left_out():
    log = log_of([0, 1, 2, 3], [False] * 4, [1.0] * 4)
    log[2]["return_mean"] = None
    log[1]["selected_alignment_mean"] = None
    finding = judged(log)
    assert [row["gain"] for row in finding.rows] == [None, 1.0, None, None]
    assert finding.text.endswith("Too few rounds to compare.\n")
    assert tables.verdicts(finding) == {"slows": OPEN}


def test_the_figure_has_a_curve_for_each_seed_and_a_line_for_each_marked_round():
    logs = [log_of(np.ones(12), np.arange(12) % 4 == 0, np.ones(12)) for _ in range(3)]
    figure = judged(*logs).draw()
    curves, scatters = (part.get_axes() for part in figure.subfigs)
    assert len(curves) == 3
    assert len(scatters) == 2
    # Three marked rounds, and the curve.
    assert [len(axes.lines) for axes in curves] == [4, 4, 4]
