"""The tables of docs/presets.md hold what the presets hold."""

import tomllib
from pathlib import Path

import pytest

import fedkl

PAGE = (Path(__file__).parents[2] / "docs" / "presets.md").read_text(encoding="utf-8")


def rows(section, key_column):
    """The cells of the rows whose key column is in backquotes, from one section of the page."""
    (text,) = [part for part in PAGE.split("\n## ") if part.startswith(section)]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    return [cells for cells in found if len(cells) > key_column and "`" in cells[key_column]]


def setting(preset, key):
    """The value of `group.name`, or of `algorithm: group.name`, in a preset."""
    algorithm, _, dotted = key.rpartition(": ")
    group, name = dotted.split(".")
    return fedkl.preset(preset, algorithm or None).mapping()[group][name]


def value(cell):
    return tomllib.loads(f"value = {cell.strip('`')}")["value"]


@pytest.mark.parametrize("cells", rows("What the Reacher presets set", 0), ids=lambda c: c[0])
def test_what_the_reacher_presets_set(cells):
    key, said, _ = cells
    assert setting("reacher-init-state", key.strip("`")) == value(said)


@pytest.mark.parametrize("cells", rows("What the figure-eight presets set", 0), ids=lambda c: c[0])
def test_what_the_figure_eight_presets_set(cells):
    key, said, _ = cells
    for preset in ("figure-eight", "figure-eight-mixed"):
        assert setting(preset, key.strip("`")) == value(said)


@pytest.mark.parametrize("algorithm", ["fedkl", "fedavg", "fedprox", "fmarl", "scaffold"])
def test_same_step_gives_every_algorithm_the_same_local_target(algorithm):
    for preset in ("figure-eight-same-step", "figure-eight-mixed-same-step"):
        assert setting(preset, f"{algorithm}: learner.d_local") == 0.0003


differences = rows("The paper, our defaults, the authors' code", 2)


@pytest.mark.parametrize("cells", differences, ids=lambda c: c[0])
def test_ours_the_papers_and_theirs(cells):
    _, _, key, ours, papers, theirs = cells
    for suffix, said in (("", ours), ("-paper", papers), ("-authors", theirs)):
        assert setting(f"reacher-init-state{suffix}", key.strip("`")) == value(said)


@pytest.mark.parametrize("suffix", ["-paper", "-authors"])
@pytest.mark.parametrize("algorithm", ["fedkl", "fedavg", "fedprox", "fmarl", "scaffold"])
def test_no_difference_goes_unmentioned(algorithm, suffix):
    mentioned = {cells[2].strip("`") for cells in differences}
    ours, theirs = (
        fedkl.preset(f"reacher-init-state{end}", algorithm).mapping() for end in ("", suffix)
    )
    for group, settings in ours.items():
        for name in settings if isinstance(settings, dict) else ():
            if settings[name] != theirs[group][name]:
                key = f"{group}.{name}"
                assert key in mentioned or f"{algorithm}: {key}" in mentioned
