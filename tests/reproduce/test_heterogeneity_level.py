"""G while training: means over clients and seeds of logs that are worked out by hand."""

import pytest

from fedkl.config import preset
from fedkl.errors import UserError
from fedkl.reproduce.heterogeneity_level import CASES, judge

LABELS = {name: case.label for name, case in CASES.items()}


def log_of(levels):
    """A record for each round: (||DA||, ||DB||) of each client."""
    return [
        {
            "round": t,
            "return_mean": None,
            "heterogeneity": [
                {
                    "client": c,
                    "advantage": da,
                    "heterogeneity": db,
                    "learning_potential": da - db,
                    "alignment": da,
                }
                for c, (da, db) in enumerate(clients)
            ],
        }
        for t, clients in enumerate(levels, start=1)
    ]


@pytest.fixture
def finding():
    falls = log_of([[(8.0, 2.0), (6.0, 2.0)], [(2.0, 1.0), (2.0, 3.0)]])
    grows = log_of([[(1.0, 0.0), (1.0, 0.0)], [(2.0, 0.0), (2.0, 0.0)]])
    logs = {case: {10: falls, 11: falls} for case in CASES}
    return judge(logs | {"iid": {10: grows, 11: grows}}, LABELS)


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
    assert "G with noise 0.4 minus G with 0.2: 0 [0, 0] at first, 0 [0, 0] at last." in lines


def test_rounds_in_which_nothing_was_measured_are_left_out():
    log = log_of([[(2.0, 1.0)], [(2.0, 1.0)]])
    log[0]["heterogeneity"] = None
    rows = judge({case: {0: log} for case in CASES}, LABELS).rows
    assert [row["round"] for row in rows] == [2] * 4


def test_curves_have_the_rounds_that_were_measured_in_all_seeds_and_are_drawn_there():
    full = log_of([[(2.0 * t, float(t))] for t in range(1, 12)])
    every_fifth = [r if r["round"] in (1, 6, 11) else r | {"heterogeneity": None} for r in full]
    lacking = [r if r["round"] != 6 else r | {"heterogeneity": None} for r in every_fifth]
    logs = {case: {10: every_fifth, 11: every_fifth} for case in CASES}
    finding = judge(logs | {"iid": {10: every_fifth, 11: lacking}}, LABELS)
    above = finding.draw().axes[0]
    drawn = {line.get_label(): line.get_xydata().tolist() for line in above.lines}
    assert drawn["action noise 0.4"] == [[1, 1], [6, 6], [11, 11]]
    assert drawn["all alike"] == [[1, 1], [11, 11]]


def test_a_case_of_which_nothing_was_measured_is_named():
    log = log_of([[(2.0, 1.0)]])
    never = [record | {"heterogeneity": None} for record in log]
    logs = {case: {10: log, 11: log} for case in CASES}
    for lacking in ({10: never, 11: never}, {10: log, 11: never}):
        with pytest.raises(UserError, match=r"^no round of noise-0\.2 was measured in every seed$"):
            judge(logs | {"noise-0.2": lacking}, LABELS)


def test_the_figure_has_a_line_for_each_case_in_both_panels(finding):
    above, below = finding.draw().axes
    for axes in (above, below):
        assert [line.get_label() for line in axes.lines if line.get_label()[0] != "_"] == [
            *LABELS.values()
        ]


@pytest.mark.parametrize(("case", "spread"), [("noise-0.2", 0.2), ("noise-0.4", 0.4)])
def test_the_two_levels_of_noise_are_offsets_of_these_deviations(case, spread):
    one = CASES[case]
    offsets = preset(one.preset, seed=10, set=dict(one.settings)).clients()["action_offset"]
    assert offsets.shape == (60, 2)
    assert offsets.std() == pytest.approx(spread, rel=0.2)
