"""Checkpoints with rows: what a save costs, what damage costs, and what stays."""

import math
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from fedkl.core.errors import UserError
from fedkl.training.checkpoints import Checkpoints


def no_warning(sentence: str) -> None:
    raise AssertionError(sentence)


def row(value: int, size: int = 3) -> dict[str, np.ndarray]:
    return {"critic": np.full(size, value, np.float32), "count": np.array(value, np.int32)}


def plain(rows) -> dict[int, int]:
    """The values that `row` made the rows of."""
    for arrays in rows.values():
        assert arrays.keys() == {"critic", "count"}
        assert arrays["critic"].dtype == np.float32
        assert (arrays["critic"] == arrays["count"]).all()
    return {number: int(arrays["count"]) for number, arrays in rows.items()}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def builds_on(path: Path) -> str | None:
    with safe_open(path, framework="np") as file:
        return (file.metadata() or {}).get("builds_on")


def file_of(checkpoints: Checkpoints, round: int) -> Path:
    (path,) = checkpoints.directory.glob(f"{round:06d}.*")
    return path


def numbers_in(path: Path) -> list[int]:
    return safetensors.numpy.load_file(path).get("rows", np.array([], np.int64)).tolist()


class Life:
    """A run in which two rows change in each round, and no save is small."""

    def __init__(self, directory: Path, count: int = 40, keep: int = 2):
        self.directory, self.keep = directory, keep
        self.rows = {number: row(0) for number in range(count)}
        self.round = 0
        self.past: dict[int, dict[int, int]] = {}
        self.checkpoints = Checkpoints(directory, keep, small=0)

    def go_on(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.round += 1
            changed = {7 * self.round % len(self.rows), self.round % len(self.rows)}
            self.rows |= {number: row(self.round) for number in changed}
            arrays = {"round": np.array(self.round)}
            self.checkpoints.save(self.round, arrays, self.rows, changed)
            self.past[self.round] = plain(self.rows)

    def resume(self, warn=no_warning) -> None:
        self.checkpoints = Checkpoints(self.directory, self.keep, small=0)
        self.check(saved := self.checkpoints.latest(warn))
        self.round, self.rows = saved.round, saved.rows

    def check(self, saved) -> None:
        assert saved.arrays == {"round": saved.round}
        assert plain(saved.rows) == self.past[saved.round]


@pytest.fixture
def life(tmp_path) -> Life:
    return Life(tmp_path / "checkpoints")


def test_a_delta_holds_only_what_changed(life):
    life.go_on(2)
    for round in (1, 2):
        assert numbers_in(file_of(life.checkpoints, round)) == list(range(40))
    life.go_on()  # its chain has not seen what changed in round 2
    assert numbers_in(file_of(life.checkpoints, 3)) == [2, 3, 14, 21]
    assert builds_on(file_of(life.checkpoints, 3)) == file_of(life.checkpoints, 1).name
    life.go_on()
    assert numbers_in(file_of(life.checkpoints, 4)) == [3, 4, 21, 28]
    assert builds_on(file_of(life.checkpoints, 4)) == file_of(life.checkpoints, 2).name
    life.resume()


def test_every_round_comes_back(life):
    for _ in range(60):
        life.go_on()
        assert Checkpoints(life.directory).latest(no_warning).round == life.round
        life.check(Checkpoints(life.directory).latest(no_warning))


def test_small_rows_are_always_in_one_plain_file(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    rows = {number: row(0, size=26_213) for number in range(10)}  # 8 bytes below 1 MiB
    for round in range(1, 5):
        checkpoints.save(round, {}, rows, {round})
        assert builds_on(file_of(checkpoints, round)) is None
        assert checkpoints.rounds() == [1, 2, 3, 4][max(0, round - 2) : round]
    rows[10] = row(0, size=26_213)
    for round in range(5, 8):
        checkpoints.save(round, {}, rows, {10})
    assert builds_on(file_of(checkpoints, 7)) is not None


def test_without_word_of_what_changed_everything_is_written(life):
    life.go_on(6)
    for round in (7, 8, 9):
        changed = {round} if round == 8 else None  # the chain of round 8 missed round 7
        life.checkpoints.save(round, {}, life.rows, changed)
        assert builds_on(file_of(life.checkpoints, round)) is None
    assert plain(life.checkpoints.latest(no_warning).rows) == plain(life.rows)


def test_saves_in_which_no_row_changes_do_not_pile_up(life):
    life.go_on(2)
    for round in range(3, 50):
        life.checkpoints.save(round, {"round": np.array(round)}, life.rows, ())
        assert len(names(life.directory)) <= 6
        assert numbers_in(file_of(life.checkpoints, round)) in ([], [2, 14])
    life.past[49] = plain(life.rows)
    life.resume()


def test_rows_that_come_over_time_are_written_a_few_times_each(tmp_path, no_sync):
    checkpoints, rows, written = Checkpoints(tmp_path, small=0), {}, 0
    for round in range(1, 301):
        rows[1000 - round] = row(round)
        checkpoints.save(round, {}, rows, {1000 - round})
        written += len(numbers_in(file_of(checkpoints, round)))
    assert written < 300 * 2 * (1 + math.log2(300))
    assert plain(checkpoints.latest(no_warning).rows) == plain(rows)


@pytest.fixture
def no_sync(monkeypatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def test_what_is_written_is_in_proportion_to_what_changed(tmp_path, no_sync):
    count, rounds, generator = 1000, 600, np.random.default_rng(0)
    rows, written, whole = {number: row(0) for number in range(count)}, 0, []
    checkpoints = Checkpoints(tmp_path, small=0)
    for round in range(1, rounds + 1):
        changed = generator.choice(count, 3, replace=False).tolist()
        rows |= {number: row(round) for number in changed}
        checkpoints.save(round, {}, rows, changed)
        path = file_of(checkpoints, round)
        if builds_on(path) is None:
            whole.append(round)
        if round > 2:
            written += len(numbers_in(path))
        # Two chains, of which each halves from file to file, and so ends soon and weighs little.
        assert len(names(tmp_path)) <= 2 * (1 + math.log2(count))
        if round % 50 == 0:
            total = sum(path.stat().st_size for path in tmp_path.iterdir())
            assert total <= 4.1 * count * (8 + 12 + 4)
    assert whole[:2] == [1, 2]
    assert 2 <= len(whole[2:]) <= 2 * 2 * 2 * 3 * rounds / count
    assert written < rounds * 2 * 3 * math.log2(count)  # two chains, three rows
    assert plain(checkpoints.latest(no_warning).rows) == plain(rows)


class OneByOne(dict):
    """Rows of which nobody may look at all."""

    def __iter__(self):
        raise AssertionError("a look at all rows")

    keys = items = values = __iter__


def test_a_delta_looks_at_no_other_row_and_takes_no_memory_for_them(tmp_path):
    rows = {number: row(0, size=1000) for number in range(2000)}
    checkpoints = Checkpoints(tmp_path, small=0)
    for round in (1, 2):
        checkpoints.save(round, {}, rows, ())
    rows = OneByOne(rows)
    for round in range(3, 12):
        rows[round] = row(round, size=1000)
        tracemalloc.start()
        try:
            checkpoints.save(round, {}, rows, {round})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 200_000  # of 8 MB


def test_each_file_is_read_once(tmp_path, monkeypatch):
    life = Life(tmp_path, count=200)
    life.go_on(32)
    read, count = Path.read_bytes, {}

    def counting(path):
        count[path.name] = count.get(path.name, 0) + 1
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counting)
    life.resume()
    assert 3 <= len(count) < len(names(life.directory))  # nothing of the other chain
    assert set(count.values()) == {1}
    for path in life.directory.iterdir():
        if builds_on(path) is None:
            path.write_bytes(b"")
    count.clear()
    with pytest.raises(UserError, match="can be used"):
        Checkpoints(life.directory).latest(no_warning)
    assert len(count) == len(names(life.directory))
    assert set(count.values()) == {1}


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[{"first": 0, "header": 30, "last": -1}[how] % len(data)] ^= 4
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "cut", "first", "header", "last"])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_damaged_file_costs_one_checkpoint_at_the_most(life, tmp_path, how, resumed):
    life.go_on()
    for _ in range(35):
        if resumed and life.round % 5 == 0:
            life.resume()
        life.go_on()
        for name in names(life.directory):
            copy = tmp_path / "copy"
            shutil.copytree(life.directory, copy)
            damage(copy / name, how)
            sentences: list[str] = []
            saved = Checkpoints(copy).latest(sentences.append)
            life.check(saved)
            newest = max(names(copy) | {name})
            if saved.round == life.round:
                assert sentences == []
            else:
                assert saved.round == life.round - 1
                if how != "missing" or name != newest:
                    (sentence,) = sentences
                    assert name in sentence
                    assert f"the previous one, of round {saved.round}, is used" in sentence
            shutil.rmtree(copy)


def test_all_chains_damaged_is_an_error_that_names_each_file_once(tmp_path):
    life = Life(tmp_path, count=200)
    life.go_on(32)
    whole = [path for path in life.directory.iterdir() if builds_on(path) is None]
    for path in whole:
        path.write_bytes(b"junk")
    with pytest.raises(UserError, match=r"no checkpoint in .* can be used") as caught:
        Checkpoints(life.directory).latest(no_warning)
    assert str(caught.value).count("is damaged") == len(whole) == 2
    assert all(str(path) in str(caught.value) for path in whole)


def test_nothing_builds_on_what_is_damaged(life):
    life.go_on(20)
    newest = file_of(life.checkpoints, 20)
    base = life.directory / builds_on(newest)
    damage(base, "last")
    sentences: list[str] = []
    life.resume(sentences.append)
    assert life.round == 19
    assert len(sentences) == 1
    assert f"{base} is damaged" in sentences[0]
    assert "on which that of round 20 builds" in sentences[0]
    life.go_on(2)
    assert not base.exists()
    assert not newest.exists()
    life.go_on(30)
    life.resume()


def test_only_what_is_needed_stays(life):
    (life.directory).mkdir()
    (life.directory / "notes.txt").write_text("mine")
    for _ in range(50):
        life.go_on()
        present = names(life.directory) - {"notes.txt"}
        needed = set()
        for round in (life.round, life.round - 1):
            if round > 0:
                at = file_of(life.checkpoints, round).name
                while at is not None:
                    needed.add(at)
                    at = builds_on(life.directory / at)
        assert present == needed
    assert (life.directory / "notes.txt").exists()


def test_at_no_moment_is_a_file_without_those_that_it_builds_on(life, monkeypatch):
    unlink, moments = os.unlink, 0

    def watched(path):
        nonlocal moments
        unlink(path)
        moments += 1
        present = names(life.directory)
        assert {builds_on(life.directory / name) for name in present} <= present | {None}

    monkeypatch.setattr(os, "unlink", watched)
    life.go_on(60)
    assert moments > 20


def test_checkpoints_that_stay_have_no_file_in_common(tmp_path):
    life = Life(tmp_path, keep=3)
    life.go_on(30)
    life.resume()
    life.go_on()
    for round in (31, 30):
        assert Checkpoints(tmp_path).latest(lambda sentence: None).round == round
        file = file_of(life.checkpoints, round)
        damage(tmp_path / (builds_on(file) or file.name), "last")
    life.check(saved := Checkpoints(tmp_path).latest(lambda sentence: None))
    assert saved.round == 29


def test_a_resumed_run_continues_the_chain_that_was_loaded(life):
    life.go_on(20)
    life.resume()
    loaded = file_of(life.checkpoints, 20)
    chain, size = {loaded.name, builds_on(loaded)}, loaded.stat().st_size
    life.go_on()  # all rows once, for a second chain whose files are known to be whole
    assert builds_on(file_of(life.checkpoints, 21)) is None
    assert loaded.exists()
    life.go_on()
    assert builds_on(file_of(life.checkpoints, 22)) in chain
    assert file_of(life.checkpoints, 22).stat().st_size < 2 * size
    life.resume()


def test_a_save_that_failed_forgets_nothing(life, monkeypatch):
    life.go_on(10)

    def fail(*_args):
        raise OSError(28, "No space left on device")

    for _ in range(3):  # the caller goes on, and names each change once
        with monkeypatch.context() as patch:
            patch.setattr("os.write", fail)
            with pytest.raises(UserError, match="the disk is full"):
                life.go_on()
        Checkpoints(life.directory).latest(no_warning)
    life.go_on(1)
    life.resume()
    assert life.round == 14


def test_a_reader_beside_a_run_that_trains(life, monkeypatch):
    life.go_on(30)
    reader, read = Checkpoints(life.directory), Path.read_bytes

    def slow(path):
        data = read(path)
        if life.round < 60:
            life.go_on(10)  # by then, what the reader looks for next is gone
        return data

    monkeypatch.setattr(Path, "read_bytes", slow)
    saved = reader.latest(no_warning)
    life.check(saved)
    assert saved.round > 30
