"""ServeSettings as a user meets it: what is refused, what is waited for, what is left behind."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from commands import call
from finished_runs import smallest
from left_behind import about, nothing_is_left_of

pytest.importorskip("flwr")

from flwr.cli.build import build_fab_from_disk

from fedkl.cli import network, serve
from fedkl.cli.parser import parser
from fedkl.config import config
from fedkl.core.errors import UserError
from fedkl.network import keys
from fedkl.network.flower import app_allowlist
from fedkl.network.flower.serve_settings import ServeSettings
from fedkl.network.messages import new_federation
from fedkl.network.status import FOLDER
from fedkl.server.aggregation.reducers import suggested
from fedkl.server.loop import Federation
from fedkl.training import lifecycle
from fedkl.training.directory import RunDirectory

TINY = [
    "--set", "learner.iterations=2", "learner.steps=64", "learner.epochs=2",
    "evaluation.episodes=2", "evaluation.every=100",
]  # fmt: skip


TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def options(*arguments):
    return parser().parse_args(["serve", *map(str, arguments)])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"federation.clients_per_round": 10, "aggregation.reduce": "mean"},
            "mean trusts every client: one of 10 that lies moves the model by up to 0.5 times the "
            "usual move in each round, in any direction, and the statistics likewise "
            "(docs/validation.md); where a client may lie: --set "
            "aggregation.reduce=multi-krum aggregation.byzantine=2",
        ),
        (
            {"federation.clients_per_round": 3},
            "where a client may lie: --set aggregation.reduce=median",
        ),
        ({"federation.clients_per_round": 2}, "where a client may lie, select at least 3"),
        (
            {"federation.max_move_factor": float("inf")},
            "moves the model by any length in each round",
        ),
        (
            {"aggregation.reduce": "grouped", "aggregation.within": "median"},
            "mean trusts every client",
        ),
        ({"aggregation.reduce": "median"}, None),
    ],
)
def test_off_loopback_it_is_said_what_a_mean_trusts_and_what_is_suggested(
    settings, said, monkeypatch
):
    told = []
    monkeypatch.setattr(network, "warn", told.append)
    chosen = config.preset("reacher-iid", "fedkl", 0, settings)
    monkeypatch.setattr(network.checks, "check_port", lambda *_: None)

    def advice(host):
        told.clear()
        network.check_servable(
            ServeSettings(host, 9092, None, 0, False, 60.0, new_federation()), chosen
        )
        return [line for line in told if "everybody who reaches the port" not in line]

    found = advice("192.0.2.1")
    assert (found == []) if said is None else (said in found[0])
    assert advice("127.0.0.1") == []


def test_what_is_suggested_can_be_trained():
    for k in 3, 4, 5, 60:
        settings = {"federation.clients_per_round": k} | suggested(k)
        config.preset("reacher-iid", "fedkl", 0, settings)
    assert suggested(2) == {}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "clients that reach 0.0.0.0 over a network need --keys"),
        (["--host", "example.org"], "clients that reach example.org over a network need --keys"),
        (["--local", "0"], "--local must be at least 1, not 0"),
        (["--local", "3", "--insecure-network"], "--local makes keys of its own"),
        (["--local", "3", "--host", "0.0.0.0"], "--local makes keys of its own"),
        (["--keys", "k", "--insecure-network"], "--insecure-network uses no keys"),
        (["--wait", "0"], "--wait must be a number of seconds above 0, not 0"),
        (["--wait", "nan"], "--wait must be a number of seconds above 0, not nan"),
        (["--port", "70000"], "--port must be from 1 to 65535, not 70000"),
        (["--keys", "gone"], "gone"),
        (["--superlink", "localhost"], "'localhost' is not an address such as"),
        (["--superlink", "[::1]:9", "--local", "3"], "--superlink says where somebody else's"),
        (["--superlink", "127.0.0.1:9", "--port", "9"], "--superlink says where somebody else's"),
        (["--superlink", "10.0.0.1:9"], "clients that reach 10.0.0.1 over a network need --keys"),
        (["--superlink", "127.0.0.1:9"], "no server listens on 127.0.0.1:9"),
        (["--local", "1", "--set", "federation.quorum=2"], "federation.quorum must be at most"),
    ],
)
def test_a_mistake_ends_in_one_sentence_and_code_2_and_writes_nothing(
    tmp_path, monkeypatch, capsys, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "serve", "probe-point", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_clients_that_share_a_world_cannot_be_served(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "serve", "figure-eight")
    assert code == 2
    assert "clients that share one world cannot be on different machines" in err
    assert list(tmp_path.iterdir()) == []


def test_data_that_are_to_be_in_one_place_are_refused_over_a_network(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "serve", "probe-point", "--set", "federation.data=pooled")
    assert code == 2
    assert "federation.data must be own over a network, not pooled" in err
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_in_use_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code, _, err = call(capsys, "serve", "probe-point", "--port", port)
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in err
    assert list(tmp_path.iterdir()) == []


def test_every_client_needs_a_key(tmp_path, capsys):
    keys.make(tmp_path / "keys", 2)
    code, _, err = call(
        capsys, "serve", "probe-point", "--keys", tmp_path / "keys", "--run", tmp_path / "run",
        "--set", "federation.clients=3", "--port", 19_092,
    )  # fmt: skip
    assert code == 2
    assert "keys has no key of client 2, and federation.clients is 3: run `fedkl keys " in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "clients", "per_round"),
    [
        ([], 2, 2),
        (["--set", "federation.clients_per_round=1"], 2, 1),
        (["--set", "federation.clients=5"], 5, 3),
    ],
)
def test_a_federation_on_this_machine_has_as_many_clients_as_it_is_told(
    arguments, clients, per_round
):
    chosen = serve._config(options("demo", "--local", 2, *arguments))
    assert chosen.federation.clients == clients
    assert chosen.federation.clients_per_round == per_round


def test_too_few_clients_end_it_with_code_3_after_a_while(tmp_path, capsys):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    code, _, err = call(
        capsys,
        "serve",
        "probe-point",
        "--wait",
        1,
        "--port",
        port,
        "--run",
        tmp_path / "run",
        *TINY,
    )
    assert code == 3
    lines = err.splitlines()
    assert "everybody who reaches the port can take part" in lines[0]
    serving = rf"fedkl: {TIME} serving on 127\.0\.0\.1:{port}; clients may join"
    assert re.fullmatch(serving, lines[1])
    assert lines[2].startswith("fedkl: only 0 of ")
    assert (tmp_path / "run" / "serving.toml").exists()
    nothing_is_left_of(tmp_path)
    # A unit that starts again goes on with the run, and waits for clients as before.
    code, _, err = call(capsys, "resume", tmp_path / "run")
    assert code == 3
    assert re.search(serving, err)
    assert "fedkl: only 0 of " in err
    nothing_is_left_of(tmp_path)


@pytest.fixture
def served(tmp_path):
    """A run that is served on this machine, before its first round."""
    chosen = serve._config(options("probe-point", "--local", 2, *TINY))
    run = RunDirectory.create(tmp_path / "run", chosen.mapping())
    ServeSettings("127.0.0.1", 0, None, 2, False, 60.0, new_federation()).write(run.path)
    return run


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_run_that_another_process_serves_is_left_alone(served, capsys, command):
    with RunDirectory.open(served.path).lock():
        code, _, err = call(capsys, command, served.path)
    assert code == 2
    assert err == f"fedkl: {served.path} is in use by process {os.getpid()}\n"
    assert not (served.path / FOLDER).exists()


def test_a_run_is_held_until_nothing_that_serves_it_is_left(tmp_path, monkeypatch, capsys):
    held = []

    @contextlib.contextmanager
    def serving_it(run, *_):
        def look():
            with pytest.raises(UserError, match="is in use by process"):
                RunDirectory.open(run.path).lock().__enter__()
            held.append(True)

        look()
        yield
        look()

    monkeypatch.setattr(network, "connecting", serving_it)
    monkeypatch.setattr(lifecycle, "run_remaining", lambda *_: None)
    run = tmp_path / "run"
    assert call(capsys, "serve", "probe-point", "--local", 2, "--run", run, *TINY)[0] == 0
    assert call(capsys, "resume", run)[0] == 0
    assert len(held) == 4


@pytest.fixture
def superlink(tmp_path):
    """Somebody else's, on loopback; its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    folder = Path(sys.executable).parent
    environment = {**os.environ, "FLWR_HOME": str(tmp_path / "home"), "FLWR_TELEMETRY_ENABLED": "0"}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    process = subprocess.Popen(
        [
            folder / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port),
            "--disable-runtime-dependency-installation",
        ],
        env=environment, start_new_session=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_a_superlink_that_runs_is_used_and_left_alone_and_clients_evaluate(tmp_path, superlink):
    fedkl, run = [sys.executable, "-m", "fedkl"], tmp_path / "run"
    clients = [
        subprocess.Popen(
            [*fedkl, "join", superlink, "--client", str(client), "--insecure-network"],
            cwd=tmp_path, stderr=subprocess.DEVNULL,
        )
        for client in range(2)
    ]  # fmt: skip
    asked = ["--set", "federation.clients=2", "federation.clients_per_round=2"]
    commands = [
        ["serve", "probe-point", "--superlink", superlink, "--rounds", "2", "--run", run, *TINY],
        ["evaluate", run, "--episodes", "3", "--json"],
    ]
    commands[0] += asked
    try:
        served, evaluated = (
            subprocess.run([*fedkl, *command], capture_output=True, text=True, timeout=300)
            for command in commands
        )
    finally:
        for client in clients:
            client.terminate()
        codes = [client.wait(30) for client in clients]
    assert served.returncode == 0, served.stderr
    assert evaluated.returncode == 0, evaluated.stderr
    assert codes == [0, 0]
    returns = json.loads(evaluated.stdout)["return_per_client"]
    here = Federation(config.from_mapping(RunDirectory.open(run).config()))
    here.run_round()
    here.run_round()
    assert returns == here.evaluate(3, False).mean(axis=1).astype(float).tolist()


PLANTED = """
from pathlib import Path
Path({ran!r}).touch()
from fedkl.network.flower.relay import app
"""


def plant(run, ran):
    """Puts into a run's directory all that Flower, or a shell, would run if it were asked."""
    app = app_allowlist.APP.parent
    with warnings.catch_warnings(action="ignore"):  # of Flower's
        digest = hashlib.sha256(build_fab_from_disk(app)).hexdigest()[:8]
    for folder in ("flower", "flower/node-0", "flower/node-1"):
        home = run / folder / "home" / "apps" / f"fedkl.fedkl-messages.1.0.0.{digest}"
        home.mkdir(parents=True)
        text = app_allowlist.APP.read_text().replace("fedkl.network.flower.relay:app", "evil:app")
        text = text.replace("fedkl.network.flower.client_app:app", "evil:app")
        (home / "pyproject.toml").write_text(text)
        (home / "evil.py").write_text(PLANTED.format(ran=str(ran)))
        for name in ("bin/flwr-clientapp", "bin/uname", "commands/flwr-serverapp", "commands/env"):
            script = run / folder / name
            script.parent.mkdir(exist_ok=True)
            script.write_text(f"#!/bin/sh\ntouch {ran}\n")
            script.chmod(0o700)
    (run / "flower" / "secret").write_text("0" * 64)
    (run / "flower" / "keys").mkdir()
    for name in ("ca.crt", "ca.key", "server.crt", "server.key", "client-0.key", "client-0.pub"):
        (run / "flower" / "keys" / name).write_text("whose reader fails")
    for folder in (run / "flower").rglob("*"):
        folder.chmod(0o700)
    (run / "flower").chmod(0o700)


def test_nothing_in_a_run_directory_is_run(served, tmp_path, capsys):
    run = served.path
    plant(run, tmp_path / "ran")
    for command in (["resume", run, "--until", 1], ["evaluate", run, "--episodes", 1]):
        code, _, err = call(capsys, *command)
        assert not (tmp_path / "ran").exists()
        assert code == 0, err
    code, out, _ = call(capsys, "check", run)
    assert code == 2
    for path in ("home", "commands", "bin", "secret", "keys", "node-0/home", "node-1/bin"):
        assert f"{run / 'flower' / path} is not of a run" in out
    for path in ("home", "commands", "bin", "keys", "node-0", "node-1"):
        shutil.rmtree(run / "flower" / path)
    (run / "flower" / "secret").unlink()
    assert call(capsys, "check", run)[0] == 0
    nothing_is_left_of(tmp_path)


@pytest.mark.parametrize("name", ["flower", "flower/home", "flower/keys", "flower/superlink.log"])
def test_what_flower_keeps_is_not_kept_elsewhere(tmp_path, capsys, name):
    """Keys, logs and clients' states would be written through the link."""
    run = lifecycle.create(smallest(), tmp_path / "run")
    ServeSettings("127.0.0.1", 0, None, 3, False, 1.0, new_federation()).write(run.path)
    (tmp_path / "elsewhere").mkdir()
    (run.path / name).parent.mkdir(exist_ok=True, mode=0o700)
    (run.path / name).symlink_to(tmp_path / "elsewhere")
    code, _, err = call(capsys, "resume", run.path)
    assert code == 2
    assert f"{run.path / name} is a symbolic link" in err
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found by /proc")
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_federation_that_is_ended_leaves_nothing_and_is_resumed(tmp_path, child, by):
    run = tmp_path / "run"
    fedkl = [sys.executable, "-m", "fedkl"]
    first = child(
        "-m", "fedkl", "serve", "probe-point", "--local", "2", "--rounds", "40", "--run", run, *TINY
    )
    for line in first.stdout:
        if line.startswith("round 2/"):
            break
    assert len(about(tmp_path)) > 6
    first.send_signal(by)
    _, err = first.communicate(timeout=60)
    nothing_is_left_of(tmp_path)
    if by is not signal.SIGKILL:
        assert first.returncode == 130
        assert f"fedkl: interrupted; go on with `fedkl resume {run}`" in err
    again = subprocess.run(
        [*fedkl, "resume", run, "--until", "4"],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == [1, 2, 3, 4]
    nothing_is_left_of(tmp_path)
