"""How long is tried, and what is written down of it."""

import pytest

from fedkl.core.errors import UserError
from fedkl.experiments.tune import TuningPlan, rungs

PLAN = TuningPlan(
    "demo", "fedkl", ("/p.py",), ("learner.steps=64",), (1000, 1001), (2, 4, 8), 1, 2,
    ({"learner.hidden": [8, 8], "learner.optimiser": "sgd"}, {"learner.guard": True}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("rounds", "halvings", "expected"),
    [
        (200, 2, (50, 100, 200)),
        (10, 2, (2, 5, 10)),
        (4, 2, (1, 2, 4)),
        (3, 1, (1, 3)),
        (7, 0, (7,)),
    ],
)
def test_rungs_double(rounds, halvings, expected):
    assert rungs(rounds, halvings, 8, 1) == expected


@pytest.mark.parametrize(
    ("rounds", "candidates", "every", "expected"),
    [
        (200, 8, 1, (50, 100, 200)),
        (200, 3, 1, (50, 100, 200)),
        (200, 2, 1, (100, 200)),
        (200, 1, 1, (200,)),
        (3, 8, 1, (1, 3)),
        (1, 8, 1, (1,)),
        (200, 8, 60, (100, 200)),
        (200, 8, 500, (200,)),
    ],
)
def test_by_default_there_are_as_many_halvings_as_make_sense(rounds, candidates, every, expected):
    assert rungs(rounds, None, candidates, every) == expected


@pytest.mark.parametrize(
    ("rounds", "halvings", "every"), [(3, 2, 1), (7, 10**9, 1), (200, 2, 60), (10, 1, 6)]
)
def test_too_few_rounds_for_the_halvings_are_refused(rounds, halvings, every):
    with pytest.raises(UserError, match=f"^{rounds} rounds are too few for {halvings} halving"):
        rungs(rounds, halvings, 8, every)


def test_more_halvings_than_candidates_are_allowed():
    assert rungs(8, 3, 1, 1) == (1, 2, 4, 8)


def test_a_plan_counts_its_rounds():
    """5 candidates to round 2, 3 of them to 4, 2 of them to 8, with 2 seeds."""
    plan = TuningPlan(seeds=(0, 1), rungs=(2, 4, 8), candidates=({},) * 5)
    assert plan.rounds == 2 * (5 * 2 + 3 * 2 + 2 * 4)


def test_names_sort_as_numbers_do():
    assert TuningPlan(candidates=({},) * 10).name_of(9, 3) == "9-seed3"
    plan = TuningPlan(candidates=({},) * 11)
    assert [plan.name_of(n, 3) for n in (2, 10)] == ["02-seed3", "10-seed3"]


def test_a_plan_comes_back_as_it_was_written(tmp_path):
    assert not TuningPlan.is_in(tmp_path)
    PLAN.write(tmp_path)
    assert TuningPlan.is_in(tmp_path)
    assert TuningPlan.read(tmp_path) == PLAN


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("jobs = 2", "jobs = 0", r"tune\.toml\.jobs must be at least 1"),
        ("jobs = 2", "jobs = ", r"tune\.toml is not valid TOML"),
        ("candidates", "candidate", r"tune\.toml\.candidates must be a list of tables"),
        (
            "seeds = [\n    1000,\n    1001,\n]",
            "seeds = []",
            r"tune\.toml\.seeds must not be empty",
        ),
    ],
)
def test_a_damaged_plan_is_answered_with_a_sentence(tmp_path, old, new, sentence):
    PLAN.write(tmp_path)
    file = tmp_path / "tune.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=sentence):
        TuningPlan.read(tmp_path)
