"""Flower's processes find each other, keep to their folder and call nobody."""

import fcntl
import os
import re
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from commands import call

from fedkl.core.errors import UserError
from fedkl.network.flower import app_allowlist, environment
from fedkl.network.flower.environment import Scratch, flower_environment, require_flower


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


def install(monkeypatch, version):
    """Let it be the installed version of Flower; None: there is none."""

    def version_of(package):
        if version is None:
            raise metadata.PackageNotFoundError(package)
        return version

    monkeypatch.setattr(environment.metadata, "version", version_of)


@pytest.mark.parametrize("version", ["1.41.0", "1.41.7", "1.42.0", "1.42.0.dev20261101"])
def test_a_tested_version_of_flower_is_taken(monkeypatch, version):
    install(monkeypatch, version)
    require_flower()


@pytest.mark.parametrize("version", ["1.40.9", "1.43.0", "2.0.0", "0.19.0", "unknown", None])
@pytest.mark.parametrize(
    "command",
    [("serve", "demo", "--local", 1), ("join", "127.0.0.1:1", "--client", 0)],
    ids=lambda command: command[0],
)
def test_another_version_ends_a_command_at_once_in_a_sentence(
    monkeypatch, tmp_path, capsys, version, command
):
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, version)
    code, out, err = call(capsys, *command)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "`pip install -e '.[flower]'`" in err
    assert (f"Flower {version} is installed" in err) == (version is not None)
    assert [*tmp_path.iterdir()] == []


def test_a_served_run_is_not_touched_by_another_version(monkeypatch, tmp_path, capsys):
    from fedkl.cli import evaluate, resume

    install(monkeypatch, "1.43.0")
    for there in (lambda: resume._resume_served(None, None), lambda: enter(evaluate._connected)):
        with pytest.raises(UserError, match=r"^Flower 1\.43\.0 is installed, .* 1\.41 to 1\.42"):
            there()


def enter(manager):
    with manager(None, None):
        pass


def test_what_is_installed_is_what_was_tested():
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    flower, _ = project["optional-dependencies"]["flower"]
    (major, low), (_, high) = environment.LOWEST, environment.HIGHEST
    assert flower == f"flwr>={major}.{low},<{major}.{high + 1}"
    app = tomllib.loads(app_allowlist.APP.read_text("utf-8"))["project"]
    assert app["dependencies"] == [flower]
    said = (root / "docs/deployment.md").read_text("utf-8")
    assert f"`{flower}`" in said
    assert re.search(rf"{major}\.{low}\b.*{major}\.{high}\b", said)
