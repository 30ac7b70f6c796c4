"""How a federation is doing, as a file says it."""

import os
import subprocess
import sys

import pytest

from fedkl.core.errors import UserError
from fedkl.network import status
from fedkl.network.status import (
    FleetStatus,
    JoinStatus,
    read_join_status,
    read_serve_status,
    write_join_status,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / status.FILE


def test_without_a_file_nothing_is_known_and_without_a_path_nothing_is_written(path):
    assert read_serve_status(path) is None
    assert read_join_status(path) is None
    FleetStatus().write(over=True)


def test_what_clients_did_is_read_as_it_was_counted(path):
    fleet = FleetStatus(path)
    fleet.expires = 2e9
    fleet.connected({0, 3})
    fleet.asked(7)
    fleet.answered(0, 1.5)
    fleet.failed(3, "it raised")
    fleet.retried(3)
    fleet.connected({0})
    fleet._written = 0.0
    fleet.write()
    found = read_serve_status(path)
    assert (found.process, found.round, found.expires) == (os.getpid(), 7, 2e9)
    one, other = found.clients
    assert (one.client, one.connected, one.latency, one.answers, one.failures) == (
        0,
        True,
        1.5,
        1,
        0,
    )
    assert (other.client, other.connected, other.failures, other.retries) == (3, False, 1, 1)
    assert (other.reason, other.latency) == ("it raised", None)
    assert other.last_seen <= one.last_seen <= found.time
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_not_written_all_the_time_and_once_more_at_the_end(path):
    fleet = FleetStatus(path)
    fleet.connected({0})
    before = path.read_bytes()
    fleet.connected({0, 1})
    assert path.read_bytes() == before
    fleet.write(over=True)
    found = read_serve_status(path)
    assert found.process is None
    assert [one.connected for one in found.clients] == [False, False]


def test_a_clients_own_file_is_read_as_it_was_written(path):
    joined = JoinStatus(2.0, 5, 1.0, True, "host:1", False)
    write_join_status(path, joined)
    assert read_join_status(path) == joined


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"time": 1}', "x", '{"clients": 3}',
     '{"time": NaN, "process": 1, "since": 1, "round": 0, "expires": null, "clients": []}',
     '{"time": 1, "process": "1", "since": 1, "round": 0, "expires": null, "clients": []}',
     '{"time": 1, "process": -1, "since": 1, "round": 0, "expires": null, "clients": []}',
     '{"time": 1, "process": 1, "since": 1, "round": 0, "expires": null, "clients": [1]}',
     '{"time": 1, "process": 1, "since": 1, "round": 0, "expires": null, "clients": [{}]}'],
)  # fmt: skip
def test_a_damaged_file_is_answered_with_a_sentence(path, text):
    path.write_text(text)
    for read in (read_serve_status, read_join_status):
        with pytest.raises(UserError, match=r"status.json is damaged"):
            read(path)


def test_a_process_runs_or_not():
    assert status.runs(os.getpid())
    assert status.runs(1)
    assert not status.runs(None)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not status.runs(process.pid)


def test_a_file_without_an_end_is_refused_before_it_fills_the_memory(path):
    with path.open("wb") as file:
        file.truncate(2**40)  # it takes no room
    with pytest.raises(UserError, match="is larger than 134,217,728 bytes"):
        read_serve_status(path)
