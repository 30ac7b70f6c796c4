"""Flower's process on a client is started with what it needs, and ends with all that it started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE, runs, until

from fedkl.core.errors import UserError
from fedkl.network import client_process, keys
from fedkl.network.client_process import ClientPlace
from fedkl.network.flower import place_file, supernode
from fedkl.network.flower.supernode import SuperNode, Trouble
from fedkl.network.signatures import Signer

# In the place of Flower's own: writes down how it was started, starts a process, and does as told.
FAKE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
child = subprocess.Popen(["/bin/sleep", "600"]).pid
print("SuperNode ID: 1" if DO != "refused" else "[code: 2004] Failed to activate", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN if DO == "deaf" else signal.SIG_DFL)
told = {"arguments": sys.argv[1:], "environment": dict(os.environ), "child": child,
        "cwd": os.getcwd()}
where = Path(sys.argv[3]).parent
(where / "told.new").write_text(json.dumps(told))
os.rename(where / "told.new", where / "told")
if DO == "refused":
    sys.exit(1)
time.sleep(600)
"""


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Makes a SuperNode that does not need a server."""
    made = []

    def make(do="wait", ca=None, key=None):
        script = tmp_path / f"{do}.py"
        script.write_text(f"DO = {do!r}\n{FAKE}")
        monkeypatch.setattr(supernode, "_LAUNCH", (sys.executable, str(script)))
        place = ClientPlace(tmp_path / "state", 3)
        client_process.private_folder(place.folder)
        node = SuperNode("127.0.0.1:9", place, tmp_path / "state" / "flower", ca, key)
        made.append(node)
        return node

    yield make
    for node in made:
        node.stop()


def told(node):
    """What the process was told; it may take a moment."""
    path = node.log.parent / "told"
    until(path.exists)
    return json.loads(path.read_text())


def test_it_is_told_who_and_where_it_is(node, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys.make(tmp_path / "keys", 4)
    made = node(ca=Path("keys/ca.crt"), key=Path("keys/client-3.key"))
    assert not made.alive()
    assert made.trouble() is None
    made.start()
    found = told(made)
    parent, folder, apps, *arguments = found["arguments"]
    assert (int(parent), apps) == (os.getpid(), str(tmp_path / "state" / "flower" / "apps.log"))
    assert arguments[:4] == ["--superlink", "127.0.0.1:9", "--host", "127.0.0.1"]
    assert arguments[6:] == [
        *("--root-certificates", str(tmp_path / "keys" / "ca.crt")),
        *("--auth-supernode-private-key", str(tmp_path / "keys" / "client-3.key")),
    ]
    environment = found["environment"]
    # What Flower starts is a shim of ours, or nothing.
    assert environment["PATH"] == f"{folder}/bin"
    names = {path.name for path in Path(folder, "bin").iterdir()}
    assert names >= {"flower-superexec", "flwr-clientapp", "flwr-agentapp"}
    assert environment["FEDKL_PATH"].startswith(str(Path(sys.executable).parent))
    # Nothing that it reads or runs lies where somebody could have put it before.
    assert not Path(folder).is_relative_to(tmp_path / "state")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert environment["FLWR_HOME"] == f"{folder}/home"
    assert found["cwd"] == folder
    assert {path.name for path in made.log.parent.iterdir()} == {"supernode.log", "told"}
    monkeypatch.setenv(place_file.VARIABLE, environment[place_file.VARIABLE])
    # Without a process to watch, the client ends with the one that started it.
    place, verifier = place_file.read_place()
    assert place == made.place == ClientPlace(tmp_path / "state", 3, watch=os.getpid())
    assert verifier.content(Signer(tmp_path / "keys").sign(3, b"asked")) == b"asked"
    assert made.alive()
    assert made.connected()
    assert made.trouble() is None
    assert made.log.stat().st_mode & 0o777 == 0o600
    made.stop()
    assert not Path(folder).exists()


def test_without_an_authority_there_is_neither_tls_nor_a_key(node):
    made = node(key=Path("some.key"))
    made.start()
    assert told(made)["arguments"][-1] == "--insecure"
    assert "--auth-supernode-private-key" not in told(made)["arguments"]


@pytest.mark.parametrize("do", ["wait", "deaf"])
def test_all_of_it_ends(node, monkeypatch, do):
    monkeypatch.setattr(supernode, "STOP_TIMEOUT", 0.3)
    made = node(do)
    made.start()
    child = told(made)["child"]
    assert runs(child)
    made.stop()
    until(lambda: not runs(child))
    assert not made.alive()
    made.stop()


def test_the_resident_process_ends_with_it(node):
    made = node()
    folder = made.place.folder
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom fedkl.network import client_process\n"
        "kept = client_process.claim(Path(sys.argv[1]))\nprint(flush=True)\ntime.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as resident:
        resident.stdout.readline()
        made.start()
        made.stop()
        assert resident.wait(PATIENCE) == -signal.SIGTERM


def test_why_it_ended_is_known_and_what_it_left_ends_when_it_starts_again(node):
    made = node("refused")
    made.start()
    first = told(made)["child"]
    until(lambda: not made.alive())
    assert "does not know the key" in made.trouble().sentence
    assert made.trouble().passing
    assert not made.connected()
    assert runs(first)
    (made.log.parent / "told").unlink()
    node("wait")  # from now on
    made.start()
    until(lambda: not runs(first))
    told(made)
    assert made.connected()
    assert made.trouble() is None
    os.kill(made._process.pid, signal.SIGKILL)
    until(lambda: not made.alive())
    assert made.trouble() == Trouble("Flower's SuperNode was ended by signal 9", True)


def test_a_folder_that_others_may_look_into_is_refused(node):
    made = node()
    made.log.parent.mkdir(mode=0o755)
    with pytest.raises(UserError, match="closed to all others"):
        made.start()
