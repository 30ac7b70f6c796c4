"""Whatever bytes come, those who read them answer as they promise: what it is, or one sentence.

Inputs are good ones that were bitten, cut and doubled. A few of them in the ordinary tests, a
million with `make fuzz`.
"""

import contextlib
import hashlib
import json
import os
from functools import cache

import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedkl
from fedkl.config.config import from_mapping
from fedkl.io import strict_json, strict_toml
from fedkl.network import wire
from fedkl.network.messages import Reply, read_reply, write_reply
from fedkl.training import checkpoint_files
from fedkl.training.checkpoint_files import DamagedError, File
from fedkl.training.metrics import MetricsLog
from fedkl.training.origin import decode
from fedkl.training.records import require_sensible

READERS = 5
MANY = int(os.environ.get("FEDKL_FUZZ", "1000000")) // READERS
BITES = (
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"\n",
    b"\0",
    b",",
    b":",
    b".",
    b"=",
    b"-",
    b"9" * 20,
    b"\xff",
)


@st.composite
def bitten(draw, whole):
    """Good bytes, with a few of them changed."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 12))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            data[at : at + length] = draw(st.sampled_from(BITES))
        elif kind == 1:
            data[at : at + length] = draw(st.binary(max_size=8))
        elif kind == 2:
            data[at:at] = data[at : at + 20 * length]
        else:
            del data[at : at + 20 * length]
    return bytes(data)


REPLY = Reply("f", 2, 5, 7, "n", "", {"a": np.arange(4, dtype=np.float32), "b": np.ones((2, 2))})


@cache
def an_update():
    return write_reply(REPLY)


@cache
def a_header():
    return json.dumps(wire.unpack("reply", an_update()).header).encode()


@cache
def a_config():
    return tomli_w.dumps(fedkl.preset("probe-point").mapping()).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@cache
def a_log(folder):
    log = MetricsLog(folder / "good.jsonl")
    for round in range(1, 4):
        log.append(
            {
                "round": round,
                "return_mean": -0.5,
                "rejected": [{"client": 1, "reason": "late"}],
                "coefficients": {"c1": 0.1},
                "note": None,
            }
        )
    return log.path.read_bytes()


@cache
def a_checkpoint(folder):
    arrays = {"round": np.array(3), "model.x": np.ones(3, np.float32)}
    rows = checkpoint_files.stacked(
        {0: {"c": np.ones(2)}, 4: {"c": np.zeros(2)}}, [0, 4], {"c": (np.dtype("f8"), (2,))}
    )
    origin = {"config": "{}", "rounds": "3", "plugins": "[]", "params": '""'}
    origin |= {"history": "[]", "log": '""'}
    return checkpoint_files.write(folder, 3, arrays, rows, None, origin).path.read_bytes()


def read_update(data, _):
    with contextlib.suppress(wire.MessageError):
        read_reply(data)


def read_header(data, _):
    """Of an update with the right checksum, as anybody can make one."""
    try:
        header = strict_json.decode(data)
    except ValueError:
        return
    with contextlib.suppress(wire.MessageError):
        read_reply(wire.pack("reply", header, REPLY.result))


def read_config(data, _):
    with contextlib.suppress(ValueError, fedkl.UserError):
        from_mapping(strict_toml.parse(data.decode("utf-8")))


def read_log(data, folder):
    log = MetricsLog(folder / "metrics.jsonl")
    log.path.write_bytes(data)
    with contextlib.suppress(fedkl.UserError):
        for line in log.lines_of_rounds():
            require_sensible(log, line.record)


def read_checkpoint(data, folder):
    """With the right checksum, so that what is inside is looked at."""
    file = File(3, hashlib.sha256(data).hexdigest(), folder / "checkpoint")
    file.path.write_bytes(data)
    with contextlib.suppress(DamagedError):
        origin = checkpoint_files.read(file).origin
        with contextlib.suppress(ValueError):
            decode(origin)


def fuzz(read, whole, folder, examples):
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(bitten(whole))
    def feed(data):
        if data != whole:
            read(data, folder)

    feed()


def wholes(folder):
    return {
        read_update: an_update(),
        read_header: a_header(),
        read_config: a_config(),
        read_log: a_log(folder),
        read_checkpoint: a_checkpoint(folder),
    }


READ = (read_update, read_header, read_config, read_log, read_checkpoint)


@pytest.mark.parametrize("read", READ)
def test_bitten_bytes_are_answered(folder, read):
    fuzz(read, wholes(folder)[read], folder, 150)


@pytest.mark.slow
@pytest.mark.parametrize("read", READ)
def test_a_million_bitten_bytes_are_answered(folder, read):
    assert len(READ) == READERS
    fuzz(read, wholes(folder)[read], folder, MANY)
