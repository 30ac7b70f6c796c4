"""Tables on screens of any width."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedkl.io.tables import Table, lines, show

ARMS = Table(
    ("algorithm", "seeds", "final", "rounds\nto target"),
    [
        ("fedkl d_global=0.1", "3", "-160.1 [-161.2, -159.3]", "12"),
        ("a-plugin-of-somebody-else", "3", "-2240.5 [-2241.9, -2239.1]", "never (1 of 3 seeds)"),
    ],
)


@pytest.mark.parametrize("width", [100, 80, 60, 40, 30])
def test_every_number_is_there_and_no_line_is_too_long(width):
    shown = lines(ARMS, width)
    assert max(map(len, shown)) <= width
    text = " ".join(shown)
    assert "…" not in text
    for row in ARMS.rows:
        for cell in row[1:]:
            for number in re.findall(r"-?[\d.]+", cell):
                assert number in text


def test_where_it_fits_rows_are_side_by_side():
    head, below, first, second = lines(ARMS, 100)
    assert (head.split(), below.split()) == (
        ["rounds"],
        ["algorithm", "seeds", "final", "to", "target"],
    )
    assert first.startswith("fedkl d_global=0.1         ")
    assert len(below) == len(second) == len(second.rstrip())


def test_a_name_is_folded_before_rows_are_stacked():
    shown = lines(ARMS, 79)
    assert shown[1].startswith("algorithm")
    assert len(shown) > 4
    assert lines(ARMS, 60)[:3] == ["fedkl d_global=0.1", "  seeds             3",
                                   "  final             -160.1 [-161.2, -159.3]"]  # fmt: skip


def test_stacked_rows_of_numbers_say_what_the_first_one_is():
    table = Table(("client", "return"), [("0", "-1.25"), ("1", "")], ())
    assert lines(table, 10) == ["client 0", "  return", "    -1.25", "client 1"]


def test_notes_stand_below_their_rows():
    table = Table(("a", "b"), [("x", "1"), ("y", "2")], notes=["of x", "of y"])
    assert lines(table, 20)[1:] == ["x  1", "    of x", "y  2", "    of y"]
    assert lines(table, 3) == ["x", "  b", "    1", "    of x", "y", "  b", "    2", "    of y"]


@given(
    st.lists(st.lists(st.text("0123456789.-", max_size=30), min_size=3, max_size=3), max_size=4),
    st.integers(20, 100),
)
def test_no_cell_is_ever_cut(rows, width):
    table = Table(("name", "one", "two"), rows)
    shown = lines(table, width)
    text = "".join(line.strip() for line in shown)
    for row in rows:
        for cell in row[1:]:
            assert cell in text
    assert all(len(line) <= max(width, 34) for line in shown)


def test_what_looks_like_markup_is_shown_as_it_is():
    stream = io.StringIO()
    table = Table(("a",), [("[bold]:smile:[/bold]",)], title="[red]")
    show(table, Console(file=stream, width=80))
    assert stream.getvalue().splitlines() == ["[red]", "a", "[bold]:smile:[/bold]"]
