"""The list of all there is, for people and for machines."""

import csv
import io
import json

import pytest
from commands import call

from fedkl.config import presets


def test_the_list_has_a_line_for_everything(capsys):
    code, out, _ = call(capsys, "list")
    assert code == 0
    for name in ("demo", "reacher-init-state", "reacher-both-authors", "fmarl", "probe-chain",
                 "scaffold", "krum", "clip", "yogi", "round-robin"):  # fmt: skip
        assert f"  {name}  " in out
    for title in ("reducers (aggregation.reduce)", "upload links (upload.each)"):
        assert title in out


def test_the_list_for_machines(capsys):
    _, out, _ = call(capsys, "list", "--json")
    found = json.loads(out)
    assert found["presets"] == presets.summaries()
    assert {"fedkl", "scaffold"} <= found["algorithms"].keys()
    _, out, _ = call(capsys, "list", "--csv")
    rows = [*csv.DictReader(io.StringIO(out))]
    assert {"kind": "presets", "name": "demo", "summary": presets.summaries()["demo"]} in rows


@pytest.mark.parametrize("columns", [100, 60, 40])
def test_the_list_fits_any_screen(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = call(capsys, "list")
    assert max(map(len, out.splitlines())) <= columns
    assert "…" not in out
    assert "fedkl-anchored" in out
