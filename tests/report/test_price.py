"""The price of heterogeneity, as docs/make_price.py tells and draws it."""

import runpy
import sys
from pathlib import Path

SCRIPT = str(Path(__file__).parents[2] / "docs" / "make_price.py")
LEVELS = {"fedavg": -8.0, "fedkl": -7.0, "fedkl-anchored": -5.0}


def at(level):
    """Changes a record so that every round of every seed has the same return."""

    def edit(record):
        record["return_mean"] = level

    return edit


def test_the_price_and_what_is_won_back_of_it_by_hand(make_run, tmp_path, monkeypatch, capsys):
    for seed in range(3):
        make_run(f"iid/fedavg-seed{seed}", "fedavg", seed, edit=at(-4.0))
        for name, level in LEVELS.items():
            make_run(f"differ/{name}-seed{seed}", name, seed, edit=at(level))
    for folder in ("iid", "differ"):
        (tmp_path / folder / "compare.toml").touch()
    picture = tmp_path / "price.png"
    places = [str(tmp_path / "iid"), str(tmp_path / "differ"), str(picture)]
    monkeypatch.setattr(sys, "argv", [SCRIPT, *places])
    runpy.run_path(SCRIPT, run_name="__main__")
    said = capsys.readouterr().out
    assert "price of heterogeneity: -4.00 - (-8.00) = 4.00" in said
    lines = {line.split("|")[1].strip(): line for line in said.splitlines() if "|" in line}
    assert "25%" in lines["fedkl"]
    assert "75%" in lines["fedkl-anchored"]
    assert picture.stat().st_size > 10_000
