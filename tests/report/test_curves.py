"""Learning curves side by side, as docs/make_curves.py tells and draws them."""

import runpy
import sys
from pathlib import Path

SCRIPT = str(Path(__file__).parents[2] / "docs" / "make_curves.py")


def rising(record):
    """Every client has as many points as there were rounds."""
    record["return_mean"] = float(record["round"])
    record["return_min"] = float(record["round"]) - 1
    record["env_steps"] = 1_000_000 * record["round"]
    record["steps_measured"] = 500_000


def told(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [SCRIPT, *map(str, arguments)])
    runpy.run_path(SCRIPT, run_name="__main__")
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
    ]


def test_the_table_says_when_every_client_was_there(make_run, tmp_path, monkeypatch, capsys):
    for seed in range(2):
        make_run(f"x/fedavg-seed{seed}", "fedavg", seed, edit=rising)
    (tmp_path / "x" / "compare.toml").touch()
    picture = tmp_path / "curves.png"
    panel = ["--panel", "rising", tmp_path / "x"]
    head, _, row = told(capsys, monkeypatch, picture, *panel, "--solved", "3", "--samples")
    assert head[-1] == "every client at 3 after round (each seed)"
    assert row[:2] == ["rising", "fedavg"]
    rounds = int(row[2])
    assert float(row[3]) == 1.5 * rounds
    assert row[-1] == "4, 4"
    assert picture.stat().st_size > 10_000


def test_several_comparisons_in_a_panel_have_their_labels(make_run, tmp_path, monkeypatch, capsys):
    places = []
    for name in ("one", "two"):
        make_run(f"{name}/fedavg-seed0", "fedavg", 0, edit=rising)
        (tmp_path / name / "compare.toml").touch()
        places.append(f"{name.title()}={tmp_path / name}")
    rows = told(capsys, monkeypatch, tmp_path / "curves.png", "--panel", "both", *places)
    assert [row[1] for row in rows[2:]] == ["One", "Two"]
