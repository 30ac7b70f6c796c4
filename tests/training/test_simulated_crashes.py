"""Deaths and power failures at every call of a save that writes, over chains of files.

They are simulated in this process, so that a thousand take seconds: from the chosen call on, every
call that would write raises. What a power failure leaves comes from a model of a disk that is as
unkind as it may be.
"""

import contextlib
import copy
import os
import random
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from fedkl.training.checkpoints import Checkpoints

CALLS = ("open", "write", "fsync", "replace", "unlink", "close")
ROWS = 12


class DeathError(BaseException):
    """Not an Exception: nothing may catch it and go on."""


class Contents:
    """What a file holds, and how much of it was synced."""

    def __init__(self, data: bytes = b""):
        self.data, self.synced = bytearray(data), data

    def after_a_failure(self, chance: random.Random) -> bytes:
        if self.synced == self.data:
            return bytes(self.data)
        length = chance.randrange(len(self.data) + 1)
        return chance.choice([b"", bytes(self.data[:length]), bytes(length), bytes(self.data)])


class Disk:
    """What of a folder is durable. Names that were not synced may each be the old or the new."""

    def __init__(self):
        self.durable: dict[str, Contents] = {}
        self.waiting: list[dict[str, Contents | None]] = []
        self.now: dict[str, Contents] = {}

    def change(self, names: dict[str, Contents | None]) -> None:
        self.waiting.append(names)
        self._apply(self.now, names)

    def sync(self) -> None:
        self.durable, self.waiting = dict(self.now), []

    def after_a_failure(self, chance: random.Random) -> dict[str, bytes]:
        left = dict(self.durable)
        for names in self.waiting:
            if chance.random() < 0.5:
                self._apply(left, names)
        return {name: contents.after_a_failure(chance) for name, contents in left.items()}

    @staticmethod
    def _apply(folder, names):
        for name, contents in names.items():
            folder.pop(name, None)
            if contents is not None:
                folder[name] = contents


@contextlib.contextmanager
def dying(patch: pytest.MonkeyPatch, call: int = 0, disk: Disk | None = None):
    """Inside, the process dies in front of the call of that number; 0 is never.

    Yields a list whose length is the number of calls so far.
    """
    disk = disk or Disk()
    calls: list[str] = []
    opened: dict[int, Contents | None] = {}

    def wrap(name, real):
        def wrapped(*args):
            calls.append(name)
            if name == "close" and 0 < call < len(calls):
                return real(*args)  # as the kernel does for the dead
            if name == "write" and len(calls) == call:
                record(name, (args[0], args[1][: len(args[1]) // 2]), None)
                real(args[0], args[1][: len(args[1]) // 2])
            if 0 < call <= len(calls):
                if name == "close":
                    real(*args)
                raise DeathError
            result = None if name == "fsync" else real(*args)
            record(name, args, result)
            return result

        return wrapped

    def record(name, args, result):
        if name == "open":
            contents = Contents() if args[1] & os.O_CREAT else None
            opened[result] = contents
            if contents is not None:
                disk.change({Path(args[0]).name: contents})
        elif name == "write":
            opened[args[0]].data += args[1]
        elif name == "fsync" and opened[args[0]] is None:
            disk.sync()
        elif name == "fsync":
            opened[args[0]].synced = bytes(opened[args[0]].data)
        elif name == "replace":
            old, new = (Path(path).name for path in args)
            disk.change({old: None, new: disk.now[old]})
        elif name == "unlink":
            disk.change({Path(args[0]).name: None})

    with patch.context() as inner:
        for name in CALLS:
            inner.setattr(os, name, wrap(name, getattr(os, name)))
        with contextlib.suppress(DeathError):
            yield calls


class Story:
    """What a run saves in which round; rows come over time, and few change at a time."""

    def __init__(self, seed: int, rounds: int):
        chance = random.Random(seed)
        self.changed, self.values = [set()], [{}]
        for round in range(1, rounds + 1):
            known = min(ROWS, 6 + round // 2)
            changed = set(chance.sample(range(known), chance.choice([0, 1, 1, 2])))
            changed |= set(range(known)) - self.values[-1].keys()
            self.changed.append(changed)
            self.values.append(self.values[-1] | dict.fromkeys(changed, round))

    def save(self, checkpoints: Checkpoints, round: int) -> None:
        rows = {number: {"x": np.full(3, value)} for number, value in self.values[round].items()}
        checkpoints.save(round, {"round": np.array(round)}, rows, self.changed[round])

    def load(self, directory: Path, warn=pytest.fail) -> tuple[Checkpoints, int]:
        checkpoints = Checkpoints(directory, small=0)
        if (saved := checkpoints.latest(warn)) is None:
            return checkpoints, 0
        assert saved.arrays == {"round": saved.round}
        assert {n: row["x"].tolist() for n, row in saved.rows.items()} == {
            number: [value] * 3 for number, value in self.values[saved.round].items()
        }
        return checkpoints, saved.round


def snapshot(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def restore(directory: Path, contents: dict[str, bytes]) -> None:
    for path in directory.iterdir():
        path.unlink()
    for name, data in contents.items():
        (directory / name).write_bytes(data)


def go_on_after(story: Story, directory: Path, patch, round: int, second: int) -> None:
    """Resumes in `round` or the one before, dies once more on the way, and finishes."""
    checkpoints, stands = story.load(directory)
    assert stands in (round - 1, round)
    if stands < len(story.values) - 1:
        with dying(patch, second):
            story.save(checkpoints, stands + 1)
        checkpoints, again = story.load(directory)
        assert again in (stands, stands + 1)
        stands = again
    for following in range(stands + 1, min(stands + 4, len(story.values))):
        with dying(patch):
            story.save(checkpoints, following)
        assert story.load(directory)[1] == following
        assert not any(name.startswith(".") for name in snapshot(directory))


def all_deaths(directory: Path, patch, seed: int, rounds: int, failures: int = 0) -> int:
    """Dies at every call of every save of a story; returns the number of deaths.

    Args:
        failures: how many states a power failure may leave are tried for each death; 0 for the
            death of a process.
    """
    story, chance, deaths, disk = Story(seed, rounds), random.Random(seed), 0, Disk()
    checkpoints, kinds = Checkpoints(directory, small=0), []
    for round in range(1, rounds + 1):
        before, call = snapshot(directory), 0
        while True:
            call += 1
            victim, its_disk = copy.deepcopy((checkpoints, disk))
            with dying(patch, call, its_disk) as calls:
                story.save(victim, round)
            if len(calls) < call:
                break
            for left in [its_disk.after_a_failure(chance) for _ in range(failures)] or [None]:
                if left is not None:
                    restore(directory, left)
                go_on_after(story, directory, patch, round, second=1 + (call * 7 + deaths) % 15)
                deaths += 1
            restore(directory, before)
        restore(directory, before)
        with dying(patch, disk=disk):
            story.save(checkpoints, round)
        (newest,) = directory.glob(f"{round:06d}.*")
        kinds.append(b"builds_on" in newest.read_bytes())
    # The story has everything: files with all rows, deltas, and later all rows again.
    assert kinds.index(True) > 0
    assert False in kinds[kinds.index(True) :]
    return deaths


def many_deaths(directory: Path, patch, seeds: range, failures: int) -> int:
    deaths = 0
    for seed in seeds:
        restore(directory, {})
        deaths += all_deaths(directory, patch, seed, rounds=20, failures=failures)
    return deaths


def test_five_hundred_deaths_of_the_process_lose_nothing(tmp_path, monkeypatch):
    assert many_deaths(tmp_path, monkeypatch, range(3), failures=0) > 500


def test_five_hundred_power_failures_lose_nothing(tmp_path, monkeypatch):
    assert many_deaths(tmp_path, monkeypatch, range(3, 6), failures=1) > 500


@pytest.mark.slow
def test_thousands_of_deaths_lose_nothing(tmp_path, monkeypatch):
    assert many_deaths(tmp_path, monkeypatch, range(10, 30), failures=0) > 3000
    assert many_deaths(tmp_path, monkeypatch, range(10, 30), failures=4) > 12_000


@pytest.mark.parametrize("below", [False, True])
def test_death_while_an_abandoned_future_is_replaced(tmp_path, monkeypatch, below):
    """The newest file, or one that it builds on, is damaged, so the run goes on from before it."""
    story, checkpoints = Story(seed=2, rounds=24), Checkpoints(tmp_path, small=0)
    with dying(monkeypatch):
        for round in range(1, 21):
            story.save(checkpoints, round)
    (damaged,) = tmp_path.glob("000020.*")
    with safe_open(damaged, framework="np") as file:
        base = file.metadata()["builds_on"]
    damaged = tmp_path / base if below else damaged
    damaged.write_bytes(b"junk")
    before, call = snapshot(tmp_path), 0
    while True:
        call += 1
        restore(tmp_path, before)
        sentences: list[str] = []
        victim, stood = story.load(tmp_path, sentences.append)
        assert stood == 19
        assert len(sentences) == 1
        with dying(monkeypatch, call) as calls:
            story.save(victim, 20)
        survivor, stands = story.load(tmp_path, sentences.append)
        assert stands in (19, 20)
        with dying(monkeypatch):
            for round in range(stands + 1, 25):
                story.save(survivor, round)
        assert story.load(tmp_path)[1] == 24
        assert not damaged.exists()
        if len(calls) < call:
            break
    assert call > 8
