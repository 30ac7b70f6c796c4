"""The map of step sizes, and the critic that stays on its client."""

import numpy as np
import tables

from fedkl.reproduce import EXPERIMENTS
from fedkl.reproduce.experiment import FAILS, HOLDS, OPEN
from fedkl.reproduce.judges.local_critic import judge_local_critic
from fedkl.reproduce.judges.step_sizes import judge_step_sizes

MAP, CRITIC = EXPERIMENTS["step-sizes"], EXPERIMENTS["local-critic"]


def to(end, seed=0):
    return np.linspace(-40, end + 0.01 * seed, 60)


def map_of(end):
    """Tables in which each case ends where a function of its grid says."""
    return {
        case.name: {10 + seed: tables.table(to(end(case.grid), seed)) for seed in range(2)}
        for case in MAP.cases
    }


def test_a_penalty_that_helps_at_the_largest_step_allows_a_larger_one():
    helps = map_of(lambda g: -8 if g["learner.d_local"] < 0.1 or "algorithm.d_global" in g else -35)
    finding = judge_step_sizes(MAP, helps)
    assert tables.verdicts(finding) == {"larger": HOLDS}
    lines = finding.text.splitlines()
    assert lines[2] == "| d_local | d_global none | d_global 0.15 | d_global 0.3 | d_global 0.6 |"
    # The mean of the last six of sixty rounds, of a line from -40 to -35 or -8.
    assert lines[-1].startswith("| 0.16 | -35.2 (0 %) | -9.35 (0 %)")
    harms = map_of(lambda g: -20 if "algorithm.d_global" in g else -8)
    assert tables.verdicts(judge_step_sizes(MAP, harms)) == {"larger": FAILS}


def test_the_map_is_drawn_with_no_penalty_first_and_without_cells_that_are_missing():
    runs = map_of(lambda g: -8)
    runs.pop(MAP.cases[-1].name)
    axes = judge_step_sizes(MAP, runs).draw().axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["no penalty", "0.15", "0.3", "0.6"]
    assert len(axes.texts) == 15


def critic_of(local_end, bytes_local):
    runs = {}
    for group, end, size in (("shared", -8, 100), ("local", local_end, bytes_local)):
        sizes = [size] * 60
        curves = {a: [to(end, seed) for seed in range(3)] for a in ("fedkl", "fedavg")}
        runs |= tables.of_group("local-critic", group, curves, bytes_up=sizes, bytes_down=sizes)
    return judge_local_critic(CRITIC, runs)


def test_a_local_critic_saves_if_it_sends_less_and_ends_as_well():
    finding = critic_of(-8, 50)
    assert tables.verdicts(finding) == {"saves": HOLDS}
    assert "FedKL sends 50 % less, and its final return changes by 0 [" in (
        finding.verdicts[0].measured
    )
    assert tables.verdicts(critic_of(-20, 50)) == {"saves": FAILS}
    assert len(finding.draw().axes[0].lines) == 4


def test_without_the_runs_nothing_can_be_told():
    assert tables.verdicts(judge_local_critic(CRITIC, {})) == {"saves": OPEN}
