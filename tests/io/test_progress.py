"""What a person reads while runs go on."""

import io
from typing import Any

import pytest
from rich.console import Console

from fedkl.io import progress
from fedkl.io.progress import Pace, RoundProgress, bar, describe

RECORD: dict[str, Any] = {
    "return_mean": -8.126,
    "kl_local": 0.01,
    "distance_global": 0.1234,
    "guarded": 0,
    "rejected": [],
    "note": None,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "return -8.13  KL of a local step 0.0100  tv from global 0.123"),
        ({"return_mean": -0.00101, "kl_local": None}, "return -0.00101"),
        (
            {"return_mean": None, "guarded": 2},
            "KL of a local step 0.0100  tv from global 0.123  guarded 2",
        ),
        (
            {
                "kl_local": None,
                "distance_global": None,
                "rejected": [{"client": 4, "reason": "not finite"}],
                "note": "no update was accepted",
            },
            "return -8.13  client 4 left out (not finite)  no update was accepted",
        ),
        (
            {
                "kl_local": None,
                "held_back": [{"client": 1, "reason": "too far"}],
                "outliers": [{"client": 3, "share": 0.0123}],
            },
            "return -8.13  statistics of client 1 left out (too far)  client 3 has broken readings "
            "in 1.23% of its steps",
        ),
    ],
)
def test_a_round_in_a_few_words(change: dict[str, Any], words: str) -> None:
    assert describe(RECORD | change, "tv") == words


class Clock:
    """Seconds that somebody sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_leaves_out_the_round_that_was_compiled() -> None:
    clock = Clock()
    pace = Pace(1000, clock)
    clock.now = 70.0  # nearly all of it compilation
    assert pace.left(1) == ""
    clock.now = 74.0
    assert pace.left(3) == "0:33:14 left"  # 2 s a round, 997 to go
    clock.now = 70.0 + 999 * 4
    assert pace.left(1000) == "0:00:00 left"


def test_elsewhere_than_on_a_terminal_a_round_is_a_line() -> None:
    stream = io.StringIO()
    with RoundProgress(Console(file=stream, width=100), 2, "tv") as shown:
        shown.show(RECORD | {"round": 1})
        shown.show(RECORD | {"round": 2})
    first, second = stream.getvalue().splitlines()
    assert first == "round 1/2  return -8.13  KL of a local step 0.0100  tv from global 0.123"
    assert second.endswith("  0:00:00 left")


def test_a_dumb_terminal_gets_lines_and_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = io.StringIO()
    with RoundProgress(Console(file=stream, width=100, force_terminal=True), 1) as shown:
        shown.show(RECORD | {"round": 1})
    assert stream.getvalue().startswith("round 1/1  return -8.13")
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_is_told_that_it_compiles() -> None:
    stream = io.StringIO()
    with RoundProgress(Console(file=stream, width=100, force_terminal=True), 5):
        pass
    assert "compiling" in stream.getvalue()


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (120, "0:00:00 left return -8.13  KL of a local step 0.0100  sqrt_kl from global 0.123"),
        (80, "0:00:00 left return -8.13  KL of a local step 0.0100"),
        (60, "0:00:00 left return -8.13"),
        (43, "0:00:00 left return -8…"),
    ],
)
def test_however_narrow_a_terminal_is_round_and_time_left_are_whole(width: int, shown: str) -> None:
    stream = io.StringIO()
    terminal = Console(file=stream, width=width, force_terminal=True, color_system=None)
    with RoundProgress(terminal, 2, "sqrt_kl") as progress:
        progress.show(RECORD | {"round": 1})
        progress.show(RECORD | {"round": 2})
    last = stream.getvalue().replace("\x1b[2K", "\n").splitlines()
    drawn = [line.rstrip() for line in last if "round 2/2" in line][-1]
    assert drawn.startswith("round 2/2 ━")
    assert drawn.endswith(f"━ {shown}")
    assert len(drawn) <= width


def test_of_many_rounds_there_is_a_line_every_few(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    stream = io.StringIO()
    with bar(Console(file=stream, width=100), "2 runs, round", 200, lines=True) as show:
        show(50)  # it goes on where it was stopped
        for done in (51, 59, 60, 61, 65, 70):
            clock.now += 1
            show(done)
        clock.now += 40
        show(70)
        show(71)  # few, but there was nothing for a while
    lines = [line.split("  ")[0] for line in stream.getvalue().splitlines()]
    assert lines == [f"2 runs, round {done}/200" for done in (60, 70, 71)]
