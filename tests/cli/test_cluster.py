"""The options for Ray, as a user meets them."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from children import python
from commands import call

from fedkl.cli import cluster as options
from fedkl.config.config import preset
from fedkl.experiments.ray_runs import OnRay
from fedkl.network.ray import connection
from fedkl.network.ray.connection import Cluster, RaySettings
from fedkl.network.ray.nodes import Node
from fedkl.training.directory import RunDirectory

TINY = [
    "federation.clients=4", "federation.clients_per_round=2", "learner.iterations=2",
    "learner.steps=64", "learner.epochs=2", "evaluation.episodes=2",
]  # fmt: skip
TRAIN = ["train", "probe-point", "--rounds", "2", "--set", *TINY]
COMPARE = [
    "compare", "probe-point", "--algorithms", "fedavg", "fedkl", "--seeds", "1", "--rounds", "2",
    "--set", *TINY,
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("command", [TRAIN, COMPARE])
def test_an_address_that_nobody_listens_on_is_answered_in_a_sentence(capsys, tmp_path, command):
    address = f"127.0.0.1:{free_port()}"
    code, out, err = call(capsys, *command, "--ray", address, "--run", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err.startswith(f"fedkl: no Ray cluster answers at {address}: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [TRAIN, COMPARE])
def test_without_ray_the_extra_is_named(capsys, tmp_path, monkeypatch, command):
    monkeypatch.setattr(connection, "find_spec", lambda name: None)
    code, _, err = call(capsys, *command, "--ray", "--run", tmp_path / "run")
    assert code == 2
    assert err == "fedkl: a cluster needs Ray; install it with `pip install -e '.[ray]'`\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--actors", "1"], "--actors is for the engine ray: say --engine ray, or --ray"),
        (["--engine", "ray", "--actors", "0"], "--actors must be at least 1, not 0"),
        (["--ray", "--actors", "100000"], "100000 actors are more than the "),
        (["--insecure-ray"], "--insecure-ray is for a cluster, whose address --ray gives"),
        (["--ray", "--insecure-ray"], "--insecure-ray is for a cluster, whose address --ray gives"),
        (
            ["--engine", "in-process", "--ray"],
            "--ray is for clients on a Ray cluster, and these are elsewhere",
        ),
    ],
)
def test_options_that_do_not_go_together_are_told_in_a_sentence(capsys, tmp_path, given, sentence):
    code, _, err = call(capsys, *TRAIN, *given, "--run", tmp_path / "run")
    assert code == 2
    assert err.startswith(f"fedkl: {sentence}")
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_actors_are_for_a_run_and_not_for_several(capsys, tmp_path):
    (tmp_path / "compare.toml").write_text("")
    code, _, err = call(capsys, "resume", tmp_path, "--ray", "--actors", "2")
    assert code == 2
    assert err == f"fedkl: --actors is for a run, and {tmp_path} holds several\n"


def test_a_run_is_not_made_longer_by_a_command_that_is_refused(capsys, tmp_path):
    made, run = preset("probe-point"), tmp_path / "run"
    RunDirectory.create(run, made.mapping())
    before = (run / "config.toml").read_bytes()
    for wrong in (["--ray", f"127.0.0.1:{free_port()}"], ["--actors", "2"]):
        code, _, _ = call(capsys, "resume", run, "--rounds", "7", *wrong)
        assert code == 2
        assert (run / "config.toml").read_bytes() == before


class Nowhere:
    """In the place of a connection: says what was asked for."""

    def __init__(self, monkeypatch):
        self.wanted = []
        monkeypatch.setattr(connection, "connected", self)

    def __call__(self, where):
        self.wanted.append(where)
        return self

    def __enter__(self):
        return Cluster((Node("a", "one", 3),))

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(
    ("given", "where", "actors"),
    [
        (["--engine", "ray"], RaySettings(None, False, None), 3),
        (["--ray"], RaySettings(None, False, None), 3),
        (["--engine", "ray", "--actors", "2"], RaySettings(None, False, 2), 2),
        (["--ray", "head:6379"], RaySettings("head:6379", False, None), 3),
        (
            ["--engine", "ray", "--ray", "head:6379", "--insecure-ray", "--actors", "1"],
            RaySettings("head:6379", True, 1),
            1,
        ),
    ],
)
def test_an_address_or_the_name_of_the_engine_asks_for_it(monkeypatch, given, where, actors):
    from fedkl.cli.parser import parser
    from fedkl.network.ray import engine

    there = Nowhere(monkeypatch)
    monkeypatch.setattr(engine, "Ray", lambda config, actors: (config, actors))
    with options.engine(parser().parse_args([*TRAIN, *given])) as engine_for:
        assert engine_for("a config") == ("a config", actors)
    assert there.wanted == [where]


def test_a_comparison_is_trained_on_the_cluster_that_it_names(monkeypatch):
    from fedkl.cli.parser import parser

    there = Nowhere(monkeypatch)
    given = [*COMPARE, "--ray", "head:6379", "--run", "x"]
    with options.place(parser().parse_args(given)) as place:
        assert isinstance(place, OnRay)
    assert there.wanted == [RaySettings("head:6379", False, None)]


def test_without_options_for_ray_nobody_is_connected(monkeypatch):
    from fedkl.cli.parser import parser
    from fedkl.server.setup import local_engine

    there = Nowhere(monkeypatch)
    with options.place(parser().parse_args([*COMPARE, "--run", "x"])) as place:
        assert place is None
    with options.engine(parser().parse_args(TRAIN)) as engine_for:
        assert engine_for is local_engine
    assert there.wanted == []


# What follows starts Rays of its own, through the command line.


def without_ray() -> dict[str, str]:
    """The environment, as it is for somebody who has set nothing for Ray."""
    return {n: x for n, x in os.environ.items() if not n.startswith("RAY_")}


def fedkl(*arguments, **options):
    return subprocess.Popen(
        python("-m", "fedkl", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=without_ray() | options,
    )


def finished(*arguments, **options):
    with fedkl(*arguments, **options) as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out, err


def comparable(run: Path):
    """Every metric but the time it took, and what is said of Ray alone."""
    records, apart = RunDirectory(run).metrics.read(), ("seconds", "time", "actors_replaced")
    return [{k: v for k, v in record.items() if k not in apart} for record in records]


def checkpoints(run: Path):
    return {p.name: p.read_bytes() for p in (run / "checkpoints").iterdir()}


def workers_of_ray() -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::rounds"):
            found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_a_comparison_on_ray_is_byte_for_byte_that_of_jobs_though_workers_are_killed(tmp_path):
    several = [*COMPARE[:6], "2", "--rounds", "20", "--set", *TINY]
    here, there = tmp_path / "here", tmp_path / "there"
    finished(*several, "--jobs", "2", "--run", here)
    killed: set[int] = set()
    with fedkl(*several, "--jobs", "2", "--ray", "--run", there) as process:
        while process.poll() is None:
            for worker in workers_of_ray():
                if worker not in killed and len(killed) < 3 and time.monotonic() % 2 < 1:
                    killed.add(worker)
                    os.kill(worker, signal.SIGKILL)
            time.sleep(0.3)
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert killed
    assert err == ""
    assert out.splitlines()[0] == "fedavg-seed0 started"
    assert (there / "compare.toml").read_bytes() == (here / "compare.toml").read_bytes()
    for run in ("fedavg-seed0", "fedavg-seed1", "fedkl-seed0", "fedkl-seed1"):
        assert comparable(there / run) == comparable(here / run)
        assert checkpoints(there / run) == checkpoints(here / run)


@pytest.mark.slow
def test_a_comparison_that_was_interrupted_on_ray_is_resumed_without(tmp_path):
    several = [*COMPARE[:6], "1", "--rounds", "60", "--set", *TINY]
    here, there = tmp_path / "here", tmp_path / "there"
    finished(*several, "--jobs", "2", "--run", here)
    with fedkl(*several, "--ray", "--run", there) as process:
        while not RunDirectory(there / "fedkl-seed0").metrics.read():
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == f"fedkl: interrupted; go on with `fedkl resume {there}`"
    assert len(comparable(there / "fedkl-seed0")) < 60
    finished("resume", there)
    for run in ("fedavg-seed0", "fedkl-seed0"):
        assert comparable(there / run) == comparable(here / run)


@pytest.fixture
def standing(tmp_path):
    """A cluster that somebody else has started, on loopback; its address, and what lets one in."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    alone = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    folder, port = tempfile.mkdtemp(dir="/tmp"), free_port()
    start = [
        Path(sys.executable).with_name("ray"), "start", "--head", "--block", f"--port={port}",
        "--num-cpus=2", "--include-dashboard=false", f"--temp-dir={folder}",
    ]  # fmt: skip
    head = subprocess.Popen(
        start,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=without_ray() | token | alone,
    )
    try:
        for _ in range(600):
            with socket.socket() as caller:
                if caller.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        time.sleep(3)  # its own node comes after its head
        yield f"127.0.0.1:{port}", token | alone
    finally:
        os.killpg(head.pid, signal.SIGKILL)
        head.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_standing_cluster_is_joined_with_its_token_and_stays(standing, tmp_path):
    address, token = standing
    finished(*COMPARE, "--jobs", "2", "--run", tmp_path / "here")
    for name in ("there", "again"):
        _, err = finished(*COMPARE, "--ray", address, "--run", tmp_path / name, **token)
        assert err == ""
        run = tmp_path / name / "fedkl-seed0"
        assert checkpoints(run) == checkpoints(tmp_path / "here" / "fedkl-seed0")
    finished(*TRAIN, "--ray", address, "--run", tmp_path / "trained", **token)
    assert checkpoints(tmp_path / "trained") == checkpoints(run)
    for wrong, sentence in (("nonsense", "refuses the token"), ("", "wants a token")):
        identity = token | {"RAY_AUTH_TOKEN": wrong, "HOME": str(tmp_path)}
        with fedkl(*TRAIN, "--ray", address, "--run", tmp_path / "no", **identity) as process:
            _, err = process.communicate(timeout=60)
        assert process.returncode == 2
        assert err.count("\n") == 1
        assert err.startswith(f"fedkl: the Ray cluster at {address} {sentence}")
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
def test_a_run_with_the_engine_ray_is_resumed_without_and_the_other_way_round(tmp_path):
    here, first, second = (tmp_path / name for name in ("here", "first", "second"))
    finished(*TRAIN, "--run", here)
    out, err = finished(*TRAIN, "--engine", "ray", "--actors", "1", "--run", tmp_path / "there")
    assert err == ""
    assert out.splitlines()[-1].startswith("probe-point fedkl seed 0: return ")
    assert comparable(tmp_path / "there") == comparable(here)
    assert checkpoints(tmp_path / "there") == checkpoints(here)
    for run in (first, second):
        RunDirectory.create(run, RunDirectory(here).config())
    finished("resume", first, "--until", "1", "--ray")
    finished("resume", first)
    finished("resume", second, "--until", "1")
    finished("resume", second, "--ray", "--actors", "1")
    for run in (first, second):
        assert comparable(run) == comparable(here)
        assert checkpoints(run) == checkpoints(here)
