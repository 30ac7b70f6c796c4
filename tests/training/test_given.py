"""Runs that somebody else made: what lies in them leads nowhere, and nowhere in a circle."""

import json
import os
import struct

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.training.checkpoints import Checkpoints
from fedkl.training.directory import RunDirectory


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", {"a": 1})


@pytest.fixture
def elsewhere(tmp_path):
    """A folder of somebody's own, with what a run would remove from one of its folders."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in (f"000007.{'b' * 64}.safetensors", ".x.1.fedkl-tmp"):
        (folder / name).write_text("years of work")
    return folder


@pytest.mark.parametrize("name", ["checkpoints", "best"])
def test_checkpoints_behind_a_link_are_not_removed(run, elsewhere, name):
    (run.path / name).symlink_to(elsewhere)
    checkpoints = getattr(run, name)
    for do in (lambda: checkpoints.drop_after(1), lambda: checkpoints.save(1, {"x": np.ones(1)})):
        with pytest.raises(UserError, match=f"{name} is a symbolic link"):
            do()
    assert len(os.listdir(elsewhere)) == 2


def test_nothing_is_cleaned_behind_a_link(run, elsewhere):
    (run.path / "returns").symlink_to(elsewhere)
    with pytest.raises(UserError, match="returns is a symbolic link"), run.lock():
        pass
    assert len(os.listdir(elsewhere)) == 2


def write_header(folder, name, builds_on):
    text = json.dumps({"__metadata__": {"builds_on": builds_on}}).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(text)) + text)


def name_of(round, letter="a"):
    return f"{round:06d}.{letter * 64}.safetensors"


@pytest.mark.parametrize(
    "chain",
    [
        {name_of(1): name_of(1)},
        {name_of(1): name_of(1, "b"), name_of(1, "b"): name_of(1)},
        {name_of(2): name_of(1), name_of(1): name_of(2)},
    ],
    ids=["itself", "two", "rounds"],
)
def test_checkpoints_that_build_on_each_other_in_a_circle_are_removed(tmp_path, chain):
    for name, base in chain.items():
        write_header(tmp_path, name, base)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, {"x": np.ones(2)})
    assert checkpoints.rounds() == [3]


def test_a_long_chain_that_leads_nowhere_is_followed_once(tmp_path, monkeypatch):
    from fedkl.training import checkpoint_files

    for round in range(1, 200):
        write_header(tmp_path, name_of(round), name_of(round - 1))
    looked, builds_on = [], checkpoint_files.builds_on
    monkeypatch.setattr(
        checkpoint_files, "builds_on", lambda file: looked.append(file) or builds_on(file)
    )
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(300, {"x": np.ones(2)})
    assert len(looked) <= 200
    assert checkpoints.rounds() == [300]
