"""Whose worlds are filmed, and what the film says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedkl
from fedkl.core.errors import UserError
from fedkl.server.recording import Episode
from fedkl.training import evaluation
from fedkl.training.evaluation import Wanted


def asked(file: Path | None = None, **given: Any) -> Wanted:
    return Wanted(**({"video": file, "deterministic": True} | given))


def federation(clients: int = 60, preset: str = "demo") -> Any:
    settings = {} if preset == "figure-eight" else {"federation.clients": clients}
    config = fedkl.preset(preset, set=settings)
    return SimpleNamespace(config=config, state=SimpleNamespace(round=7))


def test_clients_are_spread_over_all_of_them():
    some = Path("film.mp4")
    assert evaluation.chosen(asked(), federation()) == []
    assert evaluation.chosen(asked(some), federation()) == [0]
    assert evaluation.chosen(asked(some, client=5), federation()) == [5]
    assert evaluation.chosen(asked(some, clients=4), federation(10)) == [0, 3, 6, 9]
    assert evaluation.chosen(asked(some, clients=10), federation(10)) == list(range(10))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"client": 3}, "--client says whose world is filmed, and needs --video"),
        ({"clients": 3}, "--clients says whose world is filmed, and needs --video"),
        ({"video": Path("f.gif"), "client": 1, "clients": 3}, "give one of them"),
        ({"video": Path("f.gif"), "client": 60}, "--client must be from 0 to 59, not 60"),
        ({"video": Path("f.gif"), "clients": 61}, "--clients must be from 1 to 60, not 61"),
        ({"video": Path("f.gif"), "clients": 0}, "--clients must be from 1 to 60, not 0"),
    ],
)
def test_who_cannot_be_filmed_is_told_in_a_sentence(given, message):
    with pytest.raises(UserError, match=message):
        evaluation.chosen(asked(**given), federation())


def test_clients_of_one_simulation_have_one_film():
    with pytest.raises(UserError, match="these share one"):
        evaluation.chosen(asked(Path("f.gif"), clients=3), federation(preset="figure-eight"))


def test_the_film_names_algorithm_round_speed_and_clients(tmp_path, monkeypatch):
    told: dict[str, Any] = {}

    def grid(scenes, heading, legend, width):
        told.update(captions=[s.captions for s in scenes], heading=heading, legend=legend)
        return iter(())

    monkeypatch.setattr(evaluation, "grid", grid)
    monkeypatch.setattr(evaluation, "write_video", lambda path, frames, fps: told.update(fps=fps))
    episodes = {
        n: Episode(iter([np.zeros((2, 2, 3), np.uint8)]), 10.0, [0.0, -n / 4]) for n in (0, 9)
    }
    written = evaluation.write(asked(tmp_path / "f.gif", clients=2), federation(10), episodes)
    assert told["heading"] == "fedkl on reacher, round 7, 0.2x"
    assert told["captions"] == [
        ["client 0, return 0", "client 0, return 0"],
        ["client 9, return 0", "client 9, return -2.25"],
    ]
    assert [name for name, _ in told["legend"]] == ["fingertip", "target", "where its targets are"]
    assert told["fps"] == 10.0
    assert written == {"file": str(tmp_path / "f.gif"), "clients": [0, 9], "returns": [0.0, -2.25]}
    assert evaluation.in_words(written).endswith("(returns: client 0 0, client 9 -2.250)")
    one = evaluation.write(asked(tmp_path / "f.gif"), federation(10), {9: episodes[9]})
    assert (one["client"], one["return"]) == (9, -2.25)
    assert evaluation.in_words(one).endswith("(client 9, return -2.250)")
