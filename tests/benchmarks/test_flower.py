"""The benchmark of the network, without the network; and, slowly, with it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("flwr")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("flower")


def test_settings_are_given_to_flower_as_nested_tables(flower: ModuleType) -> None:
    nested = flower._nested({"federation.clients": 3, "federation.rounds": 2, "seed": 1})
    assert nested == {"federation": {"clients": 3, "rounds": 2}, "seed": 1}


def test_the_first_round_does_not_count(flower: ModuleType, tmp_path: Path) -> None:
    lines = [f"round {i}: return nan, {i}.5 s, []" for i in (1, 2, 3, 4)]
    (tmp_path / "log").write_text("noise\n" + "\n".join(lines) + "\n")
    assert flower._rounds_in(tmp_path / "log", 2) == [2.5, 3.5]


def test_a_transport_remembers_when_the_last_answer_came(flower: ModuleType) -> None:
    class Transport:
        answers: Sequence[str] = ()

        def push(self, messages: Sequence[str]) -> list[str]:
            return list(messages)

        def pull(self, ids: Sequence[str]) -> Sequence[str]:
            return self.answers

    transport = Transport()
    timed = flower.Timed(transport)
    assert timed.push(["a"]) == ["a"]
    assert 0 < timed.push_begins <= timed.push_ends
    timed.pull(["a"])
    assert timed.last_answer == 0.0
    transport.answers = ["b"]
    assert timed.pull(["a"]) == ["b"]
    assert timed.last_answer >= timed.push_ends


@pytest.mark.slow
def test_the_benchmark_runs_at_its_smallest() -> None:
    pytest.importorskip("flwr")
    command = [sys.executable, str(BENCHMARKS / "flower.py"), "--preset", "probe-point"]
    command += ["--clients", "2", "--rounds", "1", "--plain-rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    parts = {"round", "round_cpu", "before", "push", "waiting", "after", "empty_message"}
    assert result["network_seconds"].keys() == parts
    assert result["plain_seconds"]["median"] > 0
