"""`fedkl heterogeneity`: who is how far from the others, for people, for machines, as a picture."""

import json

import pytest
from commands import call

import fedkl
from fedkl.training import lifecycle

SETTINGS = {
    "federation.rounds": 2,
    "heterogeneity.trajectories": 8,
    "heterogeneity.features": 4,
    "heterogeneity.every": 1,
    "world.spread": 0.5,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "point"
    made = lifecycle.create(fedkl.preset("probe-point", set=SETTINGS), path)
    lifecycle.run_remaining(made, lambda record: None, lambda warning: None)
    return path


def rows(path, line):
    return json.loads((path / "metrics.jsonl").read_text().splitlines()[line])["heterogeneity"]


def test_people_read_a_row_for_each_client_and_what_holds_for_all(capsys, run):
    code, out, err = call(capsys, "heterogeneity", str(run))
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[1] == ["client", "||DA||", "||DB||", "ratio", "G", "alignment"]
    assert sorted(line[0] for line in lines[2:6]) == ["0", "1", "2", "3"]
    assert out.splitlines()[-2].startswith("G: mean ")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("round", [0, 1])
def test_an_earlier_round_is_measured_as_it_was_logged(capsys, run, round):
    code, out, _ = call(capsys, "heterogeneity", str(run), "--round", str(round), "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["round"], found["trajectories"], found["steps"]) == (round, 8, 4 * 8)
    assert found["clients"] == rows(run, round)


def test_a_picture_is_written(capsys, run, tmp_path):
    code, out, _ = call(capsys, "heterogeneity", str(run), "--plot", str(tmp_path / "h.svg"))
    assert code == 0
    assert "alignment" in out
    assert (tmp_path / "h.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--round", "3"], "--round must be from 0 to 2, where the run stands"),
        (["--trajectories", "7"], "heterogeneity.trajectories must be even, not 7"),
        (["--trajectories", "2"], "heterogeneity.trajectories must be at least 4, not 2"),
        (["--plot", "figure.bmp"], "a figure is a file that ends in .png, .svg or .pdf"),
    ],
)
def test_a_wrong_argument_is_answered_with_a_sentence(capsys, run, arguments, sentence):
    code, out, err = call(capsys, "heterogeneity", str(run), *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_run_whose_clients_see_on_scales_of_their_own_is_refused(capsys, tmp_path):
    settings = {"federation.observation_statistics": "local"}
    made = lifecycle.create(fedkl.preset("probe-point", set=settings), tmp_path / "run")
    code, out, err = call(capsys, "heterogeneity", str(made.path))
    assert (code, out) == (2, "")
    assert "federation.observation_statistics must be federated or none" in err
    assert err.count("\n") == 1
