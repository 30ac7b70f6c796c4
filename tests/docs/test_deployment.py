"""What the page on deployment shows can be used as it is."""

import configparser
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

import fedkl
from fedkl.cli.parser import parser
from fedkl.engines import Failure
from fedkl.network import checks, keys
from fedkl.network.client import NetworkClient
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.messages import new_federation
from fedkl.network.worker import read_own_world
from fedkl.worlds import WORLDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def indented():
    """The commands of fedkl's in the text, each in one line."""
    text = PAGE.replace("\\\n", " ")
    found = re.findall(r"^    (fedkl .*)$", text, re.MULTILINE)
    return [re.sub(r"\s#.*", "", command) for command in found]


def in_services():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load(blocks("yaml")[0])["services"]
    units = [read(unit)["Service"]["ExecStart"] for unit in blocks("ini")]
    shells = [*units, services["server"]["entrypoint"]]
    commands = re.findall(r"(?:/opt/fedkl/bin/)?(fedkl [^;'\n]*)", "\n".join(shells))
    # The image's entry point is fedkl.
    clients = [service["command"] for name, service in services.items() if name != "server"]
    checks = [service["healthcheck"]["test"] for service in services.values()]
    return commands + [f"fedkl {command}" for command in clients] + checks


def read(unit):
    reader = configparser.ConfigParser(interpolation=None)
    reader.optionxform = str
    reader.read_string(unit)
    return reader


def test_every_command_is_one_that_fedkl_understands():
    commands = indented()
    assert len(commands) >= 6
    services = in_services()
    assert len(services) == 10
    for command in (*commands, *services):
        program, *arguments = shlex.split(command)
        assert program == "fedkl"
        parser().parse_args(arguments)


def test_the_units_are_units():
    for unit in map(read, blocks("ini")):
        assert unit.sections() == ["Unit", "Service", "Install"]
        assert unit["Service"]["User"] == "fedkl"
        assert "=" not in unit["Service"]["ReadWritePaths"]
        assert unit["Service"]["MemoryMax"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="it says how exposed a unit is")
def test_the_units_are_closed_as_far_as_they_can_be(tmp_path):
    units = blocks("ini")
    assert len(units) == 2
    for number, unit in enumerate(units):
        path = tmp_path / f"fedkl-{number}.service"
        path.write_text(unit)
        said = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=40", str(path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert said.returncode == 0, said.stdout + said.stderr
        level = re.search(r"Overall exposure level .*: ([\d.]+)", said.stdout)[1]
        assert f"calls what is left {level} of 10" in unit


def test_each_container_sees_only_the_keys_that_it_needs(tmp_path):
    yaml = pytest.importorskip("yaml")
    (text,) = blocks("yaml")
    compose = yaml.safe_load(text)
    lines = re.findall(r"^    ((?:fedkl keys keys --clients 2 --host server|install|cp) ?.*)$",
                       PAGE, re.MULTILINE)  # fmt: skip
    keys.make(tmp_path / "keys", 2, ["server"])
    (tmp_path / "fleet.toml").touch()
    assert lines[0].startswith("fedkl keys")
    subprocess.run("\n".join(["set -e", *lines[1:]]), shell=True, cwd=tmp_path, check=True)
    for name, service in compose["services"].items():
        assert "ports" not in service
        assert set(service["networks"]) <= compose["networks"].keys()
        assert service["mem_limit"]
        assert service["logging"]["options"]["max-size"]
        assert f"./{name}/keys:/keys:ro" in service["volumes"]
        rest = [volume for volume in service["volumes"] if not volume.endswith(":/keys:ro")]
        assert [v.partition(":")[0] for v in rest] in ([f"./{name}/state"], [f"./{name}/data"])
        there = {path.name for path in (tmp_path / name / "keys").iterdir()}
        assert there == {
            "server": {"ca.crt", "server.crt", "server.key", "client-0.pub", "client-1.pub"},
        }.get(name, {"ca.crt", f"{name}.key"})
        if name == "server":
            checks.check_server(tmp_path / name / "keys", "0.0.0.0", free_port())
            assert sorted(keys.public_keys(tmp_path / name / "keys")) == [0, 1]
        else:
            assert keys.public_key_of(tmp_path / name / "keys" / f"{name}.key")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def worlds(monkeypatch):
    """What an example registers is forgotten after the test."""
    monkeypatch.setattr(WORLDS, "_classes", dict(WORLDS._classes))


@pytest.mark.usefixtures("worlds")
def test_a_world_of_ones_own_answers_the_server_that_knows_only_sizes(tmp_path):
    for block in blocks("toml"):
        (tmp_path / re.match(r"# ([\w.]+)", block)[1]).write_text(block)
    config = fedkl.preset(str(tmp_path / "fleet.toml"))
    assert config.world.name == "remote"
    plugin = tmp_path / "own_world.py"
    shutil.copy(ROOT / "examples/own_world.py", plugin)
    own = read_own_world(tmp_path / "client.toml")
    client = NetworkClient(tmp_path / "state", 0, own, [plugin])
    answers = fedkl.Federation(config, Asking(config, client)).evaluate(3, True, [0])
    assert answers.shape == (1, 3)
    assert (answers < 0).all()


class Asking:
    """An engine with one client that answers bytes with bytes."""

    def __init__(self, config, client):
        self.exchange, self.client = Exchange(config, new_federation()), client

    def run(self, work, model, jobs, key):
        for job in jobs:
            at = RequestStamp(0, 1, 0, "0" * 32)
            request = self.exchange.request(work, model, job, key, at)
            assert b"gravity" not in request
            answer = self.exchange.result(self.client.answer(request), work, model, job, at)
            assert not isinstance(answer, Failure), answer
            yield job.client, answer

    def nothing(self, *_):
        return {}

    keep = saved = save = restore = report = close = nothing
