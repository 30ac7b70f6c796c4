"""A client answers every message: with a result, or with one sentence."""

import contextlib
import itertools
import tomllib
from dataclasses import replace

import jax
import numpy as np
import pytest
import tomli_w
from toy_worlds import Points

import fedkl
from fedkl.clients.work import Evaluate, Train
from fedkl.core.plugins import load_plugin
from fedkl.core.text import redact_paths
from fedkl.engines import Failure, Job
from fedkl.learning.randomness import Purpose, key_data_of, key_for
from fedkl.network import client as client_module
from fedkl.network import messages
from fedkl.network.client import NetworkClient, RefusalError
from fedkl.network.client_process import OVER, REFUSED
from fedkl.network.disk import StateError
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.messages import (
    SpaceSizes,
    new_federation,
    new_nonce,
    read_reply,
    read_request,
    write_request,
)
from fedkl.server.loop import Federation
from fedkl.server.state import at_the_server, broadcast
from fedkl.worlds import WORLDS

pytestmark = pytest.mark.usefixtures("quick_compilation")
TWIN = """
from typing import ClassVar
import jax.numpy as jnp
from fedkl.worlds import PointTarget, register_world
from fedkl.core.settings import setting

@register_world
class MyRobot(PointTarget):
    name: ClassVar[str] = "my-robot"
    wish: float = setting(2.0, "what it wants")

    def default_rows(self, n):
        rows = super().default_rows(n)
        return rows | {"target": rows["target"] * 0 + self.wish}
"""
BROKEN = """
from typing import ClassVar
from fedkl.worlds import PointTarget, register_world

@register_world
class Broken(PointTarget):
    name: ClassVar[str] = "broken-robot"

    def reset(self, params, key):
        open("/nowhere/secret/calibration.bin")
"""
LONG = """
from typing import ClassVar
from fedkl.worlds import PointTarget, register_world

@register_world
class Long(PointTarget):
    name: ClassVar[str] = "long-robot"
    horizon: ClassVar[int] = 5
"""
WORDS = key_data_of(key_for(0, Purpose.TRAINING, 0, 0, 0))
NONCE = "0" * 32
SIZES = {"observation_size": 1, "action_size": 1, "horizon": 1}


class Server:
    """Asks one client, and reads what comes back."""

    def __init__(self, config, federation=None):
        self.exchange = Exchange(config, federation or new_federation())
        self.model = broadcast(at_the_server(config.first_states[0]))
        self.turns = itertools.count(1)

    def request(self, work=None, client=0, since=0, **at):
        first = {"round": 0, "turn": next(self.turns), "floor": 0, "nonce": NONCE}
        moment = RequestStamp(**(first | at))
        job = Job(client, WORDS, since)
        return self.exchange.request(work or Train(), self.model, job, WORDS, moment)

    def ask(self, resident, work=None, client=0, since=0, **at):
        work = work or Train()
        data = self.request(work, client, since, **at)
        asked = read_request(data)
        moment = RequestStamp(asked.round, asked.turn, asked.floor, asked.nonce)
        job = Job(client, WORDS, since)
        return self.exchange.result(resident.answer(data), work, self.model, job, moment)


@pytest.fixture
def registered(monkeypatch):
    """What plugins register here is gone afterwards."""
    monkeypatch.setattr(WORLDS, "_classes", dict(WORLDS._classes))
    monkeypatch.setattr("fedkl.core.plugins._loaded", {})


@pytest.fixture
def remote(tiny):
    """A config whose server knows sizes only."""

    def make(**settings):
        values = tiny(**settings).mapping()
        return fedkl.config.config.from_mapping(values | {"world": {"name": "remote", **SIZES}})

    return make


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def test_the_same_request_gives_the_same_bytes(tiny, tmp_path):
    server = Server(tiny())
    data = server.request()
    first, second = (NetworkClient(tmp_path / name, 0).answer(data) for name in "ab")
    assert first == second
    assert read_reply(first).failure == ""


def test_a_late_request_does_not_undo_a_newer_one(tiny, tmp_path):
    server, resident = Server(tiny()), NetworkClient(tmp_path, 0)
    assert not isinstance(server.ask(resident, turn=5), Failure)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    assert "newer request" in server.ask(resident, turn=4).reason
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == before
    assert not isinstance(server.ask(resident, turn=5), Failure)


def test_a_config_with_an_infinite_setting_arrives(tiny, tmp_path):
    server = Server(tiny(federation__max_statistics_factor=np.inf))
    assert server.ask(NetworkClient(tmp_path, 0), Evaluate(3, True)).shape == (3,)


def test_looking_leaves_nothing_on_the_disk(tiny, tmp_path):
    server, resident = Server(tiny()), NetworkClient(tmp_path, 0)
    assert server.ask(resident, Evaluate(3, True)).shape == (3,)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"client": 1}, "this is client 0, not client 1"),
        ({"since": 1, "round": 1}, "state after round 1 is not on its disk"),
        ({"since": 2, "round": 1}, "round 2 is not over yet"),
    ],
)
def test_what_a_client_refuses(tiny, tmp_path, asked, reason):
    assert reason in Server(tiny()).ask(NetworkClient(tmp_path, 0), **asked).reason


def test_a_client_that_is_not_one_of_the_federation_refuses(tiny, tmp_path):
    found = Server(tiny()).ask(NetworkClient(tmp_path, 4), client=4)
    assert found.reason == "client 4 is not one of 0 to 3"


def test_anything_is_answered(tiny, tmp_path):
    resident = NetworkClient(tmp_path, 0, limit=100_000)
    for data in (b"", b"hello", bytes(1000), b"x" * 100_001):
        reply = read_reply(resident.answer(data))
        assert reply.failure
        assert (reply.client, reply.result) == (0, {})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config": "seed ="}, "the config is not TOML"),
        ({"config": "sed = 1"}, "sed is not a setting"),
        ({"key": np.zeros(3, np.uint32)}, "the key is of another kind"),
        ({"model": {}}, "the model is not as its config says"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(tiny, tmp_path, changes, reason):
    request = read_request(Server(tiny()).request())._replace(**changes)
    reply = read_reply(NetworkClient(tmp_path, 0).answer(write_request(request)))
    assert reason in reply.failure
    assert (reply.federation, reply.turn) == (request.federation, request.turn)


def test_an_answer_for_another_turn_round_or_federation_does_not_count(tiny, tmp_path):
    config = tiny()
    server, resident = Server(config), NetworkClient(tmp_path, 0)
    work, job = Evaluate(2, True), Job(0, WORDS)
    reply = resident.answer(server.request(work, turn=7, round=1))

    def read(exchange, job, *at, nonce=NONCE):
        return exchange.result(reply, work, server.model, job, RequestStamp(*at, nonce))

    assert read(server.exchange, job, 1, 7, 0).shape == (2,)
    assert read(server.exchange, job, 1, 8, 0).reason == "it answered for another turn"
    assert read(server.exchange, job, 2, 7, 0).reason == "it answered for another round"
    assert read(server.exchange, Job(1, WORDS), 1, 7, 0).reason == "it answered for another client"
    another = read(server.exchange, job, 1, 7, 0, nonce=new_nonce())
    assert another.reason == "it answered for another request"
    other = Exchange(config, new_federation())
    assert read(other, job, 1, 7, 0).reason == "it answered for another federation"
    nothing = server.exchange.result(b"", work, server.model, job, RequestStamp(1, 7, 0, NONCE))
    assert "not a reply" in nothing.reason


def test_clients_that_share_a_world_cannot_be_alone(tmp_path):
    values = fedkl.preset("figure-eight").mapping()
    request = read_request(Server(fedkl.preset("probe-point")).request())
    data = write_request(request._replace(config=tomli_w.dumps(values)))
    reply = read_reply(NetworkClient(tmp_path, 0).answer(data))
    assert "are in one simulation, which a client of a network cannot run alone" in reply.failure


def test_a_client_does_not_train_in_the_worlds_of_others(tiny, tmp_path):
    values = tiny(federation__data="pooled").mapping()
    request = read_request(Server(tiny()).request())
    data = write_request(request._replace(config=tomli_w.dumps(values)))
    reply = read_reply(NetworkClient(tmp_path, 0).answer(data))
    assert "federation.data is pooled, and its data stay where they are" in reply.failure


def test_files_that_a_server_names_are_not_run(tiny, tmp_path):
    plugin = tmp_path / "theirs.py"
    plugin.write_text("raise RuntimeError('it was run')")
    request = read_request(Server(tiny()).request(Evaluate(2, True)))
    config = request.config.replace("plugins = []", f'plugins = ["{plugin}"]')
    assert config != request.config
    reply = read_reply(
        NetworkClient(tmp_path / "0", 0).answer(write_request(request._replace(config=config)))
    )
    assert reply.failure == ""


def test_modules_that_a_server_names_are_not_imported(tiny, tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text("raise RuntimeError('it was run')")
    monkeypatch.syspath_prepend(tmp_path)
    request = read_request(Server(tiny()).request(Evaluate(2, True)))
    mapping = tomllib.loads(request.config)
    mapping["world"] = {"name": "gymnasium", "id": "theirs:Arm-v0"}
    told = request._replace(config=tomli_w.dumps(mapping))
    reply = read_reply(NetworkClient(tmp_path / "0", 0).answer(write_request(told)))
    assert "of the module theirs, which nobody has agreed to run here" in reply.failure


def test_an_error_is_one_line_and_the_client_lives_on(tiny, tmp_path, registered, capsys, remote):
    plugin = tmp_path / "broken.py"
    plugin.write_text(BROKEN)
    resident = NetworkClient(tmp_path / "0", 0, {"name": "broken-robot"}, [plugin])
    server = Server(remote())
    reason = server.ask(resident).reason
    assert reason == "FileNotFoundError: [Errno 2] No such file or directory: '(a path)'"
    assert "Traceback" in capsys.readouterr().err
    assert server.ask(resident).reason == reason


def test_paths_are_nobodys_business():
    assert redact_paths("cannot read /home/me/x.py: gone") == "cannot read (a path): gone"
    assert redact_paths("'~/x' ../y and/or 3 m/s") == "'(a path)' (a path) and/or 3 m/s"


def test_a_plugin_that_is_not_there_is_said_without_its_path(tiny, tmp_path):
    resident = NetworkClient(tmp_path, 0, plugins=[tmp_path / "none.py"])
    assert Server(tiny()).ask(resident).reason == "the plugin (a path) is not a file"


def test_a_world_that_only_clients_have_cannot_be_trained_here(remote):
    with pytest.raises(fedkl.UserError, match="only on the clients of a network"):
        Federation(remote())


def test_a_client_without_a_world_says_so(remote, tmp_path):
    reason = Server(remote()).ask(NetworkClient(tmp_path, 0)).reason
    assert reason == "it was given no world of its own, and the server has none for it"


def test_clients_with_worlds_of_their_own_train_a_server_that_knows_only_sizes(
    remote, over, tmp_path, registered
):
    """Three robots want 1.0, so the policy's mean goes there."""
    plugin = tmp_path / "robot.py"
    plugin.write_text(TWIN)
    config = remote(
        federation__clients=3,
        federation__clients_per_round=3,
        federation__rounds=6,
        learner__iterations=6,
        evaluation__every=100,
    )
    fedkl.core.plugins.load_plugin(plugin)
    worlds = {n: {"name": "my-robot", "wish": 1.0} for n in range(3)}
    federation, engine = over(config, worlds=worlds)
    records = list(federation)
    assert all(record["rejected"] == [] for record in records)
    mean = federation.state.model.policy(np.zeros((1, 1))).mode()
    assert float(mean[0, 0]) == pytest.approx(1.0, abs=0.3)
    assert not any(b"my-robot" in request for request, _ in engine.sent)


def test_the_row_of_a_world_of_ones_own_is_that_of_a_lone_client(remote, tmp_path, registered):
    """The world's own table is drawn for one client, whatever its number in the federation."""
    world = {"name": "probe-point", "clients": {"target": 3.0}}
    resident = NetworkClient(tmp_path, 2, world)
    returns = Server(remote()).ask(resident, Evaluate(2, True), client=2)
    assert returns == pytest.approx(-9.0, abs=0.5)


@pytest.mark.parametrize(
    ("world", "theirs"),
    [
        ({"name": "reacher"}, "observations of size 11 and actions of size 2"),
        ({"name": "probe-bandit"}, "observations of size 1 and 3 discrete actions"),
    ],
)
def test_a_world_of_other_sizes_is_refused(remote, tmp_path, world, theirs):
    reason = Server(remote()).ask(NetworkClient(tmp_path, 0, world)).reason
    ours = "observations of size 1 and actions of size 1"
    assert reason == f"its world has {theirs}, and the model is for {ours}"


def test_a_world_whose_episodes_are_longer_than_the_server_allows_is_refused(
    remote, tmp_path, registered
):
    """Else every update would be rejected for its number of steps."""
    server = Server(remote(learner__collect="episodes", learner__steps=7))
    plugin = tmp_path / "long.py"
    plugin.write_text(LONG)
    resident = NetworkClient(tmp_path, 0, {"name": "long-robot"}, [plugin])
    reason = server.ask(resident).reason
    assert reason == (
        "an iteration here has up to 10 steps, with episodes of 5, and 7 with those of 1 that the "
        "server allows (world.horizon)"
    )
    steps = Server(remote(learner__collect="steps", learner__steps=7))
    assert not isinstance(steps.ask(resident, Evaluate(2, True)), Failure)


def greeted(resident, exchange, **changes):
    """Why a client cannot take part: as it is told to the server, and to whoever started it."""
    said = exchange.greeting(None, RequestStamp(0, 5, 0, NONCE))
    greeting = messages.read_greeting(said)._replace(**changes)
    reply = read_reply(resident.answer(messages.write_greeting(greeting)))
    assert (reply.federation, reply.turn, reply.nonce) == (exchange.federation, 5, NONCE)
    path = resident._folder / REFUSED
    return reply.failure, path.read_text() if path.exists() else ""


VERSIONS = messages.result_versions()


@pytest.mark.parametrize(
    ("client", "changes", "reason"),
    [
        (0, {}, ""),
        (9, {}, "client 9 is not one of 0 to 3"),
        (0, {"refusal": "client 0 is taken"}, "client 0 is taken"),
        (0, {"client": 0}, ""),
        (0, {"client": 2}, "this is client 0, and its key is that of client 2"),
        (
            0,
            {"versions": VERSIONS | {"fedkl": "0.0.1"}},
            f"this has fedkl {VERSIONS['fedkl']}, and the server 0.0.1: use the same on both sides",
        ),
        (
            0,
            {"versions": VERSIONS | {"jax": "0.0.1"}},
            f"this has jax {VERSIONS['jax']}, and the server 0.0.1: use the same on both sides",
        ),
        (
            0,
            {"versions": {name: x for name, x in VERSIONS.items() if name != "numpy"}},
            f"this has numpy {VERSIONS['numpy']}, and the server another: use the same on both "
            "sides",
        ),
        (
            0,
            {"sources": {"algorithm": "another", "world": "", "upload": ""}},
            "the algorithm is made by other source code here than on the server: give both the "
            "same plugin",
        ),
        (
            0,
            {"spaces": SpaceSizes(11, False, 2)},
            "its world has observations of size 1 and actions of size 1, and the model is for "
            "observations of size 11 and actions of size 2",
        ),
        (0, {"config": "1 = 2 = 3"}, "the config is not TOML"),
    ],
)
def test_a_client_that_cannot_take_part_says_so_to_both_sides_when_it_is_greeted(
    tiny, tmp_path, client, changes, reason
):
    exchange, resident = Exchange(tiny(), new_federation()), NetworkClient(tmp_path / "0", client)
    (tmp_path / "0").mkdir()
    assert greeted(resident, exchange, **changes) == (reason, reason)
    assert greeted(resident, exchange)[1] == (reason if client == 9 else "")


def test_that_the_run_is_over_is_kept_until_another_one_begins(tiny, tmp_path):
    exchange, resident = Exchange(tiny(), new_federation()), NetworkClient(tmp_path / "0", 0)
    (tmp_path / "0").mkdir()
    over = tmp_path / "0" / OVER
    assert greeted(resident, exchange) == ("", "")
    assert not over.exists()
    assert greeted(resident, exchange, over=True) == ("", "")
    assert over.exists()
    assert greeted(resident, exchange) == ("", "")
    assert not over.exists()


def test_the_source_of_a_world_of_ones_own_is_its_own(remote, tmp_path):
    (tmp_path / "0").mkdir()
    resident = NetworkClient(tmp_path / "0", 0, {"name": "probe-point"})
    assert greeted(resident, Exchange(remote(), new_federation())) == ("", "")
    without = NetworkClient(tmp_path / "0", 0)
    reason = "it was given no world of its own, and the server has none for it"
    assert greeted(without, Exchange(remote(), new_federation())) == (reason, reason)


@pytest.mark.parametrize("error", [RefusalError, StateError, fedkl.UserError, OSError])
def test_no_reason_has_a_path_in_it_and_the_clients_own_log_has_all_of_it(
    tiny, tmp_path, monkeypatch, capsys, error
):
    resident = NetworkClient(tmp_path, 0)

    def fail(request):
        raise error("the simulator ended: no /home/me/robot.xml")

    monkeypatch.setattr(resident, "_result", fail)
    assert "the simulator ended: no (a path)" in Server(tiny()).ask(resident).reason
    assert "the simulator ended: no /home/me/robot.xml" in capsys.readouterr().err


@pytest.mark.usefixtures("toys", "registered")
def test_a_simulator_on_the_host_gives_the_same_bits_as_in_this_process(tmp_path, remote):
    WORLDS.register(Points)
    server, resident = Server(remote()), NetworkClient(tmp_path, 1, {"name": "test-solo-points"})
    with Federation(replace(remote(), world=Points())) as local:
        ((_, there),) = local.engine.run(Train(), server.model, [Job(1, WORDS)], WORDS)
    try:
        assert same_bits(server.ask(resident, client=1), there)
    finally:
        resident.close()


def test_code_is_compiled_once_for_each_kind_of_work_and_that_is_said(tiny, tmp_path):
    """Where it is said, `client_app` leaves the process alone at a deadline."""
    entered = []

    @contextlib.contextmanager
    def compiling():
        entered.append(len(entered))
        yield

    resident = NetworkClient(tmp_path, 0, compiling=compiling)
    server = Server(tiny())
    for work in (Train(), Train(), Evaluate(2, True), Evaluate(2, True)):
        assert not isinstance(server.ask(resident, work), Failure)
    assert len(entered) == 2


def test_of_an_error_in_a_clients_own_code_its_log_has_the_place_and_the_server_does_not(
    tmp_path, capsys
):
    plugin = tmp_path / "mine.py"
    plugin.write_text("1 / 0")
    try:
        load_plugin(plugin)
    except ZeroDivisionError as error:
        # Without the frame of this test, which is no code of ours either.
        sentence = client_module._log_error(error.with_traceback(error.__traceback__.tb_next))
    assert sentence == "ZeroDivisionError: division by zero"
    log = capsys.readouterr().err
    assert log.endswith(f"not done: {plugin}, line 1: ZeroDivisionError: division by zero\n")
    assert "Traceback" in log
