"""Bytes are what was packed, or one exception."""

import json
import math

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fedkl.network import wire
from fedkl.network.wire import FORMAT, MessageError, pack, unpack

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3)
    ),
    max_leaves=5,
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(
    lambda name: name != "__metadata__"
)
ARRAYS = st.dictionaries(
    NAMES,
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: arrays_of.arrays(
            dtype, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
        )
    ),
    max_size=4,
)
HEADERS = st.dictionaries(st.text(max_size=3), JSON, max_size=3)
WHOLE = pack("request", {"round": 3}, {"a": np.arange(6, dtype=np.float32).reshape(2, 3)})


@settings(deadline=None)
@given(header=HEADERS, arrays=ARRAYS)
def test_what_is_packed_comes_back(header, arrays):
    data = pack("request", header, arrays)
    assert data == pack("request", header, dict(reversed(arrays.items())))
    found = unpack("request", data)
    assert found.header == header
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        have = found.arrays[name]
        assert (have.dtype, have.shape) == (array.dtype, array.shape)
        assert have.tobytes() == array.tobytes()
        assert have.flags.writeable


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_damaged_bytes_are_refused_and_nothing_else_happens(data):
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack("request", bytes(damaged))
    except MessageError:
        return
    # Spaces that fill the file's header up mean nothing.
    assert found.header == {"round": 3}
    assert found.arrays["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_anything_else_is_refused(data):
    with pytest.raises(MessageError):
        unpack("request", data)


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 9, 100, len(WHOLE) - 1])
def test_a_part_of_a_message_is_refused(cut):
    with pytest.raises(MessageError):
        unpack("request", WHOLE[:cut])
    with pytest.raises(MessageError):
        unpack("request", WHOLE[cut:] if cut else b"")


def test_a_view_is_packed_as_it_looks():
    array = np.arange(6, dtype=np.int64).reshape(2, 3).T
    assert unpack("x", pack("x", {}, {"a": array})).arrays["a"].tolist() == array.tolist()


def forged(line, tensors=None):
    return safetensors.numpy.save(tensors or {}, {"fedkl": line})


def test_another_version_is_refused_by_its_number():
    line = forged(f"{FORMAT + 1} request 00 {{}}")
    with pytest.raises(MessageError, match=f"format {FORMAT + 1}, and this fedkl knows {FORMAT}"):
        unpack("request", line)


def test_another_kind_is_refused():
    with pytest.raises(MessageError, match="not a reply but a request"):
        unpack("reply", WHOLE)


def test_a_file_of_somebody_else_is_refused():
    for metadata in (None, {"other": "1"}, {"fedkl": ""}, {"fedkl": "1"}, {"fedkl": "1 request"}):
        with pytest.raises(MessageError):
            unpack("request", safetensors.numpy.save({"a": np.zeros(2)}, metadata))


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[1]", "{", "[" * 100_000, "1" * 5000])
def test_json_must_be_a_strict_object(text):
    checksum = wire._checksum("request", text, {})
    with pytest.raises(MessageError, match="strict JSON"):
        unpack("request", forged(f"{FORMAT} request {checksum} {text}"))


def test_types_that_numpy_has_not_are_refused():
    header = {"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    header["__metadata__"] = {"fedkl": f"{FORMAT} request 00 {{}}"}
    text = json.dumps(header).encode()
    with pytest.raises(MessageError, match="a is of the type BF16"):
        unpack("request", len(text).to_bytes(8, "little") + text + bytes(4))


@pytest.mark.parametrize("array", [np.zeros(2, complex), np.array(["a"]), np.array([None])])
def test_what_cannot_be_sent_is_refused_before_it_is_sent(array):
    with pytest.raises(MessageError, match="cannot hold a, which is"):
        pack("request", {}, {"a": array})


@pytest.mark.parametrize("value", [math.nan, math.inf, b"bytes", {1, 2}])
def test_a_header_is_what_json_can_hold(value):
    with pytest.raises(MessageError, match="cannot hold this"):
        pack("request", {"a": value}, {})


def test_sizes_are_limited_on_both_sides():
    with pytest.raises(MessageError, match="over the limit of 100"):
        pack("request", {}, {"a": np.zeros(1000)}, limit=100)
    with pytest.raises(MessageError, match="over the limit of 100"):
        pack("request", {"a": "b" * 100}, {}, limit=100)
    with pytest.raises(MessageError, match=f"of {len(WHOLE)} bytes is over the limit of 100"):
        unpack("request", WHOLE, limit=100)
    assert unpack("request", WHOLE, limit=len(WHOLE)).header == {"round": 3}


@pytest.mark.parametrize("value", [-1, 2**63, True, 1.0, "1", None])
def test_whole_numbers_are_whole(value):
    with pytest.raises(MessageError, match="not a whole number"):
        wire.int_entry({"a": value}, "a")


@pytest.mark.parametrize("value", [True, "1", None, math.inf, 10**400])
def test_real_numbers_are_finite(value):
    with pytest.raises(MessageError, match="finite"):
        wire.float_entry({"a": value}, "a")


def test_a_reason_is_one_short_line_that_can_be_printed():
    assert wire.one_line("a\n  b\x1b[31m") == "a b?[31m"
    assert len(wire.one_line("x" * 10_000)) == wire.MAX_REASON
