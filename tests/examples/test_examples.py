"""The examples do what they show, without touching the package."""

import importlib.util
import json
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
from fedkl.clients import LEARNERS
from fedkl.clients.upload import UPLOADS
from fedkl.learning.distributions import DISTANCES, Gaussian, sqrt_kl
from fedkl.learning.penalty import SCHEDULES
from fedkl.learning.policy_optimisation import HookInput, PolicyBatch
from fedkl.server.aggregation import REDUCERS, STEPS
from fedkl.server.selection import SELECTORS, Pool
from fedkl.worlds import WORLDS, Differences

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """What an example registers is forgotten after the test."""
    for registry in (
        ALGORITHMS, DISTANCES, LEARNERS, REDUCERS, SCHEDULES, SELECTORS, STEPS, UPLOADS, WORLDS
    ):  # fmt: skip
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOT_STANDARDISED = [
    "--set",
    "federation.observation_statistics=none",
    "federation.reward_statistics=none",
]
HALF_WAY = "algorithm.c1_adapted=half_way"
LONGEST = {
    "own_algorithm": 60,
    "own_distance": 40,
    "own_engine": 50,
    "own_learner": 120,
    "own_world": 80,
    "own_reducer": 40,
    "own_selector": 40,
    "own_server_step": 40,
    "own_upload": 40,
    "mlflow_callback": 32,
    "wandb_callback": 32,
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
        ("own_upload", ["--set", 'upload.each=["top"]']),
        (
            "own_distance",
            ["--algorithm", "fedkl", "--set", "algorithm.distance=hellinger", HALF_WAY],
        ),
        (
            "own_learner",
            ["--set", "learner.name=evolution", "--algorithm", "fedavg", *NOT_STANDARDISED],
        ),
    ],
)
def test_a_plugin_works_from_the_command_line_and_resumes(tmp_path, name, chosen):
    def run(*arguments):
        command = [sys.executable, "-m", "fedkl", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    plugin = ["--plugin", str(EXAMPLES / f"{name}.py"), *chosen]
    run("train", "probe-point", *plugin, "--rounds", "1", "--run", "run")
    config = tmp_path / "run" / "config.toml"
    assert chosen[1].split("=")[-1].strip('[]"') in config.read_text()
    config.write_text(re.sub(r"rounds = 1\b", "rounds = 2", config.read_text(), count=1))
    assert "round 2/2" in run("resume", "run").stdout


def test_own_learner_learns_without_a_gradient(capsys):
    """On a point that is to be met, whose best return is 0."""
    load("own_learner").main("probe-point", "12")
    returns = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert np.mean(returns[-3:]) > np.mean(returns[:3]) + 0.1


def test_own_upload_sends_the_numbers_that_moved_furthest():
    top = load("own_upload").Top(share=0.4)
    sent = top(np.array([0.1, -3.0, 0.0, 2.0, -0.5]), None)
    assert sent.tolist() == [0.0, -3.0, 0.0, 2.0, 0.0]


def test_own_distance_is_hellingers_by_integration():
    """1 - integral of sqrt(p q), on a grid; in two dimensions integrals multiply."""
    grid = np.linspace(-12, 12, 20_001)

    def density(mean, deviation):
        z = (grid - mean) / deviation
        return np.exp(-(z**2) / 2) / deviation / np.sqrt(2 * np.pi)

    means, deviations = [(0.3, -1.0), (1.1, 0.5)], [(0.7, 1.2), (1.5, 0.9)]
    overlaps = [
        np.trapezoid(np.sqrt(density(m[0], d[0]) * density(m[1], d[1])), grid)
        for m, d in zip(zip(*means, strict=True), zip(*deviations, strict=True), strict=True)
    ]
    p, q = (Gaussian(np.array([m]), np.log(d)) for m, d in zip(means, deviations, strict=True))
    module = load("own_distance")
    expected = np.sqrt(1 - np.prod(overlaps))
    assert float(module.hellinger(p, q)[0]) == pytest.approx(expected, abs=1e-5)
    assert float(module.hellinger(p, p)[0]) == 0
    targets = [float(module.half_way(i, 4, 0.6)) for i in range(4)]
    assert targets == pytest.approx([0.3, 0.6, 0.6, 0.6])


def test_own_engine_loses_clients_and_the_others_train(capsys):
    load("own_engine").main("probe-point", "6")
    absent = [
        json.loads(line.split("absent: ")[1]) for line in capsys.readouterr().out.splitlines()
    ]
    assert len(absent) == 6
    assert any(absent)
    assert not all(absent)


def test_own_engine_that_loses_nobody_changes_no_bit():
    config = fedkl.preset("probe-point", set={"federation.rounds": 2})
    dropout = load("own_engine").Dropout
    plain, around = (
        list(fedkl.Federation(config, wrap(fedkl.local_engine(config))))
        for wrap in (lambda engine: engine, lambda engine: dropout(engine, 0.0))
    )
    assert [r["return_per_client"] for r in plain] == [r["return_per_client"] for r in around]


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


class FakeRun:
    """A run of Weights & Biases."""

    def __init__(self, **options):
        self.options, self.steps, self.code = options, {}, None

    def log(self, numbers, step):
        self.steps[step] = numbers

    def finish(self, exit_code):
        self.code = exit_code


def wandb_stub():
    """A package whose runs are listed."""
    stub = types.ModuleType("wandb")
    stub.runs = []

    def init(**options):
        stub.runs.append(FakeRun(**options))
        return stub.runs[-1]

    stub.init = init
    return stub, lambda: stub.runs


def mlflow_stub():
    """A package that tells runs apart by their ids alone."""
    stub, runs = types.ModuleType("mlflow"), []

    class Client:
        def create_run(self, experiment, run_name):
            runs.append(FakeRun(experiment=experiment, id=run_name))
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id=len(runs) - 1))

        def set_terminated(self, run_id, status):
            runs[run_id].code = {"FINISHED": 0, "FAILED": 1}[status]

    stub.MlflowClient = Client
    stub.set_experiment = lambda name: types.SimpleNamespace(experiment_id=name)
    stub.log_params = lambda params, run_id: runs[run_id].options.update(config=params)
    stub.log_metrics = lambda numbers, step, run_id: runs[run_id].log(numbers, step)
    return stub, lambda: runs


@pytest.mark.parametrize(
    ("name", "kind", "make", "learner"),
    [
        ("wandb_callback", "WandbCallback", wandb_stub, lambda config: config["learner"]["epochs"]),
        ("mlflow_callback", "MlflowCallback", mlflow_stub, lambda config: config["learner.epochs"]),
    ],
)
def test_callbacks_tell_their_services_also_of_several_runs_at_a_time(
    tiny, tmp_path, monkeypatch, name, kind, make, learner
):
    stub, runs = make()
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    callback_of = getattr(load(name), kind)
    first, second = (callback_of(*["mine"] * (stub.__name__ == "wandb")) for _ in range(2))

    class Inside(fedkl.Callback):
        """Trains another run between two rounds of the first."""

        def on_round(self, record):
            if record["round"] == 1:
                config = tiny(federation__rounds=1, learner__epochs=3)
                fedkl.train(config, tmp_path / "b", [second])

    fedkl.train(tiny(federation__rounds=2), tmp_path / "a", [first, Inside()])
    for run, path, epochs in zip(runs(), "ab", (tiny().learner.epochs, 3), strict=True):
        records = fedkl.records(tmp_path / path)
        assert [*run.steps] == [record["round"] for record in records]
        returns = [numbers["return_mean"] for numbers in run.steps.values()]
        assert returns == [record["return_mean"] for record in records]
        assert run.options["id"].endswith(path)
        assert learner(run.options["config"]) == epochs
        assert run.code == 0


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
