"""d_global from what is measured without the global penalty, worked out by hand."""

import json

import pytest

from fedkl import UserError
from fedkl.config import config
from fedkl.experiments import d_global
from fedkl.experiments.workers import Trainer

PLAN = d_global.DGlobalPlan(
    "probe-point", seeds=(7, 8), rounds=3, distance="kl", d_local=0.05,
    d_global_factor=1.1, d_local_factor=1.5,
)  # fmt: skip

SILENTLY = Trainer(lambda line: None, lambda: None)


def configure(seed):
    return config.preset("probe-point", "fedavg", seed, {"algorithm.distance": "kl"})


def test_a_plan_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "measured"
    assert not d_global.DGlobalPlan.is_in(path)
    d_global.create(path, PLAN, configure)
    assert d_global.DGlobalPlan.is_in(path)
    assert d_global.DGlobalPlan.read(path) == PLAN
    assert [run.name for run in PLAN.run_paths(path)] == ["fedavg-seed7", "fedavg-seed8"]
    with pytest.raises(UserError, match="holds a measurement of d_global already"):
        d_global.create(path, PLAN, configure)


def went(*distances):
    """What a round's clients report."""
    return [{"distance_global": distance} for distance in distances]


def test_d_global_is_slightly_larger_than_the_mean_distance(tmp_path, made_up):
    """The mean of 1, 2, 3, 11, 13 (in a round nobody moved, and in each one client) is 6: 6.6 and
    0.075."""
    path = tmp_path / "measured"
    d_global.create(path, PLAN, configure)

    def record(name, round):
        none = name == "fedavg-seed8" and round == 2
        return {"clients": went(0.0, 0.0 if none else round + 10 * name.endswith("8"))}

    made_up(record, 3)
    measured = d_global.run_remaining(path, PLAN, SILENTLY)
    assert (measured.distance, measured.rounds) == (6.0, 5)
    assert measured.settings == {"algorithm.d_global": 6.6, "learner.d_local": 0.075}
    written = json.loads((path / "tuning.json").read_text())
    assert (written["distance_mean"], written["distance_rounds"]) == (6.0, 5)
    assert written["env_steps"] == 600
    assert written["chosen"] == measured.settings


@pytest.mark.parametrize("distances", [(), (0.0, 0.0)])
def test_where_nothing_moved_there_is_no_d_global(tmp_path, made_up, distances):
    path = tmp_path / "measured"
    d_global.create(path, PLAN, configure)
    made_up(lambda name, round: {"clients": went(*distances)}, 3)
    with pytest.raises(UserError, match="no local policy moved away"):
        d_global.run_remaining(path, PLAN, SILENTLY)


@pytest.mark.parametrize(
    ("value", "expected"), [(0.123456, 0.123), (1234.5, 1230.0), (6.6e-5, 6.6e-5), (0.9996, 1.0)]
)
def test_rounding_leaves_three_digits(value, expected):
    assert d_global.rounded(value) == expected
