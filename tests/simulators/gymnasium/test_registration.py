"""Environments by their id: found or not, made or refused, and nothing printed or left behind."""

import sys

import gymnasium
import mujoco
import pytest
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.registration import EnvSpec

from fedkl.core.errors import UserError
from fedkl.simulators.gymnasium import registration


class Mine(HalfCheetahEnv):
    """A user's own."""


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("CartPol-v1", "there is no Gymnasium environment 'CartPol-v1'; did you mean CartPole-v1"),
        ("cartpole-v1", "did you mean CartPole-v1"),
        ("HalfCheeta-v5", "did you mean HalfCheetah-v5"),
        ("CartPole", "did you mean CartPole-v"),
        ("xyz", "there is no Gymnasium environment 'xyz'; `gymnasium.pprint_registry()` prints"),
        ("ALE/Pong-v5", "`pip install ale-py`, then gym:ale_py:ALE/Pong-v5 with --set"),
        ("no_such_module:Env-v0", "the module of 'no_such_module:Env-v0' cannot be imported"),
    ],
)
def test_an_id_that_nobody_registered_is_answered_with_what_may_be_meant(id, sentence):
    with pytest.raises(UserError) as caught:
        registration.find(id)
    assert str(caught.value).startswith("world.id: ")
    assert sentence in str(caught.value)


def test_a_module_before_the_id_is_imported(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    assert registration.find("toy_environments:toys/Plain-v0").id == "toys/Plain-v0"


def test_an_environment_comes_without_wrappers_that_check_or_count():
    env = registration.make(registration.find("CartPole-v1"), {})
    assert env is env.unwrapped
    # What is registered is as it was.
    assert gymnasium.registry["CartPole-v1"].order_enforce


def test_arguments_reach_the_constructor():
    env = registration.make(registration.find("CartPole-v1"), {"sutton_barto_reward": True})
    assert env.unwrapped._sutton_barto_reward


@pytest.mark.parametrize(
    ("id", "clean"),
    [
        ("Pendulum-v1", True),
        ("toys/Pendulum-v0", True),
        ("toys/Short-v0", False),
        ("toys/Plain-v0", False),
    ],
)
def test_only_gymnasiums_own_are_known_to_leave_nothing_behind(toys, monkeypatch, id, clean):
    monkeypatch.syspath_prepend(toys)
    __import__("toy_environments")
    assert registration.is_clean(registration.find(id)) == clean


@pytest.mark.parametrize(
    ("id", "package", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("Hopper-v5", "mujoco", "mujoco")],
)
def test_a_missing_package_is_answered_with_what_to_install(monkeypatch, id, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    for name in list(sys.modules):
        if name.startswith(f"gymnasium.envs.{extra}"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError) as caught:
        registration.make(registration.find(id), {})
    assert str(caught.value) == (
        f"world.id: the environment {id} needs {package}; install it with "
        f"`pip install -e '.[{extra}]'`"
    )


def test_what_gives_images_is_not_worth_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in list(sys.modules):
        if name.startswith("gymnasium.envs.box2d"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"CarRacing-v3 gives images, which are not supported$"):
        registration.make(registration.find("CarRacing-v3"), {})


@pytest.mark.parametrize(
    ("id", "arguments", "sentence"),
    [
        ("Hopper-v3", {}, "cannot be made: ImportError: The mujoco v2 and v3 based environments"),
        ("CartPole-v1", {"nope": 1}, "cannot be made: TypeError: "),
        ("LunarLander-v3", {"gravity": -20.0}, "must be between -12 and 0"),
    ],
)
def test_what_cannot_be_made_says_why_in_a_line(id, arguments, sentence):
    with pytest.raises(UserError) as caught:
        registration.make(registration.find(id), arguments)
    assert str(caught.value).startswith(f"world.id: the environment {id} cannot be made: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entry", ["gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv", Mine])
def test_mujoco_leaves_nothing_in_the_current_folder_and_says_nothing(
    tmp_path, monkeypatch, capfd, entry
):
    monkeypatch.chdir(tmp_path)
    mujoco.set_mju_user_warning(None)  # as it is where no simulator was made before
    env = registration.make(EnvSpec("toys/Cheetah-v1", entry), {})
    assert mujoco.get_mju_user_warning() is None  # whoever else uses it here is warned
    registration.silence_mujoco()
    try:
        env.reset(seed=0)
        env.step(env.action_space.sample() * float("nan"))
    finally:
        mujoco.set_mju_user_warning(None)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
