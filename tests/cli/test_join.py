"""`fedkl join`: what is wrong is said before anything starts, and all that was started ends."""

import os
import re
import signal
import socket
from pathlib import Path

import pytest
from commands import call
from waiting import PATIENCE, runs, until

pytest.importorskip("flwr")

from fedkl.config import config
from fedkl.network import client_process, keys
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.messages import new_federation

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
# `fedkl join`, with somebody else in the place of Flower.
COMMAND = """
import sys
from fedkl.network.flower import supernode
if sys.argv[1]:
    supernode._LAUNCH = (sys.executable, sys.argv[1])
from fedkl.cli import main
main(["join", *sys.argv[2:]])
"""
CONNECTED = """
import os, time
print("SuperNode ID: 1", flush=True)
time.sleep(60)
"""
HOPELESS = "print('CERTIFICATE_VERIFY_FAILED', flush=True)\nraise SystemExit(1)"


@pytest.fixture
def listener():
    """Somebody who listens, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def address(listener):
    return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Keys of three clients, and an empty folder to be in."""
    keys.make(tmp_path / "keys", 3)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "keys"


@pytest.fixture
def joined(tmp_path, child):
    """Starts the command in a process of its own, with a fake of Flower or with none."""

    def start(script, *arguments):
        path = ""
        if script:
            path = tmp_path / "fake.py"
            path.write_text(script)
        return child("-P", "-c", COMMAND, path, *arguments, stdout=None, cwd=tmp_path)

    return start


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def group_of(folder):
    """The processes that write their logs into this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            log = Path(os.readlink(path / "fd" / "1"))
            if log.parent == folder and runs(path.name):
                found.append(int(path.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("address", ["host", "host:", "host:0", "host:70000", "http://h:1", ":1"])
def test_an_address_has_a_host_and_a_port(capsys, folder, address):
    code, _, err = call(capsys, "join", address, "--client", 0, "--keys", folder)
    assert code == 2
    assert "is not an address such as" in err


@pytest.mark.parametrize(
    ("client", "problem"),
    [(-1, "a number from 0, not -1"), (3, "client-3.key"), ("x", "must be a whole number")],
)
def test_a_client_has_a_number_and_a_key(capsys, folder, address, client, problem):
    code, _, err = call(capsys, "join", address, f"--client={client}", "--keys", folder)
    assert code == 2
    assert problem in err


def test_a_key_that_others_can_read_is_refused(capsys, folder, address):
    (folder / "client-1.key").chmod(0o644)
    code, _, err = call(capsys, "join", address, "--client", 1, "--keys", folder)
    assert code == 2
    assert "client-1.key" in err


def test_keys_are_needed_unless_one_says_otherwise(capsys, folder, address):
    code, _, err = call(capsys, "join", address, "--client", 0)
    assert (code, "--keys must say" in err) == (2, True)
    both = ("--keys", folder, "--insecure-network")
    code, _, err = call(capsys, "join", address, "--client", 0, *both)
    assert (code, "give either that or --keys" in err) == (2, True)


def test_a_missing_authority_is_said(capsys, folder, address):
    (folder / "ca.crt").unlink()
    code, _, err = call(capsys, "join", address, "--client", 0, "--keys", folder)
    assert (code, "ca.crt" in err) == (2, True)


@pytest.mark.parametrize("options", [["--insecure-network"], ["--keys"]])
def test_nobody_there_is_said(capsys, folder, options):
    options = [*options, folder] if options == ["--keys"] else options
    where = f"127.0.0.1:{free_port()}"
    code, _, err = call(capsys, "join", where, "--client", 0, "--wait", 0, *options)
    assert (code, err) == (2, f"fedkl: no server listens on {where}\n")


@pytest.mark.parametrize("wait", [-1, "nan", "inf"])
def test_seconds_to_wait_are_a_number(capsys, folder, address, wait):
    code, _, err = call(capsys, "join", address, "--client", 0, "--keys", folder, f"--wait={wait}")
    assert (code, "--wait must be a number of seconds from 0" in err) == (2, True)


def test_a_server_that_is_not_up_yet_is_waited_for(joined):
    port = free_port()
    process = joined(CONNECTED, f"127.0.0.1:{port}", "--client", "0", "--insecure-network")
    waiting = (
        rf"fedkl: {TIME} client 0: no server listens on 127\.0\.0\.1:{port}; waiting for 300 s\n"
    )
    assert re.fullmatch(waiting, process.stderr.readline())
    with socket.create_server(("127.0.0.1", port)):
        assert "client 0: connected to" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("--params", None, "cannot read"),
        ("--params", "[other]", "has no table [world]"),
        ("--plugin", None, "is not a file"),
        ("--plugin", "1 / 0", "fails: ZeroDivisionError: division by zero"),
    ],
)
def test_bad_files_are_refused_before_anything_starts(
    capsys, folder, address, option, text, problem
):
    if text is not None:
        Path("file").write_text(text)
        Path("file").rename("file.py")
    code, _, err = call(
        capsys, "join", address, "--client", 0, "--insecure-network", option, "file.py"
    )
    assert code == 2
    assert problem in err
    assert err.count("\n") == 1
    assert not Path("fedkl-client-0").exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_a_signal_ends_all_of_it(tmp_path, joined, address, number, code):
    process = joined(CONNECTED, address, "--client", "4", "--insecure-network")
    line = rf"fedkl: {TIME} client 4: connected to {address}\n"
    assert re.fullmatch(line, process.stderr.readline())
    state = tmp_path / "fedkl-client-4"
    worker = client_process.running_pid(state / "4")
    assert worker
    assert group_of(state / "flower")
    process.send_signal(number)
    assert process.wait(PATIENCE) == code
    if number == signal.SIGKILL:  # a fake does not look who its parent is
        for left in group_of(state / "flower"):
            os.kill(left, signal.SIGKILL)
    until(lambda: not (runs(worker) or group_of(state / "flower")))


def test_a_client_runs_once_and_what_is_hopeless_is_given_up(tmp_path, joined, address):
    arguments = (address, "--client", "0", "--insecure-network", "--state", "state")
    first = joined(CONNECTED, *arguments)
    assert "connected to" in first.stderr.readline()
    second = joined(HOPELESS, *arguments)
    assert second.wait(PATIENCE) == 2
    assert second.stderr.read() == (
        f"fedkl: client 0 runs already, with its state in {tmp_path}/state\n"
    )
    assert first.poll() is None
    third = joined(HOPELESS, *arguments[:-1], "another")
    assert third.wait(PATIENCE) == 2
    assert third.stderr.read() == (
        f"fedkl: cannot join {address}: the server's certificate is by another authority than "
        f"ours (see {tmp_path}/another/flower/supernode.log)\n"
    )
    assert client_process.running_pid(tmp_path / "another" / "0") is None


GREETED = """
import json, os, time
from pathlib import Path
from fedkl.network import client_process
print("SuperNode ID: 1", flush=True)
place = json.loads(Path(os.environ["FEDKL_PLACE"]).read_text())
folder = Path(place["directory"]) / str(place["client"])
greeting = (folder.parent.parent / "greeting").read_bytes()
client = client_process.ClientPlace(folder.parent, place["client"], watch=place["watch"])
client_process.deliver(client, greeting, 600)
time.sleep(600)
"""


def test_a_client_that_the_server_has_no_place_for_ends_with_code_2_and_one_sentence(
    tmp_path, joined, address
):
    chosen = config.preset("probe-point", set={"federation.clients": 4})
    greeting = Exchange(chosen, new_federation()).greeting(None, RequestStamp(0, 1, 0, "0" * 32))
    (tmp_path / "greeting").write_bytes(greeting)
    process = joined(GREETED, address, "--client", "9", "--insecure-network")
    assert process.wait(PATIENCE) == 2
    assert process.stderr.read().splitlines()[-1] == (
        f"fedkl: cannot take part in what {address} trains: client 9 is not one of 0 to 3"
    )
    assert client_process.running_pid(tmp_path / "fedkl-client-9" / "9") is None


def test_a_client_that_is_wanted_once_ends_when_the_run_is_over(tmp_path, joined, address):
    chosen = config.preset("probe-point", set={"federation.clients": 4})
    over = Exchange(chosen, new_federation()).greeting(
        None, RequestStamp(0, 1, 0, "0" * 32), over=True
    )
    (tmp_path / "greeting").write_bytes(over)
    process = joined(GREETED, address, "--client", "1", "--insecure-network", "--once")
    assert process.wait(PATIENCE) == 0
    assert process.stderr.read().splitlines()[-1].endswith("client 1: the run is over")
    assert client_process.running_pid(tmp_path / "fedkl-client-1" / "1") is None


def test_flowers_own_process_waits_for_a_server_and_ends_when_told(tmp_path, joined, address):
    """The only test here with the real one: it finds nobody who speaks HTTP."""
    process = joined("", address, "--client", "0", "--insecure-network")
    state = tmp_path / "fedkl-client-0"
    apps = state / "flower" / "apps.log"
    until(lambda: apps.exists() and "Starting Flower SuperExec" in apps.read_text())
    assert len(group_of(state / "flower")) >= 3  # it, the zygote, and what starts the apps
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert not group_of(state / "flower")
    assert client_process.running_pid(state / "0") is None
    log = (state / "flower" / "supernode.log").read_text()
    assert "Starting Flower SuperNode" in log
    assert "fedkl:" not in log  # which would say that this Flower is slower than it could be
