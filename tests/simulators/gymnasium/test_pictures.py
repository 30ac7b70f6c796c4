"""Frames of Gymnasium's environments: their own, small on the way, or refused in a sentence."""

import gymnasium
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.actors import Actor
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import EpisodeJob, run_job
from fedkl.simulators.gymnasium import pictures
from fedkl.simulators.gymnasium.simulation import Environment, examine

STEPS = 12


def a_job(id, wanted):
    facts = examine(id, {})
    size = facts.observation_size
    actor = Actor(
        weights=(np.ones((size, facts.actions.size), np.float32),),
        biases=(np.zeros(facts.actions.size, np.float32),),
        deviation=None if id == "CartPole-v1" else np.ones(facts.actions.size, np.float32),
        centre=np.zeros(size, np.float32),
        scale=np.ones(size, np.float32),
        clip=5.0,
        seeds=(Seed((5,)),),
    )
    params = {"gravity": np.float64(5.0)} if id == "CartPole-v1" else None
    return EpisodeJob((Seed((1,)),), [actor], (STEPS,), pictures=wanted, params=params)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_the_frames_are_the_environments_own_and_change_nothing_else(id):
    simulator = Environment(id)
    before = run_job([simulator], a_job(id, wanted=False))
    filmed = run_job([simulator], a_job(id, wanted=True))
    after = run_job([simulator], a_job(id, wanted=False))
    for name in ("observation", "action", "reward"):
        assert np.array_equal(getattr(before, name), getattr(filmed, name))
        assert np.array_equal(getattr(before, name), getattr(after, name))
    assert before.pictures is None
    frames = [pictures.unpacked(row) for row in filmed.pictures]
    assert len(frames) == STEPS + 1
    assert filmed.pictures.nbytes < sum(frame.nbytes for frame in frames) / 20
    env = gymnasium.make(id, render_mode="rgb_array")
    env.reset(seed=Seed((1,)).number())
    assert np.array_equal(frames[0], env.render())
    assert not np.array_equal(frames[0], frames[-1])


def test_a_frame_comes_back_as_it_was_whatever_zeros_follow():
    frame = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    padded = np.pad(pictures.packed(frame), (0, 100))
    assert np.array_equal(pictures.unpacked(padded), frame)


class Env:
    """Renders whatever it is told to."""

    def __init__(self, frame=None, error=None, **metadata):
        self.metadata, self._frame, self._error = metadata, frame, error
        self.unwrapped = self

    def render(self):
        if self._error is not None:
            raise self._error
        return self._frame


@pytest.mark.parametrize("modes", [[], ["human", "ansi"]])
def test_an_environment_without_frames_is_refused_with_what_it_has(modes):
    with pytest.raises(UserError) as refused:
        pictures.require_frames(Env(render_modes=modes), "the environment X-v0")
    known = ", ".join(modes) or "none"
    said = "the environment X-v0 cannot be drawn: it has no render mode rgb_array"
    assert str(refused.value) == f"{said} (available: {known})"


@pytest.mark.parametrize(
    "frame", [None, "text", np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), [np.zeros(3)]]
)
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(UserError, match="frames are uint8 of shape"):
        pictures.render(Env(frame), "the environment X-v0")


def test_an_environment_that_cannot_render_here_says_why():
    with pytest.raises(UserError) as refused:
        pictures.render(Env(error=RuntimeError("no screen")), "the environment X-v0")
    said = "the environment X-v0 cannot be drawn here: RuntimeError: no screen"
    assert str(refused.value) == said
    mujoco = Env(error=RuntimeError("no OpenGL"))
    mujoco.mujoco_renderer = object()
    with pytest.raises(UserError, match=r"EGL or OSMesa: install .* MUJOCO_GL"):
        pictures.render(mujoco, "the environment Reacher-v5")


def test_the_rate_of_frames_is_the_environments():
    assert examine("CartPole-v1", {}).frames_per_second == 50
    for rate in (None, 0, -3, "30", float("inf"), float("nan")):
        assert pictures.frames_per_second(Env(render_fps=rate)) is None
