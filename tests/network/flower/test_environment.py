"""Flower's processes find each other, keep to their folder and call nobody."""

import fcntl
import os
import shutil
import sys
from pathlib import Path

import pytest

from fedkl.network.flower.environment import Scratch, flower_environment


def test_flower_finds_its_own_commands_and_calls_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/somewhere/else")
    monkeypatch.setenv("MINE", "kept")
    found = flower_environment(tmp_path / "home")
    assert found["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/somewhere/else"]
    for command in ("flower-supernode", "flower-superexec", "flwr-clientapp"):
        assert shutil.which(command, path=found["PATH"])
    assert found["FLWR_HOME"] == str(tmp_path / "home")
    assert found["FLWR_TELEMETRY_ENABLED"] == "0"
    assert found["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert found["MINE"] == "kept"


def test_what_a_user_has_set_for_flower_is_not_for_us(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_LOG_LEVEL", "DEBUG")
    assert "FLWR_LOG_LEVEL" not in flower_environment(tmp_path)


def test_what_flower_reads_is_always_in_a_new_folder_that_is_closed_to_others():
    scratch = Scratch()
    first = scratch.path
    assert scratch.path == first == scratch.home.parent
    assert [path.stat().st_mode & 0o777 for path in (first, scratch.home)] == [0o700, 0o700]
    (scratch.home / "apps").mkdir()
    # systemd-tmpfiles leaves alone what it cannot lock.
    other = os.open(first, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    scratch.remove()
    assert not first.exists()
    assert scratch.path != first
    assert list(scratch.home.iterdir()) == []
    scratch.remove()
    scratch.remove()
