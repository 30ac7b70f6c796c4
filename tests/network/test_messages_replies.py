"""What a client answers, as bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.engines import Failure
from fedkl.heterogeneity import Measurement
from fedkl.io.arrays import to_arrays
from fedkl.network import wire
from fedkl.network.messages import Reply, read_reply, result_of, write_reply
from fedkl.network.wire import MessageError

MEASURED = Measurement(*(np.full((2, 3), i, np.float32) for i in range(3)))
GOOD = Reply("f", 2, 5, 7, "n", "", to_arrays(MEASURED))
NUMBERS = st.integers(0, 2**63 - 1)


@settings(deadline=None)
@given(federation=st.text(st.characters(exclude_categories=["Cs"])), client=NUMBERS, turn=NUMBERS)
def test_a_reply_comes_back_as_it_was(federation, client, turn):
    reply = GOOD._replace(federation=federation, client=client, turn=turn)
    found = read_reply(write_reply(reply))
    assert found[:5] == reply[:5]
    got = result_of(found, MEASURED)
    assert type(got) is Measurement
    assert all(np.array_equal(a, b) for a, b in zip(got, MEASURED, strict=True))


def test_returns_come_back_as_one_array():
    returns = np.asarray([1.5, -2], np.float32)
    found = result_of(read_reply(write_reply(GOOD._replace(result=to_arrays(returns)))), returns)
    assert found.tolist() == [1.5, -2]


def test_a_failure_is_one_short_line():
    reply = Reply("f", 2, 5, 7, "n", "it\nfell " + "x" * 1000, {})
    reason = result_of(read_reply(write_reply(reply)), MEASURED).reason
    assert reason.startswith("it fell xxx")
    assert len(reason) == wire.MAX_REASON


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weighted": None}, "weighted is missing"),
        ({"more": np.zeros(1)}, "more is not expected"),
        (
            {"weighted": np.zeros((2, 4), np.float32)},
            "of shape (2, 4), not float32",
        ),
        ({"weighted": np.zeros((2, 3))}, "weighted is float64"),
        ({"weighted": np.zeros((1, 2, 3), np.float32)}, "of shape (1, 2, 3)"),
        ({"weighted": np.zeros((), np.float32)}, "of shape ()"),
        ({"weighted": np.zeros((2, 3), np.int32)}, "weighted is int32"),
    ],
)
def test_another_structure_shape_or_type_is_a_reason(changes, reason):
    arrays = {n: x for n, x in (GOOD.result | changes).items() if x is not None}
    found = result_of(read_reply(write_reply(GOOD._replace(result=arrays))), MEASURED)
    assert isinstance(found, Failure)
    assert reason in found.reason


@pytest.mark.parametrize("name", ["federation", "client", "round", "turn", "failure"])
def test_a_reply_must_name_everything(name):
    header, arrays = wire.unpack("reply", write_reply(GOOD))
    del header[name]
    with pytest.raises(MessageError, match=f"{name} is missing"):
        read_reply(wire.pack("reply", header, arrays))


@settings(deadline=None)
@given(at=st.integers(0, len(write_reply(GOOD)) - 1), by=st.integers(1, 255))
def test_a_damaged_reply_is_refused_or_means_the_same(at, by):
    data = bytearray(write_reply(GOOD))
    data[at] ^= by
    try:
        found = read_reply(bytes(data))
    except MessageError:
        return
    assert found[:5] == GOOD[:5]
