"""The README's commands are found as they stand there, and each is run and timed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("examples")


def test_commands_of_blocks_are_found_without_their_comments(examples: ModuleType) -> None:
    text = "`fedkl list`:\n\n    fedkl show demo  # all\n    pip list\n    fedkl tune --ray a:1\n"
    assert examples.commands(text) == ["fedkl show demo"]
    shown = examples.commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown[0] == "fedkl train demo --algorithm fedkl --run runs/one"
    assert "fedkl theory verify" in shown


def test_a_command_is_run_in_the_folder_with_its_output_and_its_exit_code(
    examples: ModuleType, tmp_path: Path
) -> None:
    taken = examples.run("fedkl show demo", tmp_path)
    assert taken.code == 0
    assert taken.cpu > 0
    assert "[federation]" in (tmp_path / "output.txt").read_text(encoding="utf-8")
    assert examples.run("fedkl show nosuch", tmp_path).code == 2
