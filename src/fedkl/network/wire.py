"""The format of messages, and of states on a client's disk: a plain safetensors file.

Its arrays are the arrays. Its only metadata entry is a line `FORMAT KIND SHA256 JSON`: the version
of this format, the kind (request, reply, state), a checksum of everything else, and the header as
strict JSON. Nothing is unpickled, so reading runs no code. All
errors in received bytes are one exception.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from fedkl.io import strict_json
from fedkl.network import MAX_MESSAGE_BYTES

FORMAT = 1
MAX_REASON = 200
"""Characters of a reason."""
_ENTRY = "fedkl"
_DTYPES = {
    "BOOL": np.dtype("?"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
Arrays = dict[str, np.ndarray]


class MessageError(Exception):
    """An invalid message; the problem in one sentence."""


class Message(NamedTuple):
    """A decoded message."""

    header: dict[str, Any]
    arrays: Arrays


def pack(
    kind: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    limit: int = MAX_MESSAGE_BYTES,
) -> bytes:
    """Encode a message; equal messages give equal bytes.

    Args:
        kind: in one word.
        header: of JSON's types.
        arrays: each by its name.
        limit: bytes that it may have.

    Raises:
        MessageError: it is too large, or has a value that cannot be sent.
    """
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"a {kind} cannot hold this: {error}") from error
    # safetensors copies raw memory, so a transposed view would be sent scrambled.
    tensors = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in tensors.items():
        if array.dtype not in _DTYPES.values():
            raise MessageError(f"a {kind} cannot hold {name}, which is {array.dtype}")
    if (size := sum(array.nbytes for array in tensors.values())) > limit:
        raise MessageError(f"a {kind} has {size} bytes or more, over the limit of {limit}")
    line = f"{FORMAT} {kind} {_checksum(kind, text, tensors)} {text}"
    data = safetensors.numpy.save(tensors, {_ENTRY: line})
    _check_size(kind, data, limit)
    return data


def unpack(kind: str, data: bytes, limit: int = MAX_MESSAGE_BYTES) -> Message:
    """Decode and check a message.

    Args:
        kind: that is expected.
        data: any bytes.
        limit: bytes that it may have.

    Raises:
        MessageError: it is too large, or is not such a message.
    """
    _check_size(kind, data, limit)
    try:
        tensors = safetensors.deserialize(data)  # type: ignore[no-untyped-call]  # its own
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        line: str = metadata[_ENTRY]
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageError(f"it is not a {kind} of fedkl, or a damaged one") from error
    version, _, rest = line.partition(" ")
    if version != str(FORMAT):
        raise MessageError(
            f"it is a message of format {one_line(version)}, and this fedkl knows {FORMAT}: use "
            "the same version of fedkl on both sides"
        )
    its_kind, _, rest = rest.partition(" ")
    checksum, _, text = rest.partition(" ")
    if its_kind != kind:
        raise MessageError(f"it is not a {kind} but a {one_line(its_kind)}")
    arrays = {}
    for name, tensor in tensors:
        if tensor["dtype"] not in _DTYPES:
            raise MessageError(f"{one_line(name)} is of the type {tensor['dtype']}")
        array = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
        arrays[name] = array.reshape(tensor["shape"]).copy()
    if _checksum(kind, text, arrays) != checksum:
        raise MessageError(f"the {kind} is damaged: its checksum does not match")
    try:
        header = strict_json.decode(text.encode())
    except (ValueError, RecursionError) as error:
        raise MessageError(f"the {kind} is not strict JSON") from error
    return Message(header, arrays)


def kind_of(data: bytes) -> str:
    """Return the kind that bytes claim to be; empty if none."""
    try:
        line = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"][_ENTRY]
        return str(line.split(" ", 2)[1])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return ""


def check_entries(header: Mapping[str, Any], names: Collection[str]) -> None:
    """Check that a header has these entries and no others.

    Raises:
        MessageError: it has not.
    """
    for name in sorted({*names} ^ header.keys()):
        problem = "missing" if name in names else "not expected"
        raise MessageError(f"{one_line(name)} is {problem}")


def int_entry(header: Mapping[str, Any], name: str) -> int:
    """Return an entry that is a whole number from 0 and fits into 64 bits.

    Raises:
        MessageError: it is not.
    """
    value = header[name]
    if type(value) is not int or not 0 <= value < 2**63:
        raise MessageError(f"{name} is {one_line(repr(value))}, not a whole number from 0")
    return value


def float_entry(header: Mapping[str, Any], name: str) -> float:
    """Return an entry that is a finite number.

    Raises:
        MessageError: it is not.
    """
    value = header[name]
    if type(value) not in (int, float) or not abs(value) < math.inf:
        raise MessageError(f"{name} is {one_line(repr(value))}, not a finite number")
    try:
        return float(value)
    except OverflowError as error:
        raise MessageError(f"{name} is not a finite number") from error


def str_entry(header: Mapping[str, Any], name: str) -> str:
    """Return an entry that is a string.

    Raises:
        MessageError: it is not.
    """
    value = header[name]
    if type(value) is not str:
        raise MessageError(f"{name} is {one_line(repr(value))}, not a string")
    return value


def one_line(reason: str) -> str:
    """Return one short printable line of a text that may not be trusted."""
    line = " ".join(reason[: 4 * MAX_REASON].split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= MAX_REASON else line[: MAX_REASON - 3] + "..."


def _check_size(kind: str, data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise MessageError(f"a {kind} of {len(data)} bytes is over the limit of {limit}")


def _checksum(kind: str, text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the checksum of a message, whatever the order of its arrays in the file."""
    result = hashlib.sha256(json.dumps([kind, text]).encode())
    for name in sorted(arrays):
        array = arrays[name]
        result.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        result.update(array.data if array.ndim and array.size else array.tobytes())
    return result.hexdigest()
