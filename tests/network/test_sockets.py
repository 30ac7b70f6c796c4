"""Bytes to a process that listens, and its answer, in time or not at all."""

import os
import socket
import threading
import time

import pytest
from waiting import PATIENCE

from fedkl.network import sockets
from fedkl.network.sockets import NoAnswerError, ask


@pytest.fixture
def server(tmp_path):
    """Serves a socket with a function from bytes to bytes, in a thread."""
    listeners = []

    def serve(answer):
        path = tmp_path / "s"
        listener = sockets.listen(path)
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
    return time.monotonic() + PATIENCE


def test_a_message_goes_there_and_an_answer_comes_back(server):
    def echo(connection):
        sockets.send(connection, sockets.receive(connection, 10**7, soon())[::-1], soon())

    path = server(echo)
    for message in (b"", b"abc", os.urandom(3_000_000)):
        assert ask(path, message, PATIENCE) == message[::-1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_not_answered_in_time_is_not_answered(server):
    over = threading.Event()
    path = server(lambda connection: over.wait(PATIENCE))
    start = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"no answer within 0.2 s"):
        ask(path, b"hello", 0.2)
    assert time.monotonic() - start < PATIENCE / 2
    over.set()


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
        ask(path, b"hello" * 1_000_000, PATIENCE)


def test_an_answer_that_is_too_large_is_not_read(server):
    def boast(connection):
        sockets.receive(connection, 10, soon())
        connection.sendall((2**60).to_bytes(8, "big"))

    path = server(boast)
    with pytest.raises(NoAnswerError, match="over the limit of 1000"):
        ask(path, b"", PATIENCE, limit=1000)


def test_nobody_there_is_said(tmp_path):
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        ask(tmp_path / "none", b"", 1)
    left = tmp_path / "left"
    sockets.listen(left).close()
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        ask(left, b"", 1)


def test_a_socket_that_was_left_behind_is_replaced_and_a_path_may_be_long(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    for _ in range(2):
        listener = sockets.listen(folder / "s")
        assert sockets.is_listening(folder / "s")
        listener.close()
        assert not sockets.is_listening(folder / "s")


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system does not say who it is")
def test_a_process_of_another_user_is_not_talked_to(monkeypatch):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sockets.require_same_user(ours)
        monkeypatch.setattr(sockets.os, "getuid", lambda: 65534)
        with pytest.raises(PermissionError, match="a process of another user"):
            sockets.require_same_user(ours)
