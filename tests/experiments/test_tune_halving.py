"""Who goes on, worked out by hand."""

import math

import pytest

from fedkl import UserError
from fedkl.config import config
from fedkl.experiments import tune
from fedkl.experiments.tune import Rung, TuningPlan, best, score
from fedkl.experiments.workers import Trainer

PLAN = TuningPlan("probe-point", "fedkl", seeds=(7, 8), rungs=(2, 4, 8))
SILENTLY = Trainer(lambda line: None, lambda: None)


def records(returns):
    return [{"round": i, "return_mean": value} for i, value in enumerate(returns, start=1)]


@pytest.mark.parametrize(
    ("returns", "until", "expected"),
    [
        ([1.0, 2.0, 3.0, 5.0], 4, 10 / 3),
        ([1.0, 2.0, 3.0, 5.0], 3, 2.0),
        ([1.0, 2.0, 3.0, 5.0], 2, 1.5),
        ([1.0], 4, 1.0),  # stalled
        ([1.0, None, 3.0, 5.0], 4, -math.inf),
        ([None, 2.0, 3.0, 4.0], 4, 3.0),
        ([], 4, -math.inf),
    ],
)
def test_a_score_is_the_mean_of_the_last_three_evaluations(returns, until, expected):
    assert score(records(returns), until, PLAN) == pytest.approx(expected)


def test_rounds_that_were_not_evaluated_do_not_count():
    """Evaluated after rounds 3, 6 and 8, the last of all."""
    plan = TuningPlan(rungs=(2, 8), evaluated_every=3)
    log = records([None, None, 1.0, None, None, 2.0, None, 6.0])
    assert score(log, 8, plan) == 3.0
    assert score(log, 6, plan) == 1.5
    assert score(log, 2, plan) == -math.inf


def test_the_best_comes_first_and_of_equals_the_earlier():
    scores = {0: (1.0, 2.0), 1: (-math.inf, 9.0), 2: (3.0, 0.0), 4: (2.0, 2.0), 5: (-math.inf,) * 2}
    assert best(Rung(2, scores)) == [4, 0, 2, 1, 5]


def configure(candidate, seed):
    return config.preset("probe-point", "fedkl", seed, candidate)


def five(tmp_path):
    """Five candidates, two seeds."""
    candidates = tuple({"learner.d_local": d} for d in (0.01, 0.02, 0.03, 0.04, 0.05))
    plan = TuningPlan("probe-point", "fedkl", seeds=(7, 8), rungs=(2, 4, 8), candidates=candidates)
    path = tmp_path / "tuning"
    tune.create(path, plan, configure)
    return path, plan


def made_up_return(name, round):
    """Candidate 1 starts best and gets worse; 3 and 4 are equal; a seed is worth 10."""
    number, seed = name.split("-seed")
    start = {"0": 0, "1": 5, "2": 1, "3": 4, "4": 4}[number]
    slope = -1 if number == "1" else 0
    return {"return_mean": start + slope * (round - 1) + 10 * (int(seed) - 7)}


def test_a_rung_keeps_the_better_half(tmp_path, made_up):
    """The means over seeds after 2 rounds are 5, 9.5, 6, 9, 9, so 1, 3 and 4 go on; after 4 those
    of 1 are 4, 3, 2 and 14, 13, 12 (the last three returns), so it is dropped."""
    path, plan = five(tmp_path)
    calls = made_up(made_up_return, 8)
    rungs = tune.run_remaining(path, plan, SILENTLY)
    assert calls == [
        ([f"{n}-seed{s}" for s in (7, 8) for n in range(5)], 2),
        ([f"{n}-seed{s}" for s in (7, 8) for n in (1, 3, 4)], 4),
        ([f"{n}-seed{s}" for s in (7, 8) for n in (3, 4)], None),
    ]
    assert rungs == [
        Rung(2, {0: (0, 10), 1: (4.5, 14.5), 2: (1, 11), 3: (4, 14), 4: (4, 14)}),
        Rung(4, {1: (3, 13), 3: (4, 14), 4: (4, 14)}),
        Rung(8, {3: (4, 14), 4: (4, 14)}),
    ]
    assert best(rungs[-1]) == [3, 4]


def test_what_was_decided_is_decided_again(tmp_path, made_up):
    path, plan = five(tmp_path)
    made_up(made_up_return, 8)
    first = tune.run_remaining(path, plan, SILENTLY)
    # Every run has come further than the first rung; the later rounds must not count there.
    assert tune.run_remaining(path, plan, SILENTLY) == first


def test_a_tuning_has_a_run_for_each_candidate_and_seed_and_is_made_once(tmp_path):
    path, plan = five(tmp_path)
    names = {f"{n}-seed{s}" for n in range(5) for s in (7, 8)}
    assert {p.name for p in path.iterdir()} == names | {"tune.toml"}
    with pytest.raises(UserError, match="holds a tuning already; go on with it by `fedkl resume"):
        tune.create(path, plan, configure)


def test_a_bad_candidate_is_named_before_anything_is_written(tmp_path):
    candidates = ({"learner.d_local": 0.1}, {"learner.d_local": -1.0})
    plan = TuningPlan("probe-point", "fedkl", seeds=(7,), rungs=(4,), candidates=candidates)
    with pytest.raises(UserError, match=r"learner\.d_local must be above 0, not -1"):
        tune.create(tmp_path / "tuning", plan, configure)
    assert list(tmp_path.iterdir()) == []
