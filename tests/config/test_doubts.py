"""Settings that work, and that can hardly be meant."""

import pytest

import fedkl
from fedkl.config import presets
from fedkl.config.checks import doubts


@pytest.mark.parametrize(
    ("preset", "settings", "sentence"),
    [
        (
            "probe-point",
            {"learner.minibatch": 512, "learner.steps": 256},
            "learner.minibatch = 512 is more than the 256 samples of an iteration: each epoch is "
            "one gradient step on all of them",
        ),
        ("probe-point", {"critic.minibatch": 512}, "critic.minibatch = 512 is more than the 256"),
        (
            "reacher-dynamics",
            {"learner.steps": 40, "learner.minibatch": 50, "critic.minibatch": 50},
            "learner.steps = 40 is less than an episode of reacher may have (50): an iteration "
            "collects one whole episode",
        ),
        (
            "pendulum",
            {"learner.steps": 100, "learner.collect": "steps"},
            "learner.steps = 100 is less than an episode of pendulum may have (200): no client "
            "learns from what comes after step 100",
        ),
        ("demo", {"learner.ratio_bounds": [1.2, 5.0]}, "learner.ratio_bounds = [1.2, 5.0] leaves "),
        ("demo", {"learner.c2": 50.0}, "learner.c2 = 50.0 is outside of its own bounds"),
        ("demo", {"algorithm.c1": 50.0}, "algorithm.c1 = 50.0 is outside of its own bounds"),
        (
            "cartpole",
            {"world.clients.gravity": [5, 6, 7], "federation.clients": 2,
             "federation.clients_per_round": 2},
            "world.clients.gravity lists 3 values for 2 clients: those at its end are nobody's",
        ),
    ],
)  # fmt: skip
def test_what_can_hardly_be_meant_is_one_sentence(preset, settings, sentence):
    (found,) = doubts(fedkl.preset(preset, set=settings))
    assert found.startswith(sentence)


def test_a_client_cannot_send_more_observations_than_it_collects():
    settings = {"algorithm.anchors": "shared", "learner.steps": 16, "learner.minibatch": 16}
    config = fedkl.preset("probe-point", "fedkl-anchored", set={**settings, "critic.minibatch": 16})
    assert doubts(config) == ["a client sends 24 observations in a round, and collects 16"]


@pytest.mark.parametrize("name", sorted({*presets.summaries()} - {"gymnasium", "pettingzoo"}))
def test_no_preset_is_doubted(name):
    assert doubts(fedkl.preset(name)) == []


def test_python_warns_and_trains(tmp_path):
    settings = {"learner.iterations": 1, "learner.steps": 16, "federation.rounds": 1,
                "learner.minibatch": 16, "evaluation.episodes": 1}  # fmt: skip
    said = []
    path = fedkl.train(
        fedkl.preset("probe-point", set=settings), tmp_path / "run", warn=said.append
    )
    assert [sentence.split(" is more")[0] for sentence in said] == ["critic.minibatch = 64"]
    assert len(fedkl.records(path)) == 1
