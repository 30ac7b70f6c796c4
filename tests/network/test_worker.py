"""The process of a client: started by the first message, and again after it died."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from fedkl.clients.work import Train
from fedkl.core.errors import UserError
from fedkl.engines import Job
from fedkl.learning.randomness import Purpose, key_data_of, key_for
from fedkl.network import client_process
from fedkl.network.client import NetworkClient
from fedkl.network.client_process import ClientPlace, deliver, ensure_running
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.messages import read_reply
from fedkl.network.sockets import NoAnswerError, ProcessGoneError, ask
from fedkl.network.worker import read_own_world
from fedkl.server.state import at_the_server, broadcast

WORDS = key_data_of(key_for(0, Purpose.TRAINING, 0, 0, 0))
SLOW = """
import time
from pathlib import Path
from typing import ClassVar
from fedkl.worlds import PointTarget, register_world

@register_world
class Slow(PointTarget):
    name: ClassVar[str] = "slow-robot"

    def reset(self, params, key):
        begun = Path(__file__).with_name("begun")
        if ALWAYS or not begun.exists():
            begun.touch()
            time.sleep(600)
        return super().reset(params, key)
"""


@pytest.fixture
def place(tmp_path):
    made = ClientPlace(tmp_path / "clients", 0)
    yield made
    client_process.stop(made)
    assert client_process.running_pid(made.folder) is None


def request_of(config, round=0, turn=1):
    exchange = Exchange(config, "ab" * 16)
    model = broadcast(at_the_server(config.first_states[0]))
    return exchange.request(
        Train(), model, Job(0, WORDS), WORDS, RequestStamp(round, turn, 0, "0" * 32)
    )


def gone(process):
    """Nothing is left of a process, also not in the table of processes."""
    return not Path(f"/proc/{process}").exists()


def slow(place, folder, always):
    """A place whose environment hangs when it is begun for the first time, or always."""
    plugin, world = folder / "slow.py", folder / "client.toml"
    plugin.write_text(f"ALWAYS = {always}\n{SLOW}")
    world.write_text('[world]\nname = "slow-robot"\n')
    return place._replace(world=world, plugins=(plugin,))


@contextlib.contextmanager
def killed_at_work(place, folder):
    """Kills the process of a slow place as soon as it is at work."""

    def kill():
        until((folder / "begun").exists)
        os.kill(client_process.running_pid(place.folder), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    yield
    killer.join()


def test_a_process_answers_with_the_same_bytes_also_after_it_was_killed(tiny, place, tmp_path):
    data = request_of(tiny())
    here = NetworkClient(tmp_path / "here", 0).answer(data)
    assert ask(ensure_running(place), data, 120) == here
    first = client_process.running_pid(place.folder)
    assert ensure_running(place) == place.socket
    assert client_process.running_pid(place.folder) == first
    os.kill(first, signal.SIGKILL)
    until(lambda: gone(first))
    with pytest.raises(NoAnswerError):
        ask(place.socket, data, 5)
    assert ask(ensure_running(place), data, 120) == here
    assert client_process.running_pid(place.folder) != first
    modes = {path.name: path.stat().st_mode & 0o777 for path in place.folder.iterdir()}
    assert modes.pop("ab" * 16) == 0o700
    assert {*modes.values()} == {0o600}
    assert place.folder.stat().st_mode & 0o777 == 0o700


def test_a_process_that_is_killed_at_work_gives_no_answer_and_the_next_one_does(
    tiny, place, tmp_path
):
    data, path = request_of(tiny()), ensure_running(slow(place, tmp_path, always=True))
    with (
        killed_at_work(place, tmp_path),
        pytest.raises(ProcessGoneError, match="cannot be reached"),
    ):
        ask(path, data, 2 * PATIENCE)
    assert read_reply(deliver(place, data, 120)).failure == ""


def test_a_message_is_delivered_although_the_process_is_killed_at_work(tiny, place, tmp_path):
    at_work = slow(place, tmp_path, always=False)
    with killed_at_work(place, tmp_path):
        reply = deliver(at_work, request_of(tiny()), 2 * PATIENCE)
    assert read_reply(reply).failure == ""


def test_a_process_that_dies_again_and_again_is_given_up(tiny, place, tmp_path):
    plugin = tmp_path / "deadly.py"
    plugin.write_text("import os\nos._exit(3)")
    with pytest.raises(NoAnswerError, match="died 3 times before it answered"):
        deliver(place._replace(plugins=(plugin,)), request_of(tiny()), 120)


def test_messages_at_once_start_one_process(place):
    with ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(lambda _: ensure_running(place), range(4)))
    assert paths == [place.socket] * 4
    log = (place.folder / client_process.LOG).read_text()
    assert log == ""
    assert client_process.running_pid(place.folder) is not None


def test_nonsense_and_those_who_hang_up_do_not_end_it(place):
    path = ensure_running(place)
    for nonsense in (b"", b"hello"):
        assert "not a request" in read_reply(ask(path, nonsense, 60)).failure
    with pytest.raises(NoAnswerError):
        ask(path, b"hello", 1e-4)
    assert "not a request" in read_reply(ask(path, b"again", 60)).failure


def test_it_is_in_the_clients_folder_whoever_starts_it_and_says_nothing_of_those_who_only_look(
    place, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('[world]\nname = "probe-point"')
    relative = ClientPlace(place.directory.relative_to(tmp_path), 0, Path("own.toml"))
    for _ in range(3):
        ensure_running(relative)
    assert "not a request" in read_reply(ask(place.socket, b"hello", 60)).failure
    process = client_process.running_pid(place.folder)
    assert os.readlink(f"/proc/{process}/cwd") == str(place.folder)
    assert "dropped" not in (place.folder / client_process.LOG).read_text()


def test_sigterm_ends_it_and_leaves_no_socket(place):
    ensure_running(place)
    process = client_process.running_pid(place.folder)
    os.kill(process, signal.SIGTERM)
    until(lambda: gone(process))
    assert not place.socket.exists()


def test_it_ends_with_the_process_that_it_watches(place):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        ensure_running(place._replace(watch=other.pid))
        process = client_process.running_pid(place.folder)
        other.kill()
        until(lambda: gone(process))


def test_it_does_not_stay_if_what_it_watches_is_gone_already(place):
    with subprocess.Popen([sys.executable, "-c", ""]) as other:
        other.wait()
    with contextlib.suppress(NoAnswerError):
        ensure_running(place._replace(watch=other.pid))
    until(lambda: client_process.running_pid(place.folder) is None)


def test_a_second_process_for_the_same_client_does_not_start(place):
    ensure_running(place)
    command = [sys.executable, "-m", "fedkl.network.worker", str(place.directory), "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: another process serves client 0")


def test_a_world_that_cannot_be_read_is_said_at_once(place, tmp_path):
    with pytest.raises(NoAnswerError, match="did not come up: error: cannot read"):
        ensure_running(place._replace(world=tmp_path / "none.toml"))


def test_a_clients_own_world_is_a_table(tmp_path):
    assert read_own_world(None) is None
    path = tmp_path / "client.toml"
    path.write_text('[world]\nname = "x"\nclients = {gravity = 3}\n')
    assert read_own_world(path) == {"name": "x", "clients": {"gravity": 3}}
    for text, reason in (("a = 1", r"no table \[world\]"), ("a =", "is not valid TOML")):
        path.write_text(text)
        with pytest.raises(UserError, match=reason):
            read_own_world(path)
