"""The file of a lock: what is left of it, what is read of it, and a disk that fails."""

import errno
import os

import pytest

from fedkl.core.errors import UserError
from fedkl.io import locks
from fedkl.io.locks import LOCK, last_saved, lock_directory


def fail(number):
    def call(*_):
        raise OSError(number, os.strerror(number))

    return call


def test_a_lock_that_cannot_be_written_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", fail(errno.ENOSPC))
    with pytest.raises(UserError, match="the disk is full"), lock_directory(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_process_noted_outlives_a_full_disk(tmp_path, monkeypatch):
    with lock_directory(tmp_path) as lock:
        lock.note(7)
    monkeypatch.setattr(os, "write", fail(errno.ENOSPC))
    with pytest.raises(UserError, match="the disk is full"), lock_directory(tmp_path):
        pass
    assert last_saved(tmp_path) == 7


def test_of_a_file_of_many_megabytes_only_the_beginning_is_read(tmp_path, monkeypatch):
    with (tmp_path / LOCK).open("wb") as file:
        file.write(b"12\n7\n")
        file.truncate(2**40)  # it takes no room, and would fill the memory
    assert last_saved(tmp_path) == 7
    with lock_directory(tmp_path):
        pass
    assert (tmp_path / LOCK).stat().st_size < 100


def closing(monkeypatch, number):
    """Closes files, and says that the disk could not write."""
    close = os.close

    def broken(descriptor):
        close(descriptor)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locks.os, "close", broken)


def test_a_disk_that_fails_when_the_lock_is_closed_is_a_sentence(tmp_path, monkeypatch):
    failed = pytest.raises(UserError, match=r"cannot write .*\.lock: the disk failed")
    with failed, lock_directory(tmp_path):
        closing(monkeypatch, errno.EIO)
    monkeypatch.undo()
    with lock_directory(tmp_path):
        pass


def test_what_went_wrong_before_the_lock_was_closed_is_said(tmp_path, monkeypatch):
    def work():
        with lock_directory(tmp_path):
            closing(monkeypatch, errno.EIO)
            raise UserError("the first")

    with pytest.raises(UserError, match="the first"):
        work()
