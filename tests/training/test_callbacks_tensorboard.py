"""The TensorBoard sink, read back from its event files."""

import errno
import os
import struct
import sys

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.training.callbacks import TensorBoardSink


def events(folder):
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.iterdir()):
        assert "tfevents" in path.name
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack_from("<Q", data)
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def scalars(folder):
    return {(e.step, v.tag): v.simple_value for e in events(folder) for v in e.summary.value}


def test_finite_scalars_at_their_round(tmp_path):
    pytest.importorskip("tensorboardX")
    sink = TensorBoardSink(tmp_path / "tb")
    record = {
        "round": 4,
        "loss": np.float32(0.5),
        "count": 3,
        "zero_d": np.array(2.0),
        "flag": True,
        "bad": float("nan"),
        "none": None,
        "text": "hello",
        "clients": [1, 2],
        "rejected": [7, 9],
        "kl": {"local": 0.25, "global": float("inf")},
    }
    sink.on_round(record)
    sink.on_round({"round": np.int32(5), "loss": 0.25, "rejected": []})
    expected = {
        (4, "loss"): 0.5,
        (4, "count"): 3.0,
        (4, "zero_d"): 2.0,
        (4, "flag"): 1.0,
        (4, "rejected"): 2.0,
        (4, "kl/local"): 0.25,
        (5, "loss"): 0.25,
        (5, "rejected"): 0.0,
    }
    assert scalars(tmp_path / "tb") == expected  # flushed before any close
    sink.on_end(None)
    sink.on_end(None)
    assert scalars(tmp_path / "tb") == expected


def test_a_resumed_run_hides_what_was_written_after_its_checkpoint(tmp_path):
    pytest.importorskip("tensorboardX")
    for rounds in ((1, 2, 3), (3, 4)):
        sink = TensorBoardSink(tmp_path)
        for round in rounds:
            sink.on_round({"round": round, "x": 1.0})
        sink.on_end(None)
    assert len(list(tmp_path.iterdir())) == 2
    starts = [event.step for event in events(tmp_path) if event.session_log.status]
    assert starts == [1, 3]


def test_nothing_is_written_without_a_record(tmp_path):
    pytest.importorskip("tensorboardX")
    TensorBoardSink(tmp_path / "tb").on_end(None)
    assert not (tmp_path / "tb").exists()


def test_a_full_disk_is_an_error_and_not_a_hang(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    sink = TensorBoardSink(tmp_path)
    sink.on_round({"round": 0, "x": 1.0})

    def fail(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        for round in range(1, 30):
            with pytest.raises(UserError, match="the disk is full"):
                sink.on_round({"round": round, "x": 1.0})
    sink.on_end(None)


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[tensorboard\]'"):
        TensorBoardSink(tmp_path)
