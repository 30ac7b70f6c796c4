"""Any history of saves, resumes, damage and abandoned futures, against plain dictionaries."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fedkl.core.errors import UserError
from fedkl.training.checkpoints import Checkpoints


def plain(rows) -> dict[int, int]:
    assert all((arrays["x"] == arrays["x"][0]).all() for arrays in rows.values())
    return {number: int(arrays["x"][0]) for number, arrays in rows.items()}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def harm(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[{"header": 30, "last": -1}[how] % len(data)] ^= 4
        path.write_bytes(data)


class Histories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("os.fsync", lambda descriptor: None)  # thousands would take their time
        self.contents: dict[str, tuple[int, dict[int, int]]] = {}

    @initialize(keep=st.sampled_from([1, 2, 2, 3]))
    def begin(self, keep):
        self.keep = keep
        for path in self.directory.iterdir():
            path.unlink()
        self.checkpoints = Checkpoints(self.directory, keep, small=0)
        self.round, self.rows = 0, {}

    def teardown(self):
        self.patch.undo()
        shutil.rmtree(self.directory)

    @rule(
        changes=st.sets(st.integers(0, 12), max_size=3),
        value=st.integers(1, 1000),
        step=st.integers(1, 2),
        word=st.sampled_from(["exact", "exact", "exact", "more", "none"]),
    )
    def save(self, changes, value, step, word):
        self.rows |= dict.fromkeys(changes, value)
        changed = {"exact": changes, "more": {*changes, *list(self.rows)[:2]}, "none": None}[word]
        self.write(self.round + step, changed)

    @rule(back=st.integers(0, 4), changes=st.sets(st.integers(0, 12), max_size=2))
    def go_back(self, back, changes):
        self.rows |= dict.fromkeys(changes, 0)
        self.write(max(0, self.round - back), changes)
        assert self.checkpoints.rounds()[-1] == self.round

    def write(self, round, changed):
        rows = {number: {"x": np.full(2, value)} for number, value in self.rows.items()}
        self.checkpoints.save(round, {"round": np.array(round)}, rows, changed)
        self.round = round
        (newest,) = self.directory.glob(f"{round:06d}.*")
        self.contents[newest.name] = (round, dict(self.rows))

    @precondition(lambda self: names(self.directory))
    @rule(data=st.data(), how=st.sampled_from(["missing", "cut", "header", "last"]))
    def damage(self, data, how):
        name = data.draw(st.sampled_from(sorted(names(self.directory))))
        if (self.directory / name).stat().st_size:
            harm(self.directory / name, how)

    @rule()
    def resume(self):
        present = sorted(names(self.directory), reverse=True)
        usable = [name for name in present if self.is_usable(name)]
        sentences: list[str] = []
        self.checkpoints = Checkpoints(self.directory, self.keep, small=0)
        if present and not usable:
            with pytest.raises(UserError, match="can be used"):
                self.checkpoints.latest(sentences.append)
            self.begin(self.keep)
            return
        saved = self.checkpoints.latest(sentences.append)
        if not present:
            assert saved is None
            self.begin(self.keep)
            return
        assert (saved.round, plain(saved.rows)) == self.contents[usable[0]]
        assert saved.arrays == {"round": saved.round}
        assert bool(sentences) == (usable[0] != present[0])
        assert len(sentences) == len({s.split(" is damaged")[0] for s in sentences})
        self.round, self.rows = saved.round, plain(saved.rows)

    def is_usable(self, name):
        try:
            data = (self.directory / name).read_bytes()
        except FileNotFoundError:
            return False
        if hashlib.sha256(data).hexdigest() != name.split(".")[1]:
            return False
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        base = header.get("__metadata__", {}).get("builds_on")
        return base is None or self.is_usable(base)


Histories.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
test_any_history = Histories.TestCase
