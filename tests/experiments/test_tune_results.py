"""What a tuning leaves behind."""

import json
import math
import tomllib

import pytest

from fedkl import UserError
from fedkl.config import config
from fedkl.experiments import tune
from fedkl.experiments.tune import Rung, TuningPlan
from fedkl.training.metrics import MetricsLog

PLAN = TuningPlan(
    "probe-point", "fedprox", seeds=(7, 8), rungs=(2, 4),
    candidates=({"algorithm.mu": 0.1, "learner.hidden": [4]}, {"algorithm.mu": 0.2}),
)  # fmt: skip


@pytest.fixture
def logs(tmp_path):
    """Candidate 0 was dropped after 2 rounds; seed 8 of candidate 1 stalled after 3."""
    for name, rounds in (("0-seed7", 2), ("0-seed8", 2), ("1-seed7", 4), ("1-seed8", 3)):
        (tmp_path / name).mkdir()
        log = MetricsLog(tmp_path / name / "metrics.jsonl")
        for round in range(1, rounds + 1):
            log.append({"round": round, "env_steps": 10 * round})
    return tmp_path


def test_everything_that_was_tried_is_written_down(logs):
    rungs = [Rung(2, {0: (1.0, 2.0), 1: (3.0, 5.0)}), Rung(4, {1: (6.0, 7.0)})]
    everything = tune.tried(logs, PLAN, rungs)
    winner = tune.write_tried(logs, PLAN, rungs, everything)
    assert winner is everything[1]
    written = json.loads((logs / "tuning.json").read_text())
    assert (written["best"], written["seeds"], written["rungs"]) == (1, [7, 8], [2, 4])
    assert written["env_steps"] == 20 + 20 + 40 + 30
    assert written["candidates"] == [
        {
            "number": 0,
            "settings": {"algorithm.mu": 0.1, "learner.hidden": [4]},
            "rungs": [{"round": 2, "score": 1.5, "score_per_seed": [1.0, 2.0]}],
            "dropped": True,
            "rounds_per_seed": [2, 2],
            "env_steps_per_seed": [20, 20],
        },
        {
            "number": 1,
            "settings": {"algorithm.mu": 0.2},
            "rungs": [
                {"round": 2, "score": 4.0, "score_per_seed": [3.0, 5.0]},
                {"round": 4, "score": 6.5, "score_per_seed": [6.0, 7.0]},
            ],
            "dropped": False,
            "rounds_per_seed": [4, 3],
            "env_steps_per_seed": [40, 30],
        },
    ]


def test_where_no_return_is_finite_there_is_no_winner(logs):
    rungs = [Rung(2, {0: (1.0, 2.0), 1: (3.0, 5.0)}), Rung(4, {1: (6.0, -math.inf)})]
    everything = tune.tried(logs, PLAN, rungs)
    with pytest.raises(UserError, match=r"finite to the end; see .*tuning\.json"):
        tune.write_tried(logs, PLAN, rungs, everything)
    written = json.loads((logs / "tuning.json").read_text())
    assert written["best"] is None
    assert written["candidates"][1]["rungs"][1] == {
        "round": 4, "score": None, "score_per_seed": [6.0, None],
    }  # fmt: skip


def test_the_winner_becomes_a_config_file(tmp_path):
    file = tune.write_best(tmp_path, PLAN, "fedprox", PLAN.candidates[0])
    assert tomllib.loads(file.read_text()) == {
        "extends": ["probe-point"],
        "tuned_on": [7, 8],
        "per_algorithm": {"fedprox": {"algorithm": {"mu": 0.1}, "learner": {"hidden": [4]}}},
    }
    tuned, other = (config.preset(str(file), name) for name in ("fedprox", "fedkl"))
    assert (tuned.algorithm.mu, tuned.learner.hidden) == (0.1, (4,))
    assert other.learner.hidden == (8,)
    assert tuned.tuned_on == other.tuned_on == (7, 8)


def test_the_winner_of_a_plugin_brings_the_plugin(tmp_path):
    plugin = tmp_path / "nothing.py"
    plugin.write_text("")
    plan = TuningPlan("probe-point", "fedkl", (str(plugin),), seeds=(7,))
    file = tune.write_best(tmp_path, plan, "fedkl", {"learner.d_local": 0.2})
    assert config.preset(str(file)).plugins == (str(plugin),)
