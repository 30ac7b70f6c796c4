"""Speed and divergence on the figure-eight: tables whose answer is known."""

import numpy as np
import tables

from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, IN_PART, OPEN
from fedkl.experiments.reproduce.judges.figure_eight import (
    judge_communication,
    judge_same_step,
    judge_speed,
)


def curve(reach, seed, rounds=150, fall=0):
    """Rises to 400, has 350 in round `reach`, and falls to 200 in the last `fall` rounds."""
    values = np.minimum(350 * np.arange(1, rounds + 1) / (reach + seed), 400.0)
    if fall:
        values[-fall:] = 200.0
    return values


def three(reach, **options):
    return [curve(reach, seed, **options) for seed in range(3)]


def speed(distance=None, **curves):
    runs = {}
    for algorithm, some in curves.items():
        far = [(distance or {}).get(algorithm, 0.1)] * 150
        runs |= tables.of_group("figure-eight", "mixed", {algorithm: some}, distance_global=far)
    return runs


def test_fedkl_is_faster_if_it_has_350_before_all_others():
    runs = speed(fedkl=three(50), fedavg=three(110), fedprox=three(110), fmarl=three(120))
    finding = judge_speed(EXPERIMENTS["figure-eight"], runs)
    assert tables.verdicts(finding)["faster"] == HOLDS
    assert "FedAvg 60 [" in finding.verdicts[0].measured
    runs = speed(fedkl=three(50), fedavg=three(110), fedprox=three(20))
    assert tables.verdicts(judge_speed(EXPERIMENTS["figure-eight"], runs))["faster"] == IN_PART
    runs = speed(fedkl=three(110), fedavg=three(50), fedprox=three(20))
    assert tables.verdicts(judge_speed(EXPERIMENTS["figure-eight"], runs))["faster"] == FAILS


def test_a_larger_step_is_a_larger_distance_in_the_first_third():
    far = {"fedkl": 0.3, "fedavg": 0.1}
    runs = speed(far, fedkl=three(50), fedavg=three(110))
    assert tables.verdicts(judge_speed(EXPERIMENTS["figure-eight"], runs))["step"] == HOLDS


def test_rounds_to_350_count_runs_that_never_get_there_as_long_as_they_were_watched():
    never = [np.full(150, 100.0) + seed for seed in range(3)]
    runs = speed(fedkl=three(50), fedavg=never)
    finding = judge_communication(EXPERIMENTS["communication"], runs)
    assert tables.verdicts(finding)["rounds"] == HOLDS
    lines = finding.text.splitlines()
    # 20 bytes a round, up and down together.
    assert lines[2:] == ["| FedKL | 3 of 3 | 51 | 0.00102 |", "| FedAvg | 0 of 3 | never | - |"]
    by_hand = [row["rounds"] for row in finding.rows if row["algorithm"] == "fedkl"]
    assert by_hand == [50, 51, 52]


def same_step(**curves):
    runs = speed(fedkl=curves.pop("fedkl"))
    return runs | tables.of_group("figure-eight-same-step", "same-mixed", curves)


def test_divergence_after_the_maximum_is_what_is_lost_again_at_the_end():
    falls = three(50, fall=40)
    later = three(50, fall=20)
    runs = same_step(fedkl=three(50), fedavg=falls, fedprox=later, fmarl=falls)
    finding = judge_same_step(EXPERIMENTS["figure-eight-same-step"], runs)
    assert tables.verdicts(finding)["diverge"] == HOLDS
    assert tables.verdicts(finding)["space"] == HOLDS
    assert [row["algorithm"] for row in finding.rows] == ["fedkl", "fedavg", "fedprox", "fmarl"]
    stays = same_step(fedkl=three(50), fedavg=three(50), fedprox=three(50))
    finding = judge_same_step(EXPERIMENTS["figure-eight-same-step"], stays)
    assert tables.verdicts(finding)["diverge"] == FAILS
    assert tables.verdicts(finding)["later"] == OPEN


def test_a_maximum_that_comes_later_delays_divergence():
    def peak(at):
        return [np.where(np.arange(150) < at + seed, np.arange(150.0), 50.0) for seed in range(3)]

    runs = same_step(fedkl=three(50), fedavg=peak(60), fedprox=peak(120))
    verdicts = tables.verdicts(judge_same_step(EXPERIMENTS["figure-eight-same-step"], runs))
    assert verdicts["later"] == HOLDS


def test_what_has_not_been_run_cannot_be_told():
    runs = speed(fedkl=three(50))
    for name, judge in (
        ("figure-eight", judge_speed),
        ("communication", judge_communication),
        ("figure-eight-same-step", judge_same_step),
    ):
        assert {*tables.verdicts(judge(EXPERIMENTS[name], runs)).values()} == {OPEN}
