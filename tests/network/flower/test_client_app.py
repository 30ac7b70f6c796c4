"""The app on a client hands bytes on, and says in one sentence why there are none."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, Metadata, MetricRecord, RecordDict
from waiting import PATIENCE

from fedkl.network import client_process, keys, sockets
from fedkl.network.client_process import ClientPlace
from fedkl.network.flower import NO_ANSWER, client_app, place_file
from fedkl.network.signatures import Signer, Verifier

# A resident process that takes a message and then does something else than answering.
WORKER = """
import os, sys, time
from pathlib import Path
from fedkl.network import client_process, keys, sockets
folder = Path(sys.argv[1])
kept = client_process.claim(folder)
listener = sockets.listen(folder / client_process.SOCKET)
print("there", flush=True)
connection, _ = listener.accept()
if sys.argv[2] == "hang":
    time.sleep(600)
if sys.argv[2] == "compile":
    with client_process.compiling(folder, folder.parent):
        time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where client 3 lives, as the app's process is told."""
    place = ClientPlace(tmp_path / "state", 3)
    client_process.private_folder(place.folder)
    place_file.write_place(tmp_path / "place.json", place, None)
    monkeypatch.setenv(place_file.VARIABLE, str(tmp_path / "place.json"))
    return place


@pytest.fixture
def worker(place):
    """Starts a process that misbehaves."""
    started = []

    def start(what):
        command = [sys.executable, "-c", WORKER, str(place.folder), what]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "there\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def echo(place):
    """A thread in the place of the resident process, which answers backwards."""

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                end = time.monotonic() + PATIENCE
                # Who only looks whether anybody listens says nothing.
                with contextlib.suppress(EOFError):
                    data = sockets.receive(connection, 10**8, end)
                    sockets.send(connection, data[::-1], end)

    listener = sockets.listen(place.socket)
    threading.Thread(target=serve, daemon=True).start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def message(content, ttl=30.0):
    """As it comes from a server."""
    metadata = Metadata(
        run_id=1,
        message_id="m",
        src_node_id=1,
        dst_node_id=2,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=ttl,
        message_type="query",
    )
    return Message(content=content, metadata=metadata)


def asked(blob, ttl=30.0):
    return message(RecordDict({"work": ConfigRecord({"blob": blob})}), ttl)


@pytest.mark.parametrize("blob", [b"abc", os.urandom(3_000_000)], ids=["small", "large"])
def test_bytes_go_to_the_resident_process_and_its_answer_comes_back(echo, blob):
    reply = client_app.answer(asked(blob))
    assert reply.content["work"]["blob"] == blob[::-1]
    assert reply.content["work"]["client"] == 3


def test_flower_calls_it_for_a_query(echo):
    context = Context(run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config={})
    reply = client_app.app(message=asked(b"abc"), context=context)
    assert reply.content["work"]["blob"] == b"cba"


def test_empty_bytes_ask_only_for_the_number(place):
    reply = client_app.answer(asked(b""))
    assert dict(reply.content["work"]) == {"blob": b"", "client": 3}
    assert client_process.running_pid(place.folder) is None


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"work": ConfigRecord()}),
        RecordDict({"work": ConfigRecord({"blob": "text"})}),
        RecordDict({"work": MetricRecord({"blob": 1})}),
    ],
    ids=["nothing", "no bytes", "text", "numbers"],
)
def test_a_message_of_somebody_else_is_refused(place, content):
    reply = client_app.answer(message(content))
    assert reply.error.reason == "the message is not one of fedkl's"


def test_a_process_that_hangs_is_ended_before_nobody_waits_any_more(place, worker):
    process = worker("hang")
    start = time.monotonic()
    reply = client_app.answer(asked(b"abc", ttl=2.0))
    assert time.monotonic() - start < PATIENCE / 2
    assert reply.error.reason == "the client's process gave no answer within 1.5 s"
    assert reply.error.code == NO_ANSWER
    assert process.wait(PATIENCE) < 0
    assert client_process.running_pid(place.folder) is None


def test_a_process_that_compiles_is_left_to_it(place, worker):
    """Or a deadline that is shorter than the compilation would shut its client out for good."""
    process = worker("compile")
    reply = client_app.answer(asked(b"abc", ttl=2.0))
    assert reply.error.reason == "it still compiles after 1.5 s, and goes on"
    assert reply.error.code == NO_ANSWER
    assert process.poll() is None
    process.kill()
    process.wait()
    assert not client_process.is_compiling(place.folder)


def test_a_process_that_dies_again_and_again_is_said(place, worker, monkeypatch):
    started = []
    monkeypatch.setattr(
        client_process, "_start", lambda place, seconds: started.append(worker("die"))
    )
    reply = client_app.answer(asked(b"abc"))
    assert reply.error.reason == "the client's process died 3 times before it answered"
    assert len(started) == 3


def test_where_things_are_on_the_client_is_not_told(place, capsys):
    place.folder.chmod(0o755)
    reply = client_app.answer(asked(b"abc"))
    assert reply.error.reason.startswith("(a path) must belong to this user")
    assert str(place.folder) in capsys.readouterr().out


@pytest.mark.parametrize(("ttl", "seconds"), [(4.0, 3.0), (20.0, 15.0), (600.0, 595.0)])
def test_the_way_back_has_its_share_of_the_time(ttl, seconds):
    assert client_app._seconds(asked(b"", ttl)) == pytest.approx(seconds)


@pytest.fixture
def signed(place, tmp_path, monkeypatch):
    """From now on the client believes only its server; how that signs."""
    keys.make(tmp_path / "keys", 4)
    verifier = Verifier.of(tmp_path / "keys" / "ca.crt", tmp_path / "keys" / "client-3.key")
    place_file.write_place(tmp_path / "place.json", place, verifier)
    return Signer(tmp_path / "keys").sign


def test_what_the_server_has_signed_is_answered(echo, signed):
    reply = client_app.answer(asked(signed(3, b"abc")))
    assert reply.content["work"]["blob"] == b"cba"


@pytest.mark.parametrize("ttl", [30.0, 0.001])
@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (lambda sign: b"", "it is not signed"),
        (lambda sign: b"abc", "it is not signed"),
        (lambda sign: sign(2, b"abc"), "it is for another client"),
        (lambda sign: sign(3, b"abc")[:-1] + b"x", "not signed by the server of this federation"),
    ],
    ids=["empty", "unsigned", "another's", "changed"],
)
def test_what_is_forged_is_not_looked_at_and_ends_nothing(
    place, worker, signed, forge, reason, ttl
):
    """Also not by a message that leaves the process that trains no time."""
    process = worker("hang")
    before = {path.name for path in place.folder.iterdir()}
    reply = client_app.answer(asked(forge(signed), ttl))
    assert reason in reply.error.reason
    assert process.poll() is None
    assert {path.name for path in place.folder.iterdir()} == before
