"""The examples do what they show, without touching the package."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedkl.algorithms import ALGORITHMS
from fedkl.learning.distributions import Gaussian, sqrt_kl
from fedkl.learning.policy_optimisation import View
from fedkl.worlds import WORLDS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """What an example registers is forgotten after the test."""
    for registry in (ALGORITHMS, WORLDS):
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "lines"), [("own_algorithm", 60), ("own_world", 80)])
def test_examples_are_short(name, lines):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < lines


def test_own_algorithm_trains_from_the_script(capsys):
    load("own_algorithm").main("probe-point", "2")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["round 1", "round 2"]


def test_own_algorithm_measures_the_other_direction():
    algorithm = load("own_algorithm").ReverseFedKL()
    wide, narrow = (Gaussian(np.zeros((1, 1)), np.full(1, s)) for s in (0.5, -0.5))
    view = View(None, narrow, None, wide, np.ones(1))
    reverse, forward = algorithm.distance_to_global(view), sqrt_kl(wide, narrow)[0]
    assert float(reverse) == pytest.approx(float(sqrt_kl(narrow, wide)[0]))
    assert reverse < forward
    assert algorithm.penalty({"c1": 3.0}, view) == pytest.approx(3 * float(reverse))


def test_own_algorithm_works_from_the_command_line_and_resumes(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "fedkl", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    plugin = ["--plugin", str(EXAMPLES / "own_algorithm.py"), "--algorithm", "fedkl-reverse"]
    run("train", "probe-point", *plugin, "--rounds", "1", "--run", "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(re.sub(r"rounds = 1\b", "rounds = 2", config.read_text()))
    assert "round 2/2" in run("resume", "run").stdout


def test_own_world_trains_from_the_script(capsys):
    load("own_world").main("1")
    assert capsys.readouterr().out.startswith("round 1: return -")


def test_own_world_is_a_pendulum():
    module = load("own_world")
    world = module.Pendulum()
    gravity = np.asarray(world.clients(3, None).gravity)
    assert gravity.tolist() == [2.0, 7.0, 12.0]
    still, leaning = (module.Swing(np.float32(a), np.float32(0.0)) for a in (0.0, 0.1))
    heavy, light = (module.Planet(np.float32(g)) for g in (12.0, 2.0))
    push = np.zeros(1, np.float32)
    upright = world.step(heavy, still, push, None)
    assert float(upright.reward) == float(upright.state.speed) == 0.0
    falls = [float(world.step(p, leaning, push, None).state.speed) for p in (heavy, light)]
    assert falls == pytest.approx([0.05 * 1.5 * g * np.sin(0.1) for g in (12.0, 2.0)], rel=1e-5)


@pytest.mark.slow
def test_own_world_learns(capsys):
    load("own_world").main()
    returns = [float(r) for r in re.findall(r"return (-[\d.]+)", capsys.readouterr().out)]
    assert len(returns) == 20
    assert returns[0] < -100
    assert returns[-1] > -10
