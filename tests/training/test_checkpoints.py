"""Checkpoints: exact round trips, and every kind of damage noticed."""

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedkl.core.errors import UserError
from fedkl.training.checkpoints import Checkpoints


def no_warning(sentence: str) -> None:
    raise AssertionError(sentence)


def only_file(checkpoints: Checkpoints, round: int) -> Path:
    (path,) = checkpoints.directory.glob(f"{round:06d}.*")
    return path


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        assert actual[name].shape == array.shape
        assert actual[name].tobytes() == array.tobytes()


@pytest.fixture
def checkpoints(tmp_path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def test_nothing_saved(checkpoints):
    assert checkpoints.latest(no_warning) is None
    assert checkpoints.rounds() == []
    assert not checkpoints.directory.exists()


def test_dtypes_and_shapes_survive(checkpoints):
    arrays = {
        "weights": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3),
        "count": np.array(7, np.int32),
        "key": np.array([1, 2**32 - 1], np.uint32),
        "done": np.array([True, False]),
        "flag": np.array(True),
        "empty": np.zeros((0, 3), np.float32),
        "special": np.array([np.nan, np.inf, -np.inf, -0.0], np.float32),
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "strided": np.arange(10, dtype=np.int32)[::-3],
        "broadcast": np.broadcast_to(np.float32(2), (3, 2)),
    }
    checkpoints.save(12, arrays)
    saved = checkpoints.latest(no_warning)
    assert (saved.round, saved.rows) == (12, {})
    assert_same(saved.arrays, arrays)
    saved.arrays["weights"][0, 0] = 5  # the caller's own memory


_DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
)
_ARRAYS = _DTYPES.flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


_NAMES = st.text(max_size=8).filter(lambda name: name.split(".")[0] != "rows")
_NAMED = st.dictionaries(_NAMES, _ARRAYS, max_size=4)


@settings(max_examples=50, deadline=None)  # disks are slow at times
@given(arrays=_NAMED, row=_NAMED, numbers=st.sets(st.integers(0, 2**62), max_size=3))
def test_round_trip(arrays, row, numbers, tmp_path_factory):
    checkpoints = Checkpoints(tmp_path_factory.mktemp("checkpoints"))
    checkpoints.save(3, arrays, dict.fromkeys(numbers, row))
    saved = checkpoints.latest(no_warning)
    assert saved.round == 3
    assert_same(saved.arrays, arrays)
    assert list(saved.rows) == sorted(numbers)
    for loaded in saved.rows.values():
        assert_same(loaded, row)
        for array in loaded.values():
            array.fill(0)  # the caller's own memory, and no other row's


@pytest.mark.parametrize("array", [np.array([None]), np.array(["text"]), np.array([1], ">i4")])
def test_what_would_not_come_back_is_refused(checkpoints, array):
    with pytest.raises(TypeError, match="cannot hold"):
        checkpoints.save(1, {"x": array})
    with pytest.raises(TypeError, match="cannot hold"):
        checkpoints.save(1, {}, {0: {"x": array}})
    assert checkpoints.rounds() == []


def test_misuse(checkpoints, tmp_path):
    for name in ("__metadata__", "rows", "rows.x"):
        with pytest.raises(ValueError, match=name):
            checkpoints.save(1, {name: np.ones(1)})
    with pytest.raises(ValueError, match="negative"):
        checkpoints.save(-1, {})
    with pytest.raises(ValueError, match="keep"):
        Checkpoints(tmp_path, keep=0)
    assert not checkpoints.directory.exists()


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"x": np.ones(3)}, "shape"),
        ({"x": np.ones(2, np.float32)}, "float32"),
        ({"y": np.ones(2)}, "'y'"),
        ({}, r"\[\]"),
    ],
)
def test_rows_that_are_not_alike_are_refused(checkpoints, row, what):
    with pytest.raises(ValueError, match=what):
        checkpoints.save(1, {}, {0: {"x": np.ones(2)}, 1: row})
    assert checkpoints.rounds() == []


@pytest.mark.parametrize("small", [0, 2**20])
def test_wrong_words_about_what_changed_are_refused(tmp_path, small):
    checkpoints = Checkpoints(tmp_path, small=small)
    row = {"x": np.ones(2)}
    with pytest.raises(ValueError, match="row 7 is said to have changed"):
        checkpoints.save(1, {}, {0: row}, {7})
    rows = dict.fromkeys(range(9), row)
    for round in (1, 2):
        checkpoints.save(round, {}, rows, None)
    for wrong, changed, what in [
        (rows, {7, 9}, "row 9 is said to have changed"),
        (rows | {9: row}, {7}, "added without being among the changed"),
        ({0: row}, {0}, "or removed"),
        (rows | {0: {"x": np.ones(3)}}, {0}, "other names, dtypes or shapes"),
        (rows | {0: {"x": np.ones(3)}}, {0, 1}, "shape"),
    ]:
        with pytest.raises(ValueError, match=what):
            checkpoints.save(3, {}, wrong, changed)
    assert checkpoints.rounds() == [1, 2]
    checkpoints.save(3, {}, rows, {0})
    assert checkpoints.latest(no_warning).round == 3


def test_it_is_a_plain_safetensors_file(checkpoints):
    checkpoints.save(1, {"x": np.arange(3)})
    loaded = safetensors.numpy.load_file(only_file(checkpoints, 1))
    np.testing.assert_array_equal(loaded["x"], np.arange(3))
    assert loaded.keys() == {"x"}
    rows = {number: {"y": np.full(2, number)} for number in (5, 3)}
    checkpoints.save(2, {"x": np.arange(3)}, rows)
    loaded = safetensors.numpy.load_file(only_file(checkpoints, 2))
    np.testing.assert_array_equal(loaded["x"], np.arange(3))
    np.testing.assert_array_equal(loaded["rows"], [3, 5])
    np.testing.assert_array_equal(loaded["rows.y"], [[3, 3], [5, 5]])


def test_a_look_at_some_rows_gives_them_as_they_are_and_reads_no_more_than_it_needs(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1, small=0)
    rows = {n: {"x": np.array(n)} for n in range(40)}
    checkpoints.save(1, {"y": np.array(1)}, rows)
    for round in (2, 3):
        rows = rows | {7: {"x": np.array(100 * round)}}
        checkpoints.save(round, {"y": np.array(round)}, rows, {7})
    looked = Checkpoints(tmp_path).peek(no_warning, (7, 30, 99))
    assert looked.round == looked.arrays["y"] == 3
    assert {n: int(row["x"]) for n, row in looked.rows.items()} == {7: 300, 30: 30}
    assert Checkpoints(tmp_path).peek(no_warning, None).rows.keys() == rows.keys()
    # The first file, which has the other rows, is not needed for this.
    only_file(checkpoints, 1).write_bytes(b"rubbish")
    assert Checkpoints(tmp_path).peek(no_warning, (7,)).rows[7]["x"] == 300
    assert Checkpoints(tmp_path).peek(no_warning, ()).rows == {}
    with pytest.raises(UserError, match="is damaged"):
        Checkpoints(tmp_path).peek(no_warning, (30,))


def test_what_came_after_a_round_can_be_dropped(checkpoints):
    checkpoints.drop_after(0)
    for round in (2, 5):
        checkpoints.save(round, {"x": np.array(round)})
    checkpoints.drop_after(5)
    assert checkpoints.rounds() == [2, 5]
    checkpoints.drop_after(4)
    assert checkpoints.latest(no_warning).round == 2


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_few_are_kept(tmp_path, keep):
    checkpoints = Checkpoints(tmp_path, keep=keep)
    for round in range(6):
        checkpoints.save(round, {"x": np.array(round)})
        assert checkpoints.rounds() == list(range(max(0, round + 1 - keep), round + 1))


def test_rounds_beyond_six_digits_are_in_order(checkpoints):
    for round in (999_999, 1_000_000):
        checkpoints.save(round, {})
    assert checkpoints.latest(no_warning) == (1_000_000, {}, {}, {})


def test_old_ones_and_stale_temporaries_go_only_when_the_new_one_is_durable(
    checkpoints, monkeypatch
):
    for round in (1, 2):
        checkpoints.save(round, {"x": np.array(round)})
    stale = checkpoints.directory / ".000002.x.1.deadbeef.fedkl-tmp"
    stale.write_bytes(b"half")
    foreign = checkpoints.directory / "notes.txt"
    foreign.write_text("mine")

    def fail(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    for function in ("open", "write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail)
            with pytest.raises(UserError, match="the disk is full"):
                checkpoints.save(3, {"x": np.array(3)})
        assert checkpoints.rounds() == [1, 2]
        assert stale.exists()
    checkpoints.save(3, {"x": np.array(3)})
    assert checkpoints.rounds() == [2, 3]
    assert not stale.exists()
    assert foreign.exists()


def test_a_read_only_folder_is_explained(checkpoints, monkeypatch):
    def fail(*_args, **_options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", fail)
    with pytest.raises(UserError, match=f"{checkpoints.directory}: the file system is read-only"):
        checkpoints.save(1, {})


def damaged(checkpoints: Checkpoints) -> bool:
    sentences: list[str] = []
    round, arrays, rows, _ = checkpoints.latest(sentences.append)
    assert arrays["x"] == rows[6]["z"] == round
    if round == 2:
        assert sentences == []
        return False
    (sentence,) = sentences
    assert str(only_file(checkpoints, 2)) in sentence
    assert "previous one, of round 1, is used" in sentence
    assert "\n" not in sentence
    return True


@pytest.fixture
def two(checkpoints) -> Checkpoints:
    for round in (1, 2):
        save_two(checkpoints, round)
    return checkpoints


def save_two(checkpoints: Checkpoints, round: int) -> None:
    arrays = {"x": np.array(round, np.float32), "y": np.ones(3, np.int32)}
    checkpoints.save(round, arrays, {6: {"z": np.array(round, np.int8)}})


def test_every_single_byte_matters(two):
    path = only_file(two, 2)
    whole = path.read_bytes()
    assert not damaged(two)
    for position in range(len(whole)):
        for flip in (0x01, 0x80):
            broken = bytearray(whole)
            broken[position] ^= flip
            path.write_bytes(broken)
            assert damaged(two), f"byte {position}"
    path.write_bytes(whole)
    assert not damaged(two)


def test_truncated_and_extended_files_are_noticed(two):
    path = only_file(two, 2)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert damaged(two), f"length {length}"
    path.write_bytes(whole + b"\0")
    assert damaged(two)


def test_a_bad_sector_is_damage_but_a_missing_permission_is_not(two, monkeypatch):
    read_bytes = Path.read_bytes

    def failing(number):
        def read(path):
            if path.name.startswith("000002"):
                raise OSError(number, os.strerror(number))
            return read_bytes(path)

        return read

    monkeypatch.setattr(Path, "read_bytes", failing(errno.EIO))
    assert damaged(two)
    monkeypatch.setattr(Path, "read_bytes", failing(errno.EACCES))
    with pytest.raises(UserError, match="permission is denied"):
        two.latest(no_warning)


def test_a_file_of_another_format_is_damage(two):
    only_file(two, 2).unlink()
    digest = hashlib.sha256(b"hello").hexdigest()
    (two.directory / f"000002.{digest}.safetensors").write_bytes(b"hello")
    assert damaged(two)


def test_all_damaged_is_an_error_that_names_them(two):
    for round in (1, 2):
        only_file(two, round).write_bytes(b"")
    with pytest.raises(UserError, match=r"no checkpoint in .* can be used") as caught:
        two.latest(no_warning)
    for round in (1, 2):
        assert str(only_file(two, round)) in str(caught.value)


def test_two_damaged_give_two_warnings(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for round in (1, 2, 3):
        checkpoints.save(round, {"x": np.array(round)})
    for round in (2, 3):
        only_file(checkpoints, round).write_bytes(b"")
    sentences: list[str] = []
    assert checkpoints.latest(sentences.append)[0] == 1
    assert [s.count("of round 1, is used") for s in sentences] == [1, 1]


@pytest.mark.parametrize("keep", [1, 2])
def test_resuming_after_damage_never_drops_a_whole_one_for_a_damaged_one(tmp_path, keep):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(4, {"x": np.array(4)})
    checkpoints.save(8, {"x": np.array(8)})
    only_file(checkpoints, 8).write_bytes(b"junk")
    checkpoints = Checkpoints(tmp_path, keep=keep)
    sentences: list[str] = []
    assert checkpoints.latest(sentences.append)[0] == 4
    checkpoints.save(5, {"x": np.array(5)})  # below the damaged one
    assert checkpoints.rounds() == [4, 5][-keep:]
    assert checkpoints.latest(no_warning)[0] == 5


def test_a_later_round_of_an_abandoned_past_goes(checkpoints):
    for round in (4, 8, 5):
        checkpoints.save(round, {"x": np.array(round)})
    assert checkpoints.rounds() == [4, 5]


def test_a_known_damaged_one_does_not_count_among_those_kept(two):
    only_file(two, 2).write_bytes(b"junk")
    assert damaged(two)
    two.save(3, {"x": np.array(3)})
    assert two.rounds() == [1, 3]


def test_a_known_damaged_one_does_not_take_the_place_of_an_older_one(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for round in (1, 2, 3, 4):
        checkpoints.save(round, {})
    data = only_file(checkpoints, 4).read_bytes()
    only_file(checkpoints, 4).write_bytes(data[:-1] + b"\n")  # with a header that can be read
    assert checkpoints.latest(lambda sentence: None).round == 3
    checkpoints.save(5, {})
    assert checkpoints.rounds() == [2, 3, 5]


def test_saving_a_damaged_round_again_mends_it(two):
    only_file(two, 2).write_bytes(b"junk")
    assert damaged(two)
    save_two(two, 2)
    assert not damaged(two)
    two.save(3, {"x": np.array(3)})
    assert two.rounds() == [2, 3]
