"""The layout of a comparison's directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedkl.core.errors import UserError
from fedkl.training.comparison import ComparisonPlan, name_of, runs_in

PLAN = ComparisonPlan("demo", ("fedkl", "fedavg"), (0, 3), 2)


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert not ComparisonPlan.is_in(tmp_path)
    PLAN.write(tmp_path)
    assert ComparisonPlan.is_in(tmp_path)
    assert ComparisonPlan.read(tmp_path) == PLAN
    assert ComparisonPlan.read_names(tmp_path) == ComparisonPlan("", ("fedkl", "fedavg"), (0, 3), 1)


def test_runs_are_named_seed_by_seed(tmp_path: Path) -> None:
    names = ["fedkl-seed0", "fedavg-seed0", "fedkl-seed3", "fedavg-seed3"]
    assert [run.relative_to(tmp_path).as_posix() for run in PLAN.run_paths(tmp_path)] == names
    assert name_of("fedkl", 0) == names[0]


@pytest.mark.parametrize("algorithm", ["../outside", "deep/inside", "/root", "..", "a/../../b"])
def test_no_plan_names_a_run_outside_its_directory(tmp_path: Path, algorithm: str) -> None:
    (run,) = ComparisonPlan("x", (algorithm,), (0,)).run_paths(tmp_path)
    assert run.parent == tmp_path
    assert run.resolve().parent == tmp_path.resolve()


def test_runs_are_found_whether_planned_or_not(tmp_path: Path) -> None:
    for name in ("b", "a", "figures"):
        (tmp_path / name).mkdir()
    for name in ("b", "a"):
        (tmp_path / name / "config.toml").write_text("")
    assert runs_in(tmp_path) == [tmp_path / "a", tmp_path / "b"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("jobs = 0", r"compare\.toml\.jobs must be at least 1"),
        ("job = 2", r"compare\.toml\.job is not a setting"),
        ("seeds = 3", r"compare\.toml\.seeds must be a list"),
    ],
)
def test_only_names_can_be_read_from_what_is_not_quite_a_plan(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "compare.toml").write_text(f'{text}\nalgorithms = ["mine"]')
    with pytest.raises(UserError, match=sentence):
        ComparisonPlan.read(tmp_path)
    assert ComparisonPlan.read_names(tmp_path) == ComparisonPlan(algorithms=("mine",))


@pytest.mark.parametrize("read", [ComparisonPlan.read, ComparisonPlan.read_names])
def test_what_is_not_a_plan_at_all_is_answered_with_a_sentence(
    tmp_path: Path, read: Callable[[Path], ComparisonPlan]
) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read(tmp_path)
    (tmp_path / "compare.toml").write_bytes(b"\xff = = 1")
    with pytest.raises(UserError, match=r"compare\.toml is not valid TOML"):
        read(tmp_path)
