"""Folders of a user's own, also of a user without a home."""

import os
import tempfile
from pathlib import Path

import pytest

from fedkl.io import user_folders

NOWHERE = "/dev/null/nowhere"


@pytest.fixture(autouse=True)
def _of_a_new_process(tmp_path, monkeypatch):
    monkeypatch.setattr(user_folders, "_said", set())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stand_in(tmp_path):
    return tmp_path / "tmp" / f"fedkl-{os.getuid()}"


def test_folders_are_in_the_home_and_nothing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_folders.cache_folder() == tmp_path / "home" / ".cache" / "fedkl"
    assert user_folders.state_folder() == tmp_path / "home" / ".local" / "state" / "fedkl"
    assert capsys.readouterr().err == ""


def test_without_a_home_that_can_be_written_they_are_temporary_and_one_line_says_so(
    monkeypatch, capsys, stand_in
):
    monkeypatch.setenv("HOME", NOWHERE)
    for _ in range(2):
        assert user_folders.cache_folder() == stand_in / "cache"
        assert user_folders.state_folder() == stand_in / "state"
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"cannot write to {NOWHERE}/.cache/fedkl (Not a directory)" in said
    assert said.endswith(f"goes to {stand_in / 'cache'}\n")


def test_they_are_temporary_where_the_file_system_is_read_only(monkeypatch, tmp_path, stand_in):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    opened = tempfile.TemporaryFile

    def refuse(dir):
        if Path(dir).is_relative_to(tmp_path / "home"):
            raise OSError(30, "Read-only file system")
        return opened(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert user_folders.cache_folder() == stand_in / "cache"


def test_an_account_that_nobody_knows_a_home_of_has_temporary_ones(monkeypatch, capsys, stand_in):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert user_folders.cache_folder() == stand_in / "cache"
    assert "warning: there is no home folder; " in capsys.readouterr().err


def test_the_temporary_folder_is_closed_to_others_and_used_again(monkeypatch, stand_in):
    monkeypatch.setenv("HOME", NOWHERE)
    (user_folders.cache_folder() / "kept").touch()
    assert stand_in.stat().st_mode & 0o077 == 0
    assert (user_folders.cache_folder() / "kept").exists()


def test_a_temporary_folder_that_others_may_write_to_is_neither_written_nor_read(
    monkeypatch, stand_in
):
    monkeypatch.setenv("HOME", NOWHERE)
    stand_in.mkdir()
    stand_in.chmod(0o777)
    assert stand_in not in user_folders.cache_folder().parents
    assert user_folders.state_folders() == [Path(NOWHERE) / ".local" / "state" / "fedkl"]
