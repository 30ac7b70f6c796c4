"""The examples do what they show, without touching the package."""

import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import ALGORITHMS
from fedkl.learning.distributions import Gaussian, sqrt_kl
from fedkl.learning.policy_optimisation import HookInput, PolicyBatch
from fedkl.server.aggregation import REDUCERS, STEPS
from fedkl.server.selection import SELECTORS, Pool
from fedkl.worlds import WORLDS, Differences

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """What an example registers is forgotten after the test."""
    for registry in (ALGORITHMS, WORLDS, REDUCERS, STEPS, SELECTORS):
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LONGEST = {
    "own_algorithm": 60,
    "own_world": 80,
    "own_reducer": 40,
    "own_selector": 40,
    "own_server_step": 40,
    "mlflow_callback": 25,
    "wandb_callback": 25,
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path):
    assert len(path.read_text().splitlines()) < LONGEST[path.stem]


def test_own_algorithm_trains_from_the_script(capsys):
    load("own_algorithm").main("probe-point", "2")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["round 1", "round 2"]


def test_own_algorithm_measures_the_other_direction():
    algorithm = load("own_algorithm").ReverseFedKL()
    wide, narrow = (Gaussian(np.zeros((1, 1)), np.full(1, s)) for s in (0.5, -0.5))
    nothing = dict.fromkeys(HookInput._fields)
    batch = PolicyBatch(**dict.fromkeys(PolicyBatch._fields))._replace(weight=np.ones(1))
    at = HookInput(**nothing)._replace(
        coefficients={"c1": 3.0}, actions=narrow, global_actions=wide, batch=batch
    )
    reverse, forward = algorithm.distance_to_global(at), sqrt_kl(wide, narrow)[0]
    assert float(reverse) == pytest.approx(float(sqrt_kl(narrow, wide)[0]))
    assert reverse < forward
    assert algorithm.penalty(at) == pytest.approx(3 * float(reverse))


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("own_algorithm", ["--algorithm", "fedkl-reverse"]),
        ("own_reducer", ["--set", "aggregation.reduce=screened-mean"]),
        ("own_selector", ["--set", "selection.name=low-return-first"]),
        ("own_server_step", ["--set", "aggregation.step=lion"]),
    ],
)
def test_a_plugin_works_from_the_command_line_and_resumes(tmp_path, name, chosen):
    def run(*arguments):
        command = [sys.executable, "-m", "fedkl", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    plugin = ["--plugin", str(EXAMPLES / f"{name}.py"), *chosen]
    run("train", "probe-point", *plugin, "--rounds", "1", "--run", "run")
    config = tmp_path / "run" / "config.toml"
    assert chosen[1].split("=")[-1] in config.read_text()
    config.write_text(re.sub(r"rounds = 1\b", "rounds = 2", config.read_text(), count=1))
    assert "round 2/2" in run("resume", "run").stdout


def test_own_reducer_leaves_out_who_is_far():
    reducer = load("own_reducer").ScreenedMean()
    # The median is 2; distances are 2, 1, 0, 1 and 98, and 2 times their median is 2.
    points = np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])
    assert reducer(points, np.array([1.0, 1.0, 1.0, 3.0, 9.0])).tolist() == [2.0]
    assert reducer(points[:1], np.ones(1)).tolist() == [0.0]


def test_own_selector_asks_the_new_first_and_then_those_who_do_badly():
    selector = load("own_selector").LowReturnFirst(luck=0.0)
    pool = Pool(4, 2, jax.random.key(0))
    state = selector.init(4)
    assert selector(state, 0, pool) == selector(state, 0, pool)
    state = selector.observe(state, 0, [0, 1], {0: {"train_return": 5.0}})
    state = selector.observe(state, 1, [1, 2], {n: {"train_return": -float(n)} for n in (1, 2)})
    # Client 3 is new, and client 2 is the worst of the others.
    assert selector(state, 2, pool) == [2, 3]


def test_own_server_step_goes_by_signs():
    optimiser = load("own_server_step").Lion(server_learning_rate=0.5).optimiser()
    gradient = np.array([-3.0, 0.001])
    moves, _ = optimiser.update(gradient, optimiser.init(gradient))
    assert moves.tolist() == [0.5, -0.5]


class FakeService(types.ModuleType):
    """In the place of a service's package: writes down how it is called."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def __getattr__(self, function):
        return lambda *args, **options: self.calls.append((function, args, options))


@pytest.mark.parametrize(
    ("name", "package", "first", "each", "last"),
    [
        ("wandb_callback", "wandb", "init", "log", "finish"),
        ("mlflow_callback", "mlflow", "start_run", "log_metrics", "end_run"),
    ],
)
def test_callbacks_tell_their_services(
    tiny, tmp_path, monkeypatch, name, package, first, each, last
):
    service = FakeService(package)
    monkeypatch.setitem(sys.modules, package, service)
    module = load(name)
    callback = module.WandbCallback("mine") if package == "wandb" else module.MlflowCallback()
    fedkl.train(tiny(federation__rounds=2), tmp_path / "run", [callback])
    called = [function for function, _, _ in service.calls]
    assert called[0] == first
    assert called[-3:] == [each, each, last]
    (_, (numbers,), options) = service.calls[-2]
    record = fedkl.records(tmp_path / "run")[1]
    assert numbers["return_mean"] == record["return_mean"]
    assert options == {"step": 2}


def test_own_world_trains_from_the_script(capsys):
    load("own_world").main("1")
    assert capsys.readouterr().out.startswith("round 1: return -")


def test_own_world_is_a_pendulum():
    module = load("own_world")
    world = module.Pendulum(differences=Differences.from_table({"gravity": [2, 7, 12]}))
    clients = world.clients(3, jax.random.key(0))
    assert isinstance(clients, module.Planet)
    assert clients.gravity.tolist() == [2.0, 7.0, 12.0]
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
