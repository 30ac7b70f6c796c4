"""Atomic writes: the old or the new, never between, and a sentence for every failure."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedkl.core.errors import UserError
from fedkl.io.files import (
    explain_os_errors,
    make_directory,
    read_if_there,
    require_writable,
    write_atomically,
)
from fedkl.training.checkpoints import Checkpoints
from fedkl.training.metrics import MetricsLog


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "file"
    for data in (b"old", b"", b"new" * 100_000):
        write_atomically(path, data)
        assert path.read_bytes() == data
        assert names(tmp_path) == ["file"]


def test_contents_are_synced_before_the_rename_and_the_folder_after(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def spy_replace(*paths):
        calls.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    write_atomically(tmp_path / "file", b"data")
    assert calls == ["file", "rename", "folder"]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    write_atomically(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


@pytest.mark.parametrize("function", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EACCES, "permission is denied"),
        (errno.EIO, "the disk failed"),
        (errno.ESTALE, "tale"),
    ],
)
def test_failures_lose_nothing(tmp_path, monkeypatch, function, number, reason):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_args):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(UserError, match=reason) as caught:
            write_atomically(path, b"new")
    assert str(path) in str(caught.value)
    assert "tmp" not in str(caught.value).removeprefix(f"cannot write {path}")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_an_interrupt_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupt(_descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"data")
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path, monkeypatch):
    fsync = os.fsync

    def only_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    write_atomically(tmp_path / "file", b"data")
    assert (tmp_path / "file").read_bytes() == b"data"


def test_paths_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    for path, reason in [
        (tmp_path / "missing" / "file", "it does not exist"),
        (tmp_path / "file" / "inside", "not a directory"),
        (tmp_path / ("n" * 300), "the name is too long"),
        (tmp_path, "it is a directory"),
    ]:
        with pytest.raises(UserError, match=reason):
            write_atomically(path, b"data")
    with pytest.raises(UserError, match="in the way"), explain_os_errors("create", tmp_path):
        make_directory(tmp_path / "file")


def test_a_full_device_is_explained():
    with (
        pytest.raises(UserError, match="cannot write /dev/full: the disk is full"),
        explain_os_errors("write", Path("/dev/full")),
        open("/dev/full", "wb", buffering=0) as full,
    ):
        full.write(b"data")


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from fedkl.core.errors import UserError
from fedkl.io.files import write_atomically
from fedkl.training.checkpoints import Checkpoints
from fedkl.training.metrics import MetricsLog

folder = Path(sys.argv[1])
log, checkpoints = MetricsLog(folder / "log"), Checkpoints(folder / "checkpoints")
write_atomically(folder / "file", b"old")
log.append({"round": 1})
checkpoints.save(1, {"x": np.ones(3)})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (
    lambda: write_atomically(folder / "file", b"x" * 5000),
    lambda: log.append({"round": 2, "text": "x" * 5000}),
    lambda: checkpoints.save(2, {"x": np.ones(5000)}),
):
    try:
        write()
    except UserError as error:
        print(error)
log.append({"round": 2})
"""


def test_a_write_that_the_kernel_cuts_short_is_undone(tmp_path):
    """The kernel takes a part of the bytes and refuses the rest, as on a disk that fills up."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.count("larger than the system allows") == 3
    assert names(tmp_path) == ["checkpoints", "file", "log"]
    assert (tmp_path / "file").read_bytes() == b"old"
    assert MetricsLog(tmp_path / "log").read() == [{"round": 1}, {"round": 2}]
    assert Checkpoints(tmp_path / "checkpoints").rounds() == [1]
    assert len(names(tmp_path / "checkpoints")) == 1


def test_files_and_folders_are_as_private_as_asked(tmp_path):
    folder = tmp_path / "a" / "b"
    make_directory(folder, 0o700)
    write_atomically(folder / "secret", b"x", 0o600)
    modes = [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "secret")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_path_that_cannot_be_written_is_refused_before_anything_costs_time(tmp_path):
    (tmp_path / "folder").mkdir()
    require_writable(tmp_path / "new")
    for name, reason in (("none/a", "none does not exist"), ("folder", "it is a directory")):
        with pytest.raises(UserError, match=f"cannot write .*{name}: .*{reason}"):
            require_writable(tmp_path / name)
    assert names(tmp_path) == ["folder"]


def test_a_file_is_read_if_it_is_there_and_every_other_trouble_is_a_sentence(tmp_path):
    path = tmp_path / "file"
    assert read_if_there(path) is None
    path.write_bytes(b"data")
    assert read_if_there(path, 4) == b"data"
    with pytest.raises(UserError, match=r"file is larger than 3 bytes, which is not sensible$"):
        read_if_there(path, 3)
    with pytest.raises(UserError):
        read_if_there(tmp_path)
