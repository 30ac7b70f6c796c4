"""The metrics log and its strict JSON."""

import errno
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.core.errors import UserError
from fedkl.io.strict_json import decode, encode
from fedkl.training import metrics
from fedkl.training.metrics import MetricsLog


@pytest.fixture
def log(tmp_path) -> MetricsLog:
    return MetricsLog(tmp_path / "metrics.jsonl")


def refuse(constant):
    raise AssertionError(f"{constant} is not strict JSON")


_SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_RECORDS = st.dictionaries(st.text(), _VALUES, max_size=5)


def expected(value):
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: expected(item) for key, item in value.items()}
    return [expected(item) for item in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(record=_RECORDS)
def test_records_round_trip(record):
    line = encode(record)
    assert b"\n" not in line
    assert repr(decode(line)) == repr(expected(record))  # repr tells 1 from 1.0, and 0.0 from -0.0
    json.loads(line, parse_constant=refuse)


@settings(deadline=None)
@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float32_comes_back_exactly(value):
    back = decode(encode({"x": np.float32(value)}))["x"]
    assert np.float32(back).tobytes() == np.float32(value).tobytes()


def test_numpy_becomes_plain():
    record = {
        "scalars": [np.float64(0.1), np.int32(3), np.uint32(2**32 - 1), np.bool_(True)],
        "zero_d": np.array(2.5, np.float32),
        "matrix": np.array([[1.0, np.nan], [np.inf, -np.inf]]),
        "nested": {"clients": (np.int64(1), np.str_("a"))},
    }
    assert decode(encode(record)) == {
        "scalars": [0.1, 3, 2**32 - 1, True],
        "zero_d": 2.5,
        "matrix": [[1.0, None], [None, None]],
        "nested": {"clients": [1, "a"]},
    }


@pytest.mark.parametrize("record", [{"x": object()}, {1: 2}, {"a": {None: 1}}, {"x": 1j}])
def test_what_has_no_json_form_is_refused_before_anything_is_written(log, record):
    with pytest.raises(TypeError):
        log.append(record)
    assert not log.path.exists()


@pytest.mark.parametrize("text", [b"NaN", b'{"x": NaN}', b"[1]", b"3", b"\xff", b'{"a": 1} {}'])
def test_decoding_is_strict(text):
    with pytest.raises(ValueError):  # noqa: PT011 (each text has its own message)
        decode(text)


def test_no_file_is_an_empty_log(log):
    assert log.read() == []
    log.truncate_after(3)
    assert not log.path.exists()


def test_append_and_read(log):
    records = [{"round": r, "loss": 0.1 * r} for r in range(5)]
    for record in records:
        log.append(record)
    assert log.read() == records
    assert MetricsLog(log.path).read() == records
    assert log.path.read_bytes().count(b"\n") == 5


def test_every_append_is_synced(log, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda d: (synced.append(os.fstat(d).st_size), fsync(d)))
    log.append({"round": 1})
    log.append({"round": 2})
    assert synced[-1] == log.path.stat().st_size
    assert len(synced) == 3  # the folder of the new file, and each line


def test_a_torn_last_line_is_no_record_wherever_it_tears(log):
    log.append({"round": 1})
    first = log.path.read_bytes()
    log.append({"round": 2, "loss": 0.5})
    whole = log.path.read_bytes()
    for length in range(len(first), len(whole)):
        log.path.write_bytes(whole[:length])
        assert log.read() == [{"round": 1}]
        log.truncate_after(5)
        assert log.path.read_bytes() == first
        log.path.write_bytes(whole[:length])
        log.append({"round": 3})
        assert log.read() == [{"round": 1}, {"round": 3}]


def test_a_first_line_that_is_torn(log):
    log.path.write_bytes(b'{"round"')
    assert log.read() == []
    log.append({"round": 1})
    assert log.read() == [{"round": 1}]


def test_zeros_of_a_power_failure_are_a_torn_line(log):
    log.append({"round": 1})
    with log.path.open("ab") as file:
        file.write(b"\0" * 40 + b"}\n")
    assert log.read() == [{"round": 1}]
    log.truncate_after(1)
    log.append({"round": 2})
    assert log.read() == [{"round": 1}, {"round": 2}]


def test_a_broken_line_in_the_middle_is_named_and_nothing_is_touched(log):
    broken = b'{"round": 1}\n{"round": 2\n{"round": 3}\n'
    log.path.write_bytes(broken)
    for action in (log.read, lambda: log.truncate_after(1)):
        with pytest.raises(UserError, match=f"line 2 of {log.path}"):
            action()
    assert log.path.read_bytes() == broken


def test_truncate_after_drops_later_rounds_only(log):
    log.append({"note": "no round"})
    for round in (1, 2, 3, 2.5, 4):
        log.append({"round": round})
    log.append({"round": None})
    log.truncate_after(2)
    assert log.read() == [{"note": "no round"}, {"round": 1}, {"round": 2}, {"round": None}]
    assert os.listdir(log.path.parent) == ["metrics.jsonl"]


def test_truncate_after_writes_only_what_changes(log, monkeypatch):
    log.append({"round": 1})

    def fail(*_args):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", fail)
    log.truncate_after(1)
    with pytest.raises(UserError, match="read-only"):
        log.truncate_after(0)
    assert log.read() == [{"round": 1}]


def test_a_failed_append_leaves_the_log_as_it_was(log, monkeypatch):
    log.append({"round": 1})
    before = log.path.read_bytes()
    write = os.write

    def partial(descriptor, data):
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", partial)
        with pytest.raises(UserError, match=f"cannot write {log.path}: the disk is full"):
            log.append({"round": 2, "text": "x" * 50})
    assert log.path.read_bytes() == before
    log.append({"round": 2})
    assert log.read() == [{"round": 1}, {"round": 2}]


def test_a_full_device(tmp_path):
    with pytest.raises(UserError, match="cannot write /dev/full: the disk is full"):
        MetricsLog(Path("/dev/full")).append({"round": 1})
    with pytest.raises(UserError, match="it does not exist"):
        MetricsLog(tmp_path / "missing" / "log").append({"round": 1})
    with pytest.raises(UserError, match="it is a directory"):
        MetricsLog(tmp_path).read()


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("whole", [0, 1, 2])
def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(log, monkeypatch, end, whole):
    monkeypatch.setattr(metrics, "_LONGEST", 1000)
    for round in range(1, whole + 1):
        log.append({"round": round})
    with log.path.open("ab") as file:
        file.write(b"x" * 2000 + end)
    sentence = f"line {whole + 1} of {log.path} is longer than 1,000 bytes"
    for read in (log.read, log.count, lambda: log.truncate_after(1)):
        with pytest.raises(UserError, match=sentence):
            read()


def test_no_line_is_written_that_could_not_be_read(log, monkeypatch):
    monkeypatch.setattr(metrics, "_LONGEST", 1000)
    log.append({"round": 1, "note": "x" * 900})
    with pytest.raises(UserError, match="is too long for"):
        log.append({"round": 2, "note": "x" * 1000})
    assert [record["round"] for record in log.read()] == [1]


@pytest.mark.parametrize("torn", [1, 6, 7, 8, 100])
def test_a_torn_line_of_any_length_is_removed_by_the_next_record(log, monkeypatch, torn):
    monkeypatch.setattr(metrics, "_AT_ONCE", 7)
    log.append({"round": 1})
    with log.path.open("ab") as file:
        file.write(b"x" * torn)
    log.append({"round": 2})
    assert [record["round"] for record in log.read()] == [1, 2]
