"""Run directories: creation, opening, and the lock between processes."""

import errno
import io
import os
import subprocess
import sys

import numpy as np
import pytest
from waiting import PATIENCE

from fedkl.core.errors import UserError
from fedkl.io import files
from fedkl.training.directory import SERVING, RunDirectory, is_served

CONFIG = {
    "name": 'quotes " and ünicode',
    "federation": {"rounds": 3, "rate": 0.1, "layers": [64, 64], "all": True},
    "worlds": [{"kind": "reacher"}, {"kind": "other"}],
}

HOLDER = """
import sys, time
from pathlib import Path
from fedkl.training.directory import RunDirectory
with RunDirectory.open(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def names(folder) -> set[str]:
    return {entry.name for entry in folder.iterdir()} - {".lock"}


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", CONFIG)


def test_create_then_open(tmp_path):
    path = tmp_path / "deep" / "er" / "run"
    run = RunDirectory.create(path, CONFIG)
    assert names(path) == {"config.toml"}
    for same in (run, RunDirectory.open(path)):
        assert same.path == path
        assert same.config() == CONFIG
        assert same.metrics.read() == []
        assert same.checkpoints.latest(pytest.fail) is None
        assert same.summary() is None


def test_a_life(run):
    with run.lock():
        run.metrics.append({"round": 1})
        run.checkpoints.save(1, {"x": np.ones(2)})
        run.write_summary({"rounds": 1, "return": np.float32(0.5), "nan": np.nan})
    assert names(run.path) == {"config.toml", "metrics.jsonl", "summary.json", "checkpoints"}
    again = RunDirectory.open(run.path)
    assert again.metrics.read() == [{"round": 1}]
    assert again.checkpoints.rounds() == [1]
    assert again.summary() == {"rounds": 1, "return": 0.5, "nan": None}


def test_an_empty_directory_may_become_a_run(tmp_path):
    assert RunDirectory.create(tmp_path, CONFIG).config() == CONFIG


def test_a_half_created_directory_may_become_a_run(tmp_path):
    (tmp_path / ".lock").write_text("1\n")
    (tmp_path / ".config.toml.1.deadbeef.fedkl-tmp").write_text("na")
    RunDirectory.create(tmp_path, CONFIG)
    assert names(tmp_path) == {"config.toml"}


def test_a_directory_is_a_run_only_when_it_says_how_it_is_served(tmp_path):
    def killed(path):
        assert not (path / "config.toml").exists()
        (path / SERVING).write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RunDirectory.create(tmp_path, CONFIG, killed)
    with pytest.raises(UserError, match="is not a run directory"):
        RunDirectory.open(tmp_path)
    RunDirectory.create(tmp_path, CONFIG)
    assert not is_served(tmp_path)


def test_an_existing_run_is_not_overwritten(run):
    with pytest.raises(UserError, match=r"holds a run already.*`fedkl resume .*run`"):
        RunDirectory.create(run.path, {})
    assert run.config() == CONFIG


def test_other_contents_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(UserError, match=r"is not empty.*`fedkl resume "):
        RunDirectory.create(tmp_path, CONFIG)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file"):
        RunDirectory.create(tmp_path / "thesis.tex", CONFIG)
    with pytest.raises(UserError, match="not a directory"):
        RunDirectory.create(tmp_path / "thesis.tex" / "run", CONFIG)


def test_a_config_that_toml_cannot_hold_makes_no_directory(tmp_path):
    with pytest.raises(TypeError):
        RunDirectory.create(tmp_path / "run", {"x": None})
    assert not (tmp_path / "run").exists()


def test_what_is_not_a_run_is_not_opened(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        RunDirectory.open(tmp_path / "missing")
    with pytest.raises(UserError, match=r"is not a run directory: it has no config\.toml"):
        RunDirectory.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not a run directory"):
        RunDirectory.open(tmp_path / "file")


def test_of_a_directory_with_runs_inside_one_is_named(tmp_path):
    for name in ("b", "a"):
        RunDirectory.create(tmp_path / "three" / name, {})
    with pytest.raises(
        UserError, match=r"three is not a run, but holds some: .* such as .*three/a$"
    ):
        RunDirectory.open(tmp_path / "three")


@pytest.mark.parametrize("text", [b"a = ", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_a_broken_config_is_named(run, text):
    (run.path / "config.toml").write_bytes(text)
    with pytest.raises(UserError, match=r"config\.toml is not valid TOML"):
        run.config()


def test_a_broken_summary_is_named(run):
    (run.path / "summary.json").write_text('{"x": ')
    with pytest.raises(UserError, match=r"summary\.json is not valid JSON"):
        run.summary()


def test_returns_come_back_exactly(run):
    assert run.read_returns(3) is None
    for returns in (np.array([1.5, np.nan, -0.0]), np.arange(6, dtype=np.float32).reshape(2, 3)):
        run.write_returns(3, returns)
        loaded = run.read_returns(3)
        assert (loaded.dtype, loaded.shape) == (returns.dtype, returns.shape)
        assert loaded.tobytes() == returns.tobytes()
    run.write_returns(1_234_567, np.ones(1))
    assert names(run.path / "returns") == {"000003.npy", "1234567.npy"}
    np.testing.assert_array_equal(np.load(run.path / "returns" / "000003.npy"), returns)


def test_returns_that_cannot_be_are_refused(run):
    with pytest.raises(ValueError, match="negative"):
        run.write_returns(-1, np.ones(1))
    with pytest.raises(ValueError, match="Object arrays"):
        run.write_returns(1, np.array([None]))
    assert run.read_returns(1) is None


@pytest.mark.filterwarnings("ignore")  # NumPy guesses at what a damaged header may have meant
def test_damaged_returns_are_named(run):
    run.write_returns(2, np.ones(3))
    path = run.path / "returns" / "000002.npy"
    whole = path.read_bytes()
    pickled = io.BytesIO()
    np.save(pickled, np.array([None]), allow_pickle=True)
    archive = io.BytesIO()
    np.savez(archive, np.ones(3))
    broken = [whole[:length] for length in range(len(whole))]
    broken += [whole + b"x", b"PK\x03\x04", pickled.getvalue(), archive.getvalue()]
    for data in broken:
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"returns/000002\.npy is damaged") as caught:
            run.read_returns(2)
        assert "\n" not in str(caught.value)


def test_locking_removes_half_written_returns(run):
    run.write_returns(2, np.ones(3))
    (run.path / "returns" / ".000003.npy.1.deadbeef.fedkl-tmp").write_text("half")
    with run.lock():
        assert names(run.path / "returns") == {"000002.npy"}


@pytest.mark.parametrize("function", ["mkdir", "open", "write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_failed_creation_can_be_repeated(tmp_path, monkeypatch, function, number):
    def fail(*_args, **_options):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(UserError, match=r"read-only|full"):
            RunDirectory.create(tmp_path / "run", CONFIG)
    assert RunDirectory.create(tmp_path / "run", CONFIG).config() == CONFIG


def test_the_lock_is_exclusive_and_reusable(run):
    for _ in range(2):
        with run.lock():
            message = f"{run.path} is in use by process {os.getpid()}"
            with pytest.raises(UserError, match=message), RunDirectory.open(run.path).lock():
                pass


def test_the_lock_is_freed_by_an_exception(run):
    with pytest.raises(KeyError), run.lock():
        raise KeyError
    with run.lock():
        pass


def test_a_lock_without_a_readable_number(run):
    with run.lock():
        (run.path / ".lock").write_bytes(b"")
        message = "is in use by another process"
        with pytest.raises(UserError, match=message), RunDirectory.open(run.path).lock():
            pass


def test_whoever_holds_the_lock_has_it_inside_too_and_until_its_own_end(run):
    with run.lock() as outer:
        with run.lock() as inner:
            assert inner is outer
        with pytest.raises(UserError, match="is in use"), RunDirectory.open(run.path).lock():
            pass
    with RunDirectory.open(run.path).lock():
        pass


def test_locking_removes_what_a_dead_process_left(run):
    (run.path / ".metrics.jsonl.1.deadbeef.fedkl-tmp").write_text("half")
    with run.lock():
        assert names(run.path) == {"config.toml"}


def test_a_lock_on_a_read_only_disk(run, monkeypatch):
    def fail(*_args):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", fail)
    with (
        pytest.raises(UserError, match=r"cannot lock .*: the file system is read-only"),
        run.lock(),
    ):
        pass


def test_the_lock_binds_other_processes_until_sigkill(run):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(UserError, match=f"in use by process {holder.pid}$"), run.lock():
                pass
            with pytest.raises(UserError, match="holds a run already"):
                RunDirectory.create(run.path, CONFIG)
            assert run.config() == CONFIG  # reading needs no lock
        finally:
            holder.kill()
        holder.wait(timeout=PATIENCE)
        with run.lock():
            pass


def test_a_run_that_another_process_makes_is_not_removed(tmp_path, monkeypatch):
    made = RunDirectory._require_vacant
    calls = []

    def between(self):
        calls.append(made(self))
        if len(calls) == 1:  # the other process is quicker
            monkeypatch.setattr(RunDirectory, "_require_vacant", made)
            RunDirectory.create(tmp_path / "run", CONFIG)

    monkeypatch.setattr(RunDirectory, "_require_vacant", between)
    with pytest.raises(UserError, match="holds a run already"):
        RunDirectory.create(tmp_path / "run", CONFIG)
    assert RunDirectory.open(tmp_path / "run").config() == CONFIG


def test_a_folder_that_was_there_stays_when_a_run_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()

    def full(path, data):
        raise UserError("the disk is full")

    monkeypatch.setattr(files, "write_atomically", full)
    for path in (tmp_path / "mine", tmp_path / "runs" / "one"):
        with pytest.raises(UserError, match="the disk is full"):
            RunDirectory.create(path, CONFIG)
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]
