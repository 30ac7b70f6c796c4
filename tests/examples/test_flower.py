"""The plain Flower app gives what training in this process gives."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fedkl
from fedkl.network.flower.environment import flower_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
SETTINGS = {
    "federation.clients": 2,
    "federation.clients_per_round": 2,
    "federation.rounds": 2,
    "learner.iterations": 2,
    "learner.steps": 40,
}


def load(name):
    pytest.importorskip("flwr")
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Message:
    """Flower's message, which can be made only in Flower's own processes."""

    def __init__(self, content, node=None, kind="", reply_to=None):
        self.content, self.node, self.kind, self.error = content, node, kind, None
        self.metadata = SimpleNamespace(reply_to_message_id=reply_to)

    def has_error(self):
        return self.error is not None


class Grid:
    """Flower's Grid, but for the network: each message is answered when somebody looks."""

    def __init__(self, folder, client_app, server_app):
        self.folder, self.client_app, self.server_app = folder, client_app, server_app
        self.waiting = {}
        self.errors = {}
        """Of nodes whose next answer is one."""

    def get_node_ids(self):
        return [71, 17]

    def push_messages(self, messages):
        for message in messages:
            assert message.kind == "query"
            number = str(len(self.waiting))
            self.waiting[number] = message
            yield number

    def pull_messages(self, numbers):
        for number in numbers:
            message = self.waiting[number]
            context = SimpleNamespace(node_config={"state": self.folder}, node_id=message.node)
            if message.node in self.errors:
                reply = Message({})
                reply.error = SimpleNamespace(reason=self.errors.pop(message.node))
            else:
                reply = self.client_app.query(message, context)
            reply.metadata.reply_to_message_id = number
            yield reply


@pytest.fixture
def grid(tmp_path, monkeypatch):
    apps = load("client_app"), load("server_app")
    for app in apps:
        monkeypatch.setattr(app, "Message", Message)
    return Grid(tmp_path / "states", *apps)


def test_the_files_are_short():
    for name in ("server_app", "client_app"):
        assert len((EXAMPLE / f"{name}.py").read_text().splitlines()) < 60


def test_the_app_names_what_is_there():
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    app = project["tool"]["flwr"]["app"]
    for component in app["components"].values():
        module, _, name = component.partition(":")
        assert hasattr(load(module), name)
    assert app["config"]["federation"]["clients"] == 2


def test_over_the_grid_the_same_bits_are_learnt(grid):
    config = fedkl.preset("probe-point", "scaffold", 0, SETTINGS)
    over = fedkl.Federation(config, grid.server_app.OverGrid(config, grid))
    here = fedkl.Federation(config)
    assert [r["rejected"] for r in over] == [r["rejected"] for r in here] == [[], []]
    same = jax.tree.map(np.array_equal, over.state, here.state)
    assert all(jax.tree.leaves(same))
    # Client 0 is the node with the lowest id, and each has its own folder.
    assert sorted(path.name for path in grid.folder.iterdir()) == ["17", "71"]


def test_a_client_that_fails_is_left_out(grid):
    settings = SETTINGS | {"federation.retries": 0, "federation.rounds": 1}
    config = fedkl.preset("probe-point", "fedkl", 0, settings)
    federation = fedkl.Federation(config, grid.server_app.OverGrid(config, grid))
    grid.errors = {71: "it broke"}
    (record,) = federation
    assert record["rejected"] == [{"client": 1, "reason": "Flower says: it broke"}]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.slow
def test_flwr_run_works_with_two_supernodes(tmp_path):
    pytest.importorskip("flwr")
    link, *nodes = (free_port() for _ in range(3))
    (tmp_path / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\n'
        "insecure = true\n"
    )
    environment, started = flower_environment(tmp_path), []

    def start(*command):
        path = Path(sys.executable).with_name(command[0])
        with (tmp_path / f"{len(started)}.log").open("w") as log:
            process = subprocess.Popen(
                [path, *command[1:]], cwd=tmp_path, env=environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        started.append(process)
        return process

    here = ["--insecure", "--host", "127.0.0.1"]
    try:
        start("flower-superlink", *here, "--port", str(link),
              "--disable-runtime-dependency-installation")  # fmt: skip
        time.sleep(8)
        for number, port in enumerate(nodes):
            start("flower-supernode", *here, "--superlink", f"127.0.0.1:{link}",
                  "--port", str(port), "--node-config", f'state="states-{number}"')  # fmt: skip
        change = "federation.rounds=1"
        assert start("flwr", "run", str(EXAMPLE), "here", "--stream", "-c", change).wait(400) == 0
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    said = (tmp_path / "3.log").read_text()
    assert re.search(r"round 1: return -\d.* s, \[\]", said), said
    assert len(list(tmp_path.glob("states-*/*/*/000001.safetensors"))) == 2
