"""What a policy sees and does is written down, and read as it was."""

import numpy as np
import pytest

import fedkl
from fedkl.io import strict_json
from fedkl.simulators.spaces import Box, Numbers
from fedkl.training.spaces import FILE, Spaces, read, write

INF = float("inf")


@pytest.mark.parametrize(
    "actions",
    [
        Numbers(3),
        Numbers(4, -2, "int32"),
        Box.unlimited(2),
        Box((-INF, 0.1), (2.0, INF), (2,), "float64"),
        Box((float(np.float32(-0.4)),) * 4, (float(np.float32(0.4)),) * 4, (2, 2)),
        Box((-1.0,), (1.0,), ()),
    ],
)
def test_what_was_written_is_read(tmp_path, actions):
    write(tmp_path, Spaces(7, actions))
    assert read(tmp_path) == Spaces(7, actions)


def test_what_is_there_stays(tmp_path):
    write(tmp_path, Spaces(7, Numbers(3)))
    write(tmp_path, Spaces(8, Numbers(3)))
    assert read(tmp_path).observation_size == 7
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_what_was_edited_is_not_believed(tmp_path):
    write(tmp_path, Spaces(7, Numbers(3)))
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace(": 7", ": 8"))
    with pytest.raises(fedkl.UserError, match="does not fit its checksum: it was edited"):
        read(tmp_path)


def test_a_file_of_before_there_were_checksums_is_read(tmp_path):
    write(tmp_path, Spaces(7, Numbers(3)))
    lines = (tmp_path / FILE).read_text().splitlines()
    assert '"sha256"' in lines[-2]
    (tmp_path / FILE).write_text("\n".join([*lines[:-3], "  }", "}"]))
    assert read(tmp_path) == Spaces(7, Numbers(3))


def numbers(**changes):
    return {"observation_size": 4, "numbers": {"size": 2, "first": 0, "dtype": "int64"} | changes}


def box(**changes):
    usual = {"low": [-1.0], "high": [1.0], "shape": [1], "dtype": "float32"}
    return {"observation_size": 4, "box": usual | changes}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (box(dtype="O"), "dtype is 'O'"),
        (box(dtype=["float32"]), "dtype is ['float32']"),
        (box(dtype="f4,f4"), "dtype is 'f4,f4'"),
        (box(dtype="int64"), "dtype is 'int64'"),
        (box(high=[10**400]), "high has 1000"),
        (box(low=[-(10**300)], dtype="float32"), "low has -1000"),
        (box(low=[True]), "low has True"),
        (box(low=[[-1.0]]), "low has [-1.0]"),
        (box(low="x"), "low is 'x'"),
        (box(low=[2.0]), "low and high are no limits"),
        (box(low=[-1.0, -1.0]), "low and high are no limits"),
        (box(shape=[2**31, 2**31]), "is not that of 1 entries"),
        (box(shape=[2**70]), "shape is 11805"),
        (box(shape=[-1]), "shape is -1"),
        (box(shape=[1] * 100), "shape is [1, 1"),
        (box(shape={"a": 1}), "shape is {'a': 1}"),
        (box(more=1), "box does not have low, high, shape, dtype and nothing else"),
        ({"observation_size": 4, "box": [[[]]]}, "box does not have low, high"),
        ({"observation_size": 4}, "box does not have low, high"),
        ({"observation_size": 10**400, "box": {}}, "observation_size is 1000"),
        ({"observation_size": {"a": {}}, "box": {}}, "observation_size is {'a': {}}"),
        (numbers(dtype="O"), "dtype is 'O'"),
        (numbers(dtype=3), "dtype is 3"),
        (numbers(size=0), "size is 0"),
        (numbers(size=10**400), "size is 1000"),
        (numbers(first=127, dtype="int8"), "first is 127"),
        (numbers(first=0.5), "first is 0.5"),
    ],
)
def test_what_no_policy_sees_or_does_is_refused_in_a_sentence(tmp_path, record, reason):
    (tmp_path / FILE).write_bytes(strict_json.encode_sealed(record))
    with pytest.raises(fedkl.UserError, match=r"spaces\.json is damaged: ") as caught:
        read(tmp_path)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("depth", [400, 700, 2000, 100_000])
def test_what_is_nested_deeply_is_refused_in_a_sentence(tmp_path, depth):
    text = '{"observation_size": ' + "[" * depth + "]" * depth + ', "sha256": "x"}\n'
    (tmp_path / FILE).write_text(text)
    with pytest.raises(fedkl.UserError, match=r"spaces\.json (is not valid JSON|does not fit)"):
        read(tmp_path)


def test_a_bound_beyond_all_floats_is_refused_in_a_sentence(tmp_path):
    # Python reads it as infinity.
    text = strict_json.encode(box(high=[12345.0])).replace(b"12345.0", b"1e400")
    (tmp_path / FILE).write_bytes(text + b"\n")
    with pytest.raises(fedkl.UserError, match="high has inf"):
        read(tmp_path)
