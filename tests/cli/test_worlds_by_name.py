"""Worlds by name: `gym:ENV_ID` and `pettingzoo:MODULE`, with a user's own, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import call

from fedkl.config import config

TOYS = Path(__file__).parents[1] / "simulators" / "toys"
PLUGIN = TOYS / "toy_environments.py"
TINY = [
    "--rounds", "2", "--set", "learner.iterations=2", "learner.steps=50", "learner.epochs=2",
    "learner.minibatch=25", "critic.minibatch=25",
    "learner.hidden=[8]", "critic.hidden=[8]", "critic.epochs=2", "evaluation.episodes=1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def importable(toys, monkeypatch, tmp_path):
    """The toys can be imported, and nothing is left in the folder that tests are run from."""
    monkeypatch.syspath_prepend(toys)
    monkeypatch.chdir(tmp_path)


def said(err):
    """What is said on stderr, but for the warning that 50 steps are few."""
    few = "fedkl: warning: learner.steps = 50 is less than an episode"
    return [line for line in err.splitlines() if not line.startswith(few)]


def records(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("quick_compilation")
def test_an_environment_is_trained_by_its_id(capsys, tmp_path):
    code, out, err = call(capsys, "train", "gym:CartPole-v1", *TINY)
    assert (code, said(err)) == (0, [])
    assert out.splitlines()[-1].startswith("gym:CartPole-v1 fedkl seed 0: return ")
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("gym-CartPole-v1-fedkl-")
    assert run.name.endswith("-seed0")
    # Two clients, two iterations, exactly 50 steps in each, however early episodes end.
    assert [r["env_steps"] for r in records(run)] == [200, 400]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "runs"]


def test_a_resolved_config_has_the_environments_own_limit():
    resolved = config.from_mapping(config.preset("gym:Pendulum-v1").mapping())
    assert (resolved.preset, resolved.world.id) == ("gym:Pendulum-v1", "Pendulum-v1")
    assert resolved.mapping()["world"]["horizon"] == resolved.world.horizon == 200


@pytest.mark.usefixtures("quick_compilation")
def test_agents_of_pettingzoo_are_trained_by_their_module(capsys, tmp_path):
    code, _, err = call(capsys, "train", "pettingzoo:mpe2.simple_spread_v3", "--run", "run", *TINY)
    assert (code, said(err)) == (0, [])
    assert [r["env_steps"] for r in records(tmp_path / "run")] == [300, 600]


@pytest.mark.parametrize("name", ["Plain", "Pendulum", "Short"])
@pytest.mark.usefixtures("quick_compilation")
def test_a_users_own_environment_is_trained_with_a_plugin(capsys, tmp_path, name):
    arguments = ["train", f"gym:toys/{name}-v0", "--plugin", PLUGIN, "--run", "run", *TINY]
    code, _, err = call(capsys, *arguments)
    assert (code, said(err)) == (0, [])
    assert [r["env_steps"] for r in records(tmp_path / "run")] == [200, 400]
    # Whoever goes on with it, in a process of their own, needs no plugin on the command line.
    goes_on = [sys.executable, "-m", "fedkl", "evaluate", "run", "--episodes", "1"]
    done = subprocess.run(goes_on, capture_output=True, text=True, env=_without_toys())
    assert done.returncode == 0, done.stderr
    assert said(done.stderr) == []


def _without_toys():
    """So that the plugin alone registers the toys."""
    _, _, others = os.environ["PYTHONPATH"].partition(os.pathsep)
    return os.environ | {"PYTHONPATH": others}


def test_a_file_may_build_on_an_environment(tmp_path):
    (tmp_path / "mine.toml").write_text('extends = ["gym:Acrobot-v1"]\n[world]\nhorizon = 40\n')
    world = config.preset(str(tmp_path / "mine.toml")).world
    assert (world.id, world.horizon) == ("Acrobot-v1", 40)
    (tmp_path / "own.toml").write_text(
        'extends = ["gymnasium"]\n[world]\nid = "Acrobot-v1"\narguments = []\n'
    )
    assert config.preset(str(tmp_path / "own.toml")).world.horizon == 500


def test_other_settings_go_with_the_shorthand():
    settings = {"world.horizon": 90, "world.clients.gravity": [5, 15]}
    made = config.preset("gym:CartPole-v1", algorithm="fedavg", set=settings)
    assert made.world.horizon == 90
    assert made.clients()["gravity"].tolist() == [5, 15, 5, 15]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["gym:CartPol-v1"],
            "no Gymnasium environment 'CartPol-v1'; did you mean CartPole-v1",
        ),
        (["gym:"], "there is no preset 'gym:'"),
        (["gym:Hopper-v3"], "cannot be made: ImportError"),
        (["gym:toys/Image-v0"], "has image observations"),
        (["gym:toys/Text-v0"], "has Text observations"),
        (["gym:toys/Sequence-v0"], "has Sequence observations"),
        (["gym:toys/Multidiscrete-v0"], "has MultiDiscrete actions"),
        (["gym:toys/Multibinary-v0"], "has MultiBinary actions"),
        (["gym:toys/Make-v0"], "cannot be made: ValueError: no legs"),
        (["gym:toys/Endless-v0"], "world.horizon must say how many steps"),
        (["gym:toys/Raise-v0"], "raised ZeroDivisionError: the toy's own, in step 3"),
        (["gym:toys/Nan-v0"], "returned an observation that is not finite, in step 3"),
        (["gym:toys/Shape-v0"], "its space says (2,), in step 3 of an episode"),
        (["gym:toys/Reward-v0"], "returned a reward of inf, in step 3"),
        (
            ["gym:CartPole-v1", "--set", "world.clients.mass=2"],
            "world.clients.mass is not a parameter",
        ),
        (["pettingzoo:no_such_module"], "no_such_module cannot be imported"),
        (["pettingzoo:mpe2.simple_tag_v3"], "has agents with different spaces"),
        (["pettingzoo:toy_simulators"], "toy_simulators has no parallel_env"),
        (
            ["pettingzoo:toy_parallel", "--set", 'world.arguments=["what=raise"]'],
            "raised KeyError: 'lost', in step 2 of an episode",
        ),
        (
            [
                "pettingzoo:toy_parallel",
                "--set",
                'world.arguments=["leaves=[1, 2]"]',
                "federation.clients=3",
            ],
            "federation.clients must be 2",
        ),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
@pytest.mark.usefixtures("quick_compilation")
def test_what_cannot_be_used_is_refused_in_one_sentence(capsys, arguments, sentence):
    code, out, err = call(capsys, "train", *arguments, "--plugin", PLUGIN, *TINY)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    # Whoever mends it can give the same command again.
    assert all(path.name.endswith(".traceback.txt") for path in Path().glob("runs/*"))
