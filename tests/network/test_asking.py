"""Handing bytes to a process: one that is there answers, one that is not is started."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from fedkl.errors import UserError
from fedkl.network import asking
from fedkl.network.asking import NoAnswerError, Place, ask

FORWARDER = """
import sys
import fedkl.network.asking, fedkl.network.worker
heavy = {"jax", "numpy", "equinox", "safetensors"} & sys.modules.keys()
assert not heavy, heavy
"""


@pytest.fixture
def server(tmp_path):
    """Serves a socket with a function from bytes to bytes, in a thread."""
    listeners = []

    def serve(answer):
        path = tmp_path / "s"
        listener = asking.listen(path)
        listeners.append(listener)

        def run():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        threading.Thread(target=run, daemon=True).start()
        return path

    yield serve
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def soon():
    return time.monotonic() + 5


def test_a_message_goes_there_and_an_answer_comes_back(server):
    def echo(connection):
        asking.send(connection, asking.receive(connection, 10**7, soon())[::-1], soon())

    path = server(echo)
    for message in (b"", b"abc", os.urandom(3_000_000)):
        assert ask(path, message, 5) == message[::-1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_not_answered_in_time_is_not_answered(server):
    path = server(lambda connection: time.sleep(1))
    start = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"no answer within 0.2 s"):
        ask(path, b"hello", 0.2)
    assert time.monotonic() - start < 0.9


def test_an_answer_that_trickles_in_does_not_outlive_the_deadline(server):
    def trickle(connection):
        try:
            connection.sendall((100).to_bytes(8, "big"))
            for _ in range(100):
                connection.sendall(b"x")
                time.sleep(0.05)
        except OSError:
            pass

    with pytest.raises(NoAnswerError, match="no answer within"):
        ask(server(trickle), b"", 0.3)


def test_whoever_hangs_up_does_not_answer(server):
    path = server(lambda connection: connection.recv(4))
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        ask(path, b"hello" * 1_000_000, 5)


def test_an_answer_that_is_too_large_is_not_read(server):
    def boast(connection):
        asking.receive(connection, 10, soon())
        connection.sendall((2**60).to_bytes(8, "big"))

    path = server(boast)
    with pytest.raises(NoAnswerError, match="over the limit of 1000"):
        ask(path, b"", 5, limit=1000)


def test_nobody_there_is_said(tmp_path):
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        ask(tmp_path / "none", b"", 1)
    left = tmp_path / "left"
    asking.listen(left).close()
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        ask(left, b"", 1)


def test_a_socket_that_was_left_behind_is_replaced_and_a_path_may_be_long(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    for _ in range(2):
        listener = asking.listen(folder / "s")
        assert asking._listens(folder / "s")
        listener.close()
        assert not asking._listens(folder / "s")


def test_a_folder_that_others_may_look_into_is_refused(tmp_path):
    (tmp_path / "0").mkdir(mode=0o755)
    with pytest.raises(UserError, match="closed to all others"):
        asking.ensure(Place(tmp_path, 0))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot use"):
        asking.ensure(Place(tmp_path / "file", 0))


def test_a_folder_is_served_by_one_process(tmp_path):
    assert asking.alive(tmp_path) is None
    ours = asking.claim(tmp_path)
    assert asking.alive(tmp_path) == os.getpid()
    assert asking.claim(tmp_path) is None
    os.close(ours)
    assert asking.alive(tmp_path) is None
    again = asking.claim(tmp_path)
    assert again is not None
    os.close(again)


def test_the_number_of_a_process_that_is_gone_is_forgotten(tmp_path):
    os.close(asking.claim(tmp_path))
    assert (tmp_path / "worker.lock").read_text() == str(os.getpid())
    assert asking.alive(tmp_path) is None
    assert (tmp_path / "worker.lock").read_text() == ""


def test_whoever_only_hands_bytes_on_imports_nothing_large():
    subprocess.run([sys.executable, "-c", FORWARDER], check=True, timeout=60)


def test_a_process_that_hangs_is_killed(tmp_path):
    """It holds the lock, and does not listen to SIGTERM."""
    code = (
        "import signal, sys, time\nfrom pathlib import Path\nfrom fedkl.network import asking\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"kept = asking.claim(Path({str(tmp_path / '0')!r}))\nprint('there', flush=True)\n"
        "time.sleep(60)"
    )
    (tmp_path / "0").mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert asking.alive(tmp_path / "0") == process.pid
        asking.stop(Place(tmp_path, 0), seconds=0.2)
        assert process.wait(10) == -signal.SIGKILL
