"""What the liars of the benchmark say: possible, and within the factors that it is told of."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fedkl
from fedkl import Federation
from fedkl.clients.records import Model, Trained
from fedkl.server.state import broadcast
from fedkl.server.validation import move, problem_with


@pytest.fixture
def lies(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("lies")


@pytest.fixture
def honest(tiny: Callable[..., fedkl.Config]) -> tuple[Federation, Model, Trained]:
    """A federation, what it broadcast first, and what a client answered."""
    federation = Federation(tiny("fedkl-anchored"))
    start, answers = broadcast(federation.state.model), federation.engine.run
    found: list[Any] = []

    def run(*asked: Any) -> Any:
        for client, answer in answers(*asked):
            found.append(answer)
            yield client, answer

    federation.engine.run = run  # type: ignore[method-assign]
    federation.run_round()
    return federation, start, found[0]


def test_there_are_lies_of_every_kind_by_every_client_and_half_from_the_start(
    lies: ModuleType,
) -> None:
    drawn = [lies.lie_of(number, 8) for number in range(100)]
    assert {lie.about for lie in drawn} == set(lies.KINDS)
    assert {lie.client for lie in drawn} == set(range(5))
    assert 35 <= sum(lie.first_round == 1 for lie in drawn) <= 65
    assert drawn == [lies.lie_of(number, 8) for number in range(100)]


@pytest.mark.parametrize("about", ["policy", "critic"])
def test_a_false_move_is_one_to_five_times_as_long_as_the_clients_own(
    lies: ModuleType, honest: tuple[Federation, Model, Trained], about: str
) -> None:
    _, start, trained = honest
    before = getattr(start, about)
    own = move(before, getattr(trained.update.model, about))
    for seed in range(20):
        false = lies.told(about, start, trained, np.random.default_rng(seed), 5.0, 20.0)
        length = move(before, getattr(false.update.model, about))
        assert 0.999 * own <= length <= 5.001 * own


def test_a_lie_is_possible_by_itself_but_for_a_coefficient_out_of_reach(
    lies: ModuleType, honest: tuple[Federation, Model, Trained]
) -> None:
    federation, start, trained = honest
    limits = federation._limits._replace(max_relative_norm=100.0)
    for about in lies.KINDS:
        for seed in range(10):
            false = lies.told(about, start, trained, np.random.default_rng(seed), 5.0, 20.0)
            problem = problem_with(false, start, limits)
            assert problem is None or "coefficients.c_a" in problem


def test_honest_runs_of_other_seeds_are_judged_like_lies(lies: ModuleType) -> None:
    def line(lie: int, seed: int, reached: float) -> dict[str, Any]:
        about = lies.KINDS[0] if lie >= 0 else None
        told = {"reducer": "mean", "lie": lie, "seed": seed, "about": about, "return": reached}
        return told | {"liar_refused": [], "honest_refused": [], "notes": []}

    lines = [line(-1, 1, -3.0), line(-1, 2, -1.0), line(-1, 7, -4.0), line(5, 505, 0.0)]
    found = lies.tabulate(lines, [1, 2])["mean"]
    assert (found["honest"]["low"], found["honest"]["high"], found["honest"]["seeds"]) == (
        -3,
        -1,
        2,
    )
    judged = {about: (x["below"], x["within"], x["above"]) for about, x in found["lies"].items()}
    assert judged == {"policy": (0, 0, 1), "all": (0, 0, 1), "none": (1, 0, 0)}
