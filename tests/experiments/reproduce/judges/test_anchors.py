"""What weighted anchors cost where clients are alike, and win back where they differ."""

import pytest
import tables

from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, IN_PART, OPEN
from fedkl.experiments.reproduce.judges.anchors import judge_anchors
from fedkl.experiments.reproduce.plan import ReproductionPlan

ROUNDS = 40


def to(end, seed=0):
    """A curve that rises from -40 to its end in four rounds; seeds differ by a hundredth."""
    start = [-40.0, -30.0, -20.0, -10.0]
    return start + [end + 0.01 * seed] * (ROUNDS - len(start))


def judged(alike=-4.0, init=-4.5, dynamics=-6.0, both=-6.0, worst=-8.0):
    """FedAvg comes to -4 where clients are alike, and to -8 where they are not."""

    def group(name, ends, low=0.0):
        curves = {a: [to(end, seed) for seed in range(3)] for a, end in ends.items()}
        of = "price" if name in ("alike", "different") else "anchors"
        return tables.of_group(of, name, curves, return_min=[low] * ROUNDS)

    runs = group("alike", {"fedavg": -4.0}) | group("different", {"fedavg": -8.0})
    runs |= group("alike-weighted", {"fedkl-anchored": alike})
    runs |= group("init-state-weighted", {"fedkl-anchored": init}, worst)
    for name, end in (("dynamics", dynamics), ("both", both)):
        runs |= group(name, {"fedavg": -14.0, "fedkl": -14.0})
        runs |= group(f"{name}-personal", {"fedavg": -9.0})
        runs |= group(f"{name}-weighted", {"fedkl-anchored": end})
    return judge_anchors(EXPERIMENTS["anchors"], runs)


def test_all_claims_hold_where_their_numbers_are_met():
    """Shares: (8 - 4.5) / 4 = 0.875 and (14 - 6) / 10 = 0.8; FedAvg with the bias has 0.5."""
    finding = judged()
    assert tables.verdicts(finding) == dict.fromkeys(
        ("alike", "init-state", "dynamics", "both"), HOLDS
    )
    shares = {(row["clients"], row["algorithm"]): row["won_back"] for row in finding.rows}
    assert shares["init-state", "weighted anchors"] == pytest.approx(0.875, abs=1e-3)
    assert shares["both", "weighted anchors, personal bias"] == pytest.approx(0.8, abs=1e-3)
    assert shares["both", "FedAvg, personal bias"] == pytest.approx(0.5, abs=1e-3)
    assert shares["alike", "weighted anchors"] is None
    figure = finding.draw()
    assert len(figure.axes) == 4


def test_a_cost_of_a_fifth_where_clients_are_alike_is_too_much():
    assert tables.verdicts(judged(alike=-4.2))["alike"] == FAILS
    assert tables.verdicts(judged(alike=-4.1))["alike"] == HOLDS


def test_each_part_of_a_claim_counts():
    assert tables.verdicts(judged(init=-5.0))["init-state"] == IN_PART
    assert tables.verdicts(judged(worst=-12.0))["init-state"] == IN_PART
    assert tables.verdicts(judged(dynamics=-8.0))["dynamics"] == FAILS


def test_without_runs_nothing_can_be_told():
    alike = tables.of_group("price", "alike", {"fedavg": [to(-4.0)]})
    finding = judge_anchors(EXPERIMENTS["anchors"], alike)
    assert {*tables.verdicts(finding).values()} == {OPEN}


def test_the_runs_of_each_case_can_be_made():
    plan = ReproductionPlan("anchors")
    for case in EXPERIMENTS["anchors"].cases:
        config = plan.configure(case, 10)
        weighted = getattr(config.algorithm, "weighted", False)
        assert weighted == case.group.endswith("-weighted")
        assert not weighted or config.learner.d_local == 0.04
        personal = case.group in {
            f"{kind}-{how}" for kind in ("dynamics", "both") for how in ("personal", "weighted")
        }
        assert (config.federation.personal == "action-bias") == personal
        assert (case.rounds, case.seeds) == (40, (10, 11, 12, 13, 14))
