"""`fedkl describe`: who differs in what, for people, for machines, and as a picture."""

import csv
import io
import json
import sys

import numpy as np
import pytest
from commands import call

import fedkl


def test_people_read_what_is_drawn_how_and_what_came_of_it(capsys):
    code, out, err = call(capsys, "describe", "reacher-both")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "reacher-both: 60 clients of the world reacher, seed 0"
    assert "action_noise = { normal = [0.0, 0.4], clip = 1.0 }" in lines
    (squares,) = [line for line in lines if line.startswith("target_low_0")]
    assert squares.split() == ["target_low_0", "-0.2", "-0.2", "-0.025", "0.15", "initial_state"]
    (offsets,) = [line for line in lines if line.startswith("action_offset_0")]
    assert offsets.split()[-1] == "action_noise"
    assert "... and 52 more clients; more columns: action_offset_0, action_offset_1" in out
    assert "They could also differ in: observation_noise, action_delay" in out
    assert max(map(len, lines)) <= 80


def test_a_word_of_every_client_is_told_if_they_are_few(capsys):
    settings = ["--set", "federation.clients=3", "world.clients.gravity=[5, 10]"]
    code, out, _ = call(capsys, "describe", "cartpole", *settings)
    assert code == 0
    (statistics,) = [line for line in out.splitlines() if line.startswith("gravity  ")]
    assert statistics.split() == ["gravity", "9.8", "5", "6.667", "10", "gravity"]
    table = out[out.index("client  gravity") :].splitlines()
    assert [line.split() for line in table[1:4]] == [["0", "5"], ["1", "10"], ["2", "5"]]
    assert "more clients" not in out


def test_entries_of_a_vector_that_are_always_equal_are_told_together(capsys):
    code, out, _ = call(capsys, "describe", "half-cheetah-init-state")
    assert code == 0
    assert "clients of the world gym:HalfCheetah-v5, seed 0" in out.splitlines()[0]
    rows = [line.split() for line in out.splitlines()]
    assert ["initial_low_0..8", "-0.1", "-0.5", "-0.01667", "0.4667", "initial_low"] in rows
    assert ["initial_high_9..17", "0.1", "0.005", "0.005", "0.005", "initial_high"] in rows
    assert max(map(len, out.splitlines())) <= 80


def test_clients_that_are_alike_or_share_a_world(capsys):
    _, out, _ = call(capsys, "describe", "cartpole")
    assert "All of them are alike." in out
    assert "They could differ in: gravity, masscart" in out
    _, out, _ = call(capsys, "describe", "figure-eight")
    assert out.splitlines() == [
        "figure-eight: 7 clients of the world figure-eight, seed 0",
        "They share one simulation, and differ by their place in it.",
    ]


def test_a_world_that_its_preset_names_is_not_named_twice(capsys):
    _, out, _ = call(capsys, "describe", "gym:CartPole-v1")
    assert out.splitlines()[0] == "gym:CartPole-v1: 4 clients of the world gymnasium, seed 0"


def test_machines_read_everything(capsys):
    code, out, _ = call(capsys, "describe", "reacher-dynamics", "--seed", 3, "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["world"], facts["clients"], facts["seed"]) == ("reacher", 60, 3)
    first, second = facts["words"]
    assert (first["word"], second["word"]) == ("action_offset_0", "action_offset_1")
    assert (first["nominal"], first["given_by"]) == (0, "action_noise")
    assert first["draw"] == {"normal": [0.0, 0.4], "clip": 1.0}
    expected = fedkl.preset("reacher-dynamics", seed=3).clients()["action_offset"]
    np.testing.assert_allclose(first["values"], expected[:, 0])
    assert first["max"] == pytest.approx(expected[:, 0].max())
    assert "initial_state" in facts["other_words"]


def test_a_world_of_ones_own_can_be_described(tmp_path, capsys, monkeypatch):
    from fedkl.worlds import WORLDS

    monkeypatch.setattr(WORLDS, "_classes", dict(WORLDS._classes))
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from typing import ClassVar\n"
        "import fedkl, jax.numpy as jnp\n"
        "@fedkl.register_world\n"
        "class Mine(fedkl.World):\n"
        "    name: ClassVar = 'mine-described'\n"
        "    summary: ClassVar = 'of my own'\n"
        "    observation_size: ClassVar = 1\n"
        "    actions: ClassVar = fedkl.Continuous(1)\n"
        "    horizon: ClassVar = 2\n"
        "    def clients(self, n, key):\n"
        "        return {'slope': jnp.arange(n, dtype=float)}\n"
        "    def reset(self, params, key):\n"
        "        return (), jnp.ones(1)\n"
        "    def step(self, params, state, action, key):\n"
        "        return fedkl.Transition((), jnp.ones(1), params['slope'], jnp.asarray(False))\n"
    )
    code, out, _ = call(
        capsys, "describe", "probe-point", "--plugin", plugin, "--set", "world.name=mine-described"
    )
    assert code == 0
    (slope,) = [line for line in out.splitlines() if line.startswith("slope")]
    assert slope.split() == ["slope", "0", "1.5", "3", "the", "world"]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_clients_are_drawn(tmp_path, capsys, suffix):
    path = tmp_path / f"clients.{suffix}"
    code, out, _ = call(capsys, "describe", "reacher-both", "--plot", path)
    assert code == 0
    assert f"figure: {path}" in out.replace("\n", "")
    assert path.stat().st_size > 5000


def test_json_stays_json_beside_a_figure(tmp_path, capsys):
    _, out, _ = call(capsys, "describe", "demo", "--json", "--plot", tmp_path / "clients.png")
    json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nope"], "there is no preset 'nope'"),
        (["cartpole", "--plot", "clients.txt"], "a figure is a file that ends in .png, .svg or"),
        (["cartpole", "--plot", "gone/clients.png"], "the folder gone does not exist"),
        (["cartpole", "--set", "world.clients.gravty=3"], "did you mean gravity?"),
        (["cartpole", "--set", "world.clients.gravity={}"], "must be drawn by one of values,"),
        (["cartpole", "--set", "world.clients.gravity=fast"], "must be a number, a list, or"),
        (["cartpole", "--set", "world.clients.gravity={uniform=[2,1]}"], "the smaller one first"),
        (["cartpole", "--set", "world.clients.action_noise=1"], "its actions are discrete"),
        (["reacher-iid", "--set", "world.clients.initial_state={boxes=50}"], "but into 45 or 60"),
        (
            ["reacher-iid", "--set", "world.clients.target_low=[[0.16,0.16]]"],
            "where nothing is within the arm's reach",
        ),
        (["figure-eight", "--set", "world.clients.gravity=3"], "world.clients is not a setting"),
    ],
)
def test_a_mistake_ends_in_one_sentence_and_code_2(
    tmp_path, monkeypatch, capsys, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "describe", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = call(capsys, "describe", "cartpole", "--plot", tmp_path / "x.png")
    assert (code, out) == (2, "")
    assert "pip install -e '.[report]'" in err


def test_every_client_is_a_line_of_csv(capsys):
    _, out, _ = call(capsys, "describe", "cartpole-gravity", "--csv")
    rows = [*csv.DictReader(io.StringIO(out))]
    assert len(rows) == 10
    words = fedkl.preset("cartpole-gravity").clients()
    assert [float(row["gravity"]) for row in rows] == pytest.approx(words["gravity"])
