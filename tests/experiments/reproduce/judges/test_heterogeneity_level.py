"""G while training: means over clients and seeds of tables that are worked out by hand."""

import pytest
import tables

from fedkl.core.errors import UserError
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, IN_PART
from fedkl.experiments.reproduce.judges.heterogeneity_level import judge_heterogeneity_level

EXPERIMENT = EXPERIMENTS["heterogeneity-level"]
GROUPS = ("iid", "init-state", "noise-0.2", "noise-0.4")


def log_of(levels):
    """A table: in each round (||DA||, ||DB||) of each client; None: nothing was measured."""
    measured = [
        clients
        and [
            {
                "client": c,
                "advantage": da,
                "heterogeneity": db,
                "learning_potential": da - db,
                "alignment": da,
            }
            for c, (da, db) in enumerate(clients)
        ]
        for clients in levels
    ]
    return tables.table([None] * len(levels), heterogeneity=measured)


def judge(logs):
    return judge_heterogeneity_level(
        EXPERIMENT, {f"{group}-fedkl": by_seed for group, by_seed in logs.items()}
    )


@pytest.fixture
def finding():
    falls = log_of([[(8.0, 2.0), (6.0, 2.0)], [(2.0, 1.0), (2.0, 3.0)]])
    grows = log_of([[(1.0, 0.0), (1.0, 0.0)], [(2.0, 0.0), (2.0, 0.0)]])
    logs = {case: {10: falls, 11: falls} for case in GROUPS}
    return judge(logs | {"iid": {10: grows, 11: grows}})


def test_rows_are_means_over_clients(finding):
    rows = [row for row in finding.rows if row["case"] == "noise-0.4" and row["seed"] == 11]
    assert [row["learning_potential"] for row in rows] == [5.0, 0.0]
    assert [row["share_below_0"] for row in rows] == [0.0, 0.5]


def test_the_text_says_where_g_falls(finding):
    lines = {line.split(" | ")[0].strip("| "): line for line in finding.text.splitlines()}
    assert "| 5 [5, 5] | 0 [0, 0] | 2 of 2 |" in lines["action noise 0.4"]
    assert "| 1 [1, 1] | 2 [2, 2] | 0 of 2 | 0 [0, 0] | 0 [0, 0] | 0 % |" in lines["all alike"]
    # ||DB|| over ||DA||: 2 / 7 at first, 2 / 2 at last.
    assert "| 0.286 [0.286, 0.286] | 1 [1, 1] | 25 % |" in lines["action noise 0.4"]
    assert "At first and at last: 1 measured round each." in finding.text
    # It falls but where all are alike; and both levels of noise have the same G.
    assert tables.verdicts(finding) == {"falls": IN_PART, "noise": FAILS}


def test_more_noise_with_less_g_is_what_the_paper_says():
    low = log_of([[(8.0, 2.0)], [(4.0, 1.0)]])
    high = log_of([[(8.0, 5.0)], [(4.0, 3.0)]])
    logs = {"noise-0.2": {10: low, 11: low}, "noise-0.4": {10: high, 11: high}}
    assert tables.verdicts(judge(logs)) == {"falls": HOLDS, "noise": HOLDS}


def test_rounds_in_which_nothing_was_measured_are_left_out():
    log = log_of([None, [(2.0, 1.0)]])
    rows = judge({case: {10: log} for case in GROUPS}).rows
    assert [row["round"] for row in rows] == [2] * 4


def test_curves_have_the_rounds_that_were_measured_in_all_seeds_and_are_drawn_there():
    levels = [[(2.0 * t, float(t))] if t in (1, 6, 11) else None for t in range(1, 12)]
    every_fifth = log_of(levels)
    lacking = log_of([None if t == 6 else one for t, one in enumerate(levels, 1)])
    logs = {case: {10: every_fifth, 11: every_fifth} for case in GROUPS}
    finding = judge(logs | {"iid": {10: every_fifth, 11: lacking}})
    above = finding.draw().axes[0]
    drawn = {line.get_label(): line.get_xydata().tolist() for line in above.lines}
    assert drawn["action noise 0.4"] == [[1, 1], [6, 6], [11, 11]]
    assert drawn["all alike"] == [[1, 1], [11, 11]]


def test_a_case_of_which_nothing_was_measured_is_named():
    log, never = log_of([[(2.0, 1.0)]]), log_of([None])
    logs = {case: {10: log, 11: log} for case in GROUPS}
    for lacking in ({10: never, 11: never}, {10: log, 11: never}):
        with pytest.raises(UserError, match=r"^no round of noise-0\.2-fedkl was measured in every"):
            judge(logs | {"noise-0.2": lacking})


def test_the_papers_learner_and_ours_have_panels_and_tables_of_their_own():
    log = log_of([[(2.0, 1.0)], [(1.0, 0.5)]])
    logs = {case: {10: log, 11: log} for case in (*GROUPS, *(f"ours-{g}" for g in GROUPS))}
    finding = judge(logs)
    assert "clients (the paper's learner)" in finding.text
    assert "clients (our learner)" in finding.text
    assert len(finding.draw().axes) == 4


def test_the_figure_has_a_line_for_each_case_in_both_panels(finding):
    above, below = finding.draw().axes
    for axes in (above, below):
        assert [line.get_label() for line in axes.lines if line.get_label()[0] != "_"] == [
            "all alike",
            "60 squares of targets",
            "action noise 0.2",
            "action noise 0.4",
        ]
