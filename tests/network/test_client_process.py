"""A client's process: one for each folder, started if it is not there, ended if it hangs."""

import os
import signal
import subprocess
import sys

import pytest
from waiting import PATIENCE

from fedkl.core.errors import UserError
from fedkl.network import client_process
from fedkl.network.client_process import ClientPlace

FORWARDER = """
import sys
import fedkl.network.client_process, fedkl.network.worker
heavy = {"jax", "numpy", "equinox", "safetensors"} & sys.modules.keys()
assert not heavy, heavy
"""


def test_a_folder_that_others_may_look_into_is_refused(tmp_path):
    (tmp_path / "0").mkdir(mode=0o755)
    with pytest.raises(UserError, match="closed to all others"):
        client_process.ensure_running(ClientPlace(tmp_path, 0))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot use"):
        client_process.ensure_running(ClientPlace(tmp_path / "file", 0))


def test_a_folder_is_served_by_one_process(tmp_path):
    assert client_process.running_pid(tmp_path) is None
    ours = client_process.claim(tmp_path)
    assert client_process.running_pid(tmp_path) == os.getpid()
    assert client_process.claim(tmp_path) is None
    os.close(ours)
    assert client_process.running_pid(tmp_path) is None
    again = client_process.claim(tmp_path)
    assert again is not None
    os.close(again)


def test_the_number_of_a_process_that_is_gone_is_forgotten(tmp_path):
    os.close(client_process.claim(tmp_path))
    assert (tmp_path / "worker.lock").read_text() == str(os.getpid())
    assert client_process.running_pid(tmp_path) is None
    assert (tmp_path / "worker.lock").read_text() == ""


def test_whoever_only_hands_bytes_on_imports_nothing_large():
    subprocess.run([sys.executable, "-c", FORWARDER], check=True, timeout=60)


def test_a_process_that_hangs_is_killed(tmp_path):
    """It holds the lock, and does not listen to SIGTERM."""
    code = (
        "import signal, sys, time\nfrom pathlib import Path\n"
        "from fedkl.network import client_process\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"kept = client_process.claim(Path({str(tmp_path / '0')!r}))\nprint('there', flush=True)\n"
        "time.sleep(60)"
    )
    (tmp_path / "0").mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert client_process.running_pid(tmp_path / "0") == process.pid
        client_process.stop(ClientPlace(tmp_path, 0), seconds=0.2)
        assert process.wait(PATIENCE) == -signal.SIGKILL
