"""A policy in a file for others acts as ours does, and a file is whole or not there."""

import os
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.policies import export as exporting
from fedkl.policies import load
from fedkl.policies.export import export
from fedkl.simulators.actors import Actor
from fedkl.simulators.policy import Policy
from fedkl.simulators.spaces import Box, Numbers, Spaces

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
ACTIONS = {
    "discrete": Numbers(4, first=-2),
    "as they are": Box.unlimited(4),
    "limited": Box((-2.0, 0.0, -1.0, 0.5), (2.0, 10.0, float("inf"), 1.5), (4,)),
    "a matrix in double precision": Box((-2.0,) * 4, (3.0,) * 4, (2, 2), "float64"),
}


@pytest.fixture(params=ACTIONS)
def policy(request):
    random = np.random.default_rng(0)
    sizes = [(3, 8), (8, 4)]
    actions = ACTIONS[request.param]
    actor = Actor(
        weights=tuple(random.normal(size=size).astype(np.float32) for size in sizes),
        biases=tuple(random.normal(size=size[1]).astype(np.float32) for size in sizes),
        deviation=None if isinstance(actions, Numbers) else np.full(4, 0.5, np.float32),
        centre=random.normal(size=3).astype(np.float32),
        scale=random.uniform(0.5, 2, size=3).astype(np.float32),
        clip=2.0,
    )
    return Policy(actor, Spaces(3, actions), 12)


SEEN = (3 * np.random.default_rng(1).normal(size=(50, 3))).astype(np.float32)


def onnx_action(path, seen):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (action,) = session.run(["action"], {"observation": seen})
    return session, action


def reader():
    """The page's reader of .npz files, as it stands there."""
    (code,) = re.findall(r"```python\n(import numpy.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(code.strip().splitlines()) <= 20
    names = {}
    exec(code, names)
    return names["load"]


def assert_same(theirs, ours):
    assert theirs.shape == ours.shape
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)


def test_an_onnx_file_acts_as_the_policy_does(policy, tmp_path):
    path = tmp_path / "policy.onnx"
    export(policy, path)
    session, action = onnx_action(path, SEEN)
    assert_same(action, policy(SEEN))
    assert action.dtype == policy(SEEN).dtype
    assert onnx_action(path, SEEN[:1])[1].shape[0] == 1
    assert session.get_modelmeta().custom_metadata_map == {"round": "12"}


def test_the_reader_of_the_page_acts_as_the_policy_does(policy, tmp_path):
    path = tmp_path / "policy.npz"
    export(policy, str(path))
    theirs = reader()(path)
    assert_same(np.stack([theirs(seen) for seen in SEEN]), policy(SEEN))
    samples = np.stack([theirs(SEEN[0], np.random.default_rng(n)) for n in range(2000)])
    ours = policy(np.tile(SEEN[0], (2000, 1)), deterministic=False, key=0)
    np.testing.assert_allclose(samples.mean(axis=0), ours.mean(axis=0), atol=0.15)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("preset", ["cartpole", "pendulum", "reacher-both"])
def test_a_runs_policy_is_the_same_in_all_three(scramble, tmp_path, preset, activation):
    policy = load(scramble(preset, learner__activation=activation).run.path)
    seen = np.random.default_rng(2).normal(size=(50, policy.spaces.observation_size))
    for suffix in ("onnx", "npz"):
        export(policy, tmp_path / f"policy.{suffix}")
    seen = seen.astype(np.float32)
    assert_same(onnx_action(tmp_path / "policy.onnx", seen)[1], policy(seen))
    theirs = reader()(tmp_path / "policy.npz")
    assert_same(np.stack([theirs(one) for one in seen]), policy(seen))


def test_the_readers_action_is_one_that_gymnasium_takes(scramble, tmp_path):
    policy = load(scramble("cartpole").run.path)
    export(policy, tmp_path / "policy.npz")
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    env.step(reader()(tmp_path / "policy.npz")(observation))


# Bad targets.


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("policy.pt", r"ends in \.onnx or \.npz, not to .*policy\.pt"),
        ("policy", r"ends in \.onnx or \.npz"),
        ("missing/policy.npz", "the folder .*missing does not exist"),
        ("folder.npz", "it is a directory"),
    ],
)
def test_a_target_that_cannot_be_written_is_refused(policy, tmp_path, name, sentence):
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(UserError, match=sentence):
        export(policy, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.npz"]


def test_without_the_package_onnx_it_is_named(policy, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[onnx\]'"):
        export(policy, tmp_path / "policy.onnx")


@pytest.mark.parametrize("suffix", ["onnx", "npz"])
def test_a_full_disk_leaves_what_was_there(policy, tmp_path, monkeypatch, suffix):
    path = tmp_path / f"policy.{suffix}"
    path.write_bytes(b"before")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UserError, match="the disk is full"):
        export(policy, path)
    monkeypatch.undo()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
