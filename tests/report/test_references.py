"""Runs that others are seen against: called by what they are, drawn in grey dashes, not judged."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedkl.report import load_runs, records, write_report
from fedkl.report.answer import answer, improvements, notes
from fedkl.report.figures import _learning_curves, draw
from fedkl.report.groups import grouped, judged
from fedkl.report.labels import labels
from fedkl.report.lines import dashes_of, lines_of, shades_of
from fedkl.report.pictures import matplotlib_style
from fedkl.report.style import REFERENCES, colours
from fedkl.report.table import target_of

SETTINGS: dict[str, dict[str, Any]] = {
    "alone": {"personal": "all"},
    "centralised": {"data": "pooled", "clients_per_round": 1},
}


def config(which: str = "fedavg", d_local: float = 0.01, **federation: Any) -> dict[str, Any]:
    return {
        "algorithm": {"name": which},
        "federation": {"personal": "none", "data": "own", "clients_per_round": 3} | federation,
        "learner": {"d_local": d_local},
    }


ALONE, CENTRALISED = (config(**settings) for settings in SETTINGS.values())


def test_a_reference_is_called_by_what_it_is_and_the_others_as_without_it() -> None:
    found = [label.text for label in labels([config("fedkl"), config(), ALONE, CENTRALISED])]
    assert found == ["fedkl", "fedavg", "each alone", "centralised"]


def test_references_of_one_kind_are_told_apart_by_what_they_differ_in() -> None:
    other = config("fedkl", d_local=0.02, personal="all")
    assert [label.text for label in labels([ALONE, config(d_local=0.02, personal="all")])] == [
        "each alone d_local=0.01",
        "each alone d_local=0.02",
    ]
    assert [label.text for label in labels([ALONE, other])] == [
        "each alone fedavg",
        "each alone fedkl",
    ]


def test_several_learners_that_have_all_data_are_no_reference() -> None:
    assert [label.text for label in labels([config(data="pooled"), config()])] == [
        "fedavg data=pooled",
        "fedavg data=own",
    ]


@pytest.fixture
def mixed(make_run: Callable[..., Path]) -> list[Any]:
    """Two algorithms that end near -8 and -10.5, and both references, which end above and below."""
    for seed in range(3):
        for name in ("fedkl", "fedavg"):
            make_run(f"c/{name}-seed{seed}", name, seed)
        for name, level in (("alone", -30.0), ("centralised", 50.0)):

            def shift(record: dict[str, Any], level: float = level) -> None:
                for key in ("return_mean", "return_min", "deterministic_return_mean"):
                    record[key] += level

            path = make_run(f"c/{name}-seed{seed}", "fedavg", seed, edit=shift)
            values = tomllib.loads((path / "config.toml").read_text())
            values["federation"] |= SETTINGS[name]
            (path / "config.toml").write_text(tomli_w.dumps(values))
    plan = {"algorithms": ["fedkl", "fedavg"], "references": [*SETTINGS], "seeds": [0, 1, 2]}
    folder = path.parent
    (folder / "compare.toml").write_text(tomli_w.dumps(plan))
    return load_runs(folder)


def test_references_come_last_and_are_not_judged(mixed: list[Any]) -> None:
    groups = grouped(mixed)
    assert [group.label for group in groups] == ["fedkl", "fedavg", "each alone", "centralised"]
    said = answer(groups)
    assert "fedkl ended with the highest return after 20 rounds" in said
    assert "above fedavg" in said
    assert "For reference: each alone ended with a return of" in said
    assert [(first, other) for first, other, _ in improvements(groups)] == [("fedkl", "fedavg")]
    assert target_of(groups) == target_of(groups[:2])
    assert not any("differ in more" in note for note in notes(mixed, groups, []))
    assert [row["label"] for row in records(mixed)] == [group.label for group in groups]


def test_where_there_is_nothing_else_references_are_compared_with_each_other(
    mixed: list[Any],
) -> None:
    only = [run for run in mixed if run.reference]
    groups = grouped(only)
    assert judged(groups) == groups
    assert answer(groups).startswith("Over 3 seeds for each algorithm, centralised ended with the")
    assert [dashes_of(group, groups) for group in groups] == ["-", "-"]


def test_references_are_grey_and_dashed_and_leave_the_others_their_colours(
    mixed: list[Any],
) -> None:
    groups = grouped(mixed)
    lines = {line.name: line for line in lines_of(groups, "return_mean")}
    assert shades_of(groups) == {name: line.colour for name, line in lines.items()}
    assert {name: lines[name].colour for name in ("fedkl", "fedavg")} == colours(
        ["fedkl", "fedavg"]
    )
    for name, (colour, dashes) in REFERENCES.items():
        assert (lines[name].colour, lines[name].dashes) == (colour, dashes)
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        assert max(red, green, blue) - min(red, green, blue) < 30


def test_references_are_in_every_panel_and_have_none_of_their_own(mixed: list[Any]) -> None:
    """Two algorithms share a pair of axes, with a close-up of it."""
    groups = grouped(mixed)
    with matplotlib_style():
        drawing = _learning_curves(groups, None)
    assert drawing is not None
    assert len(drawing.figure.axes) <= 2
    for axes in drawing.figure.axes:
        drawn = {line.get_label() for line in axes.get_lines()}
        assert {"fedkl", "fedavg", "each alone", "centralised"} <= drawn


def test_figures_that_show_no_returns_leave_references_out(mixed: list[Any]) -> None:
    pictures = draw(grouped(mixed), None)
    for name, here in (("learning_curves", True), ("kl_local", False), ("guarded", False)):
        assert bool(re.search("each alone", pictures[name].svg)) == here


def test_the_page_says_what_grey_dashes_are(mixed: list[Any], tmp_path: Path) -> None:
    text = write_report(tmp_path / "c", mixed).read_text()
    assert "Grey dashes are references, which are not judged" in text
    assert all(name in text for name in ("each alone", "centralised"))
