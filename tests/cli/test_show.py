"""What commands tell of presets, for people and for machines."""

import csv
import io
import json
import tomllib

import pytest
from commands import call

from fedkl.config import config, presets


@pytest.mark.parametrize("preset", sorted(presets.summaries()))
def test_what_is_shown_can_be_pasted_back(preset, tmp_path, capsys):
    needs = {"gymnasium": "gymnasium", "half-cheetah": "gymnasium", "pettingzoo": "mpe2",
             "figure-eight": "libsumo"}  # fmt: skip
    for name, module in needs.items():
        if preset.startswith(name):
            pytest.importorskip(module)
    code, out, err = call(capsys, "show", preset)
    assert (code, err) == (0, "")
    (tmp_path / "mine.toml").write_text(out)
    again = config.preset(str(tmp_path / "mine.toml")).mapping()
    assert again | {"preset": preset} == config.preset(preset).mapping()


def test_what_is_shown_is_what_would_be_trained_with_help_above_it(capsys):
    code, out, _ = call(
        capsys, "show", "demo", "--algorithm", "fedprox", "--rounds", 7, "--set",
        "learner.d_local=0.5", "aggregation.reduce=trimmed-mean", "federation.clients_per_round=9",
        "upload.each=[clip]",
    )  # fmt: skip
    assert code == 0
    found = tomllib.loads(out)
    assert found["algorithm"]["name"] == "fedprox"
    assert (found["federation"]["rounds"], found["learner"]["d_local"]) == (7, 0.5)
    lines = out.splitlines()
    for name in ("d_local", "trim", "rounds", "mu", "seed", "max_norm"):
        (at,) = [i for i, line in enumerate(lines) if line.startswith(f"{name} = ")]
        assert lines[at - 1].startswith("# ")
    assert max(map(len, lines)) <= 100


def test_settings_for_machines(capsys):
    _, out, _ = call(capsys, "show", "demo", "--json")
    assert '"inf"' in out  # JSON has no number for it
    found = json.loads(out.replace('"inf"', "Infinity"))
    assert found == config.preset("demo").mapping()
    _, out, _ = call(capsys, "show", "demo", "--csv")
    rows = {row["setting"]: row for row in csv.DictReader(io.StringIO(out))}
    assert rows["federation.clients"]["value"] == "60"
    assert rows["federation.clients"]["help"].startswith("N: clients in the federation")
