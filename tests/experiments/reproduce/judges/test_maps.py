"""The map of step sizes, what saves bytes, and what is won back of the price."""

import numpy as np
import tables

from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, OPEN
from fedkl.experiments.reproduce.judges.price import judge_price
from fedkl.experiments.reproduce.judges.saving import judge_saving
from fedkl.experiments.reproduce.judges.step_sizes import judge_step_sizes

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
    return judge_saving(CRITIC, runs)


def test_a_local_critic_saves_if_it_sends_less_and_ends_as_well():
    finding = critic_of(-8, 50)
    assert tables.verdicts(finding) == {"saves": HOLDS}
    assert finding.verdicts[0].measured.startswith(
        "FedKL, critic local: 50 % fewer bytes, and the final return changes by 0 ["
    )
    assert tables.verdicts(critic_of(-20, 50)) == {"saves": FAILS}
    assert len(finding.draw().axes[0].lines) == 4


def test_each_preset_is_compared_with_its_own_first_group():
    runs = {}
    for group, end, size in (
        ("shared", -8, 100),
        ("local", -8, 50),
        ("figure-eight-shared", 300, 1000),
        ("figure-eight-local", 300, 100),
    ):
        curves = {"fedkl": [to(end, seed) for seed in range(3)]}
        sizes = [size] * 60
        runs |= tables.of_group("local-critic", group, curves, bytes_up=sizes, bytes_down=sizes)
    finding = judge_saving(CRITIC, runs)
    said = finding.verdicts[0].measured
    assert "FedKL, critic local: 50 % fewer bytes" in said
    assert "FedKL, figure-eight, critic local: 90 % fewer bytes" in said
    assert len(said.split(";")) == 2
    assert [len(axes.lines) for axes in finding.draw().axes] == [2, 2]


def test_without_the_runs_nothing_can_be_told():
    assert tables.verdicts(judge_saving(CRITIC, {})) == {"saves": OPEN}


def test_with_regions_only_what_they_send_goes_through_the_global_server():
    hierarchical = EXPERIMENTS["hierarchical"]
    curves = {"fedkl": [to(-8, seed) for seed in range(3)]}
    flat = tables.of_group("hierarchical", "flat", curves)
    regions = [20 if t % 5 == 4 else 0 for t in range(60)]
    grouped = tables.of_group(
        "hierarchical", "regions-5", curves, bytes_up_regions=regions, bytes_down_regions=regions
    )
    finding = judge_saving(hierarchical, flat | grouped)
    # 20 bytes in each of 60 rounds, against 40 in every fifth.
    assert [row["bytes"] for row in finding.rows] == [1200.0, 480.0]
    assert "60 % fewer bytes" in finding.verdicts[0].measured


def priced(anchored):
    alike = tables.of_group("price", "alike", {"fedavg": [to(-4, seed) for seed in range(3)]})
    ends = {"fedavg": -8, "fedkl": -8, "fedkl-anchored": anchored}
    curves = {a: [to(end, seed) for seed in range(3)] for a, end in ends.items()}
    return judge_price(EXPERIMENTS["price"], alike | tables.of_group("price", "different", curves))


def test_the_price_is_what_differing_clients_cost_and_a_share_of_it_is_won_back():
    finding = priced(-5)
    assert tables.verdicts(finding) == {"price": HOLDS}
    share = {row["algorithm"]: row["won_back"] for row in finding.rows if row["clients"] != "alike"}
    assert share["fedavg"] is None
    assert abs(share["fedkl"]) < 1e-9
    assert abs(share["fedkl-anchored"] - 0.75) < 1e-3
    assert tables.verdicts(priced(-7)) == {"price": FAILS}
    assert len(finding.draw().axes) == 2


def test_without_the_alike_clients_the_price_is_unknown():
    curves = {"fedkl-anchored": [to(-5)]}
    finding = judge_price(EXPERIMENTS["price"], tables.of_group("price", "different", curves))
    assert tables.verdicts(finding) == {"price": OPEN}
