"""Gymnasium's environments as worlds: what they are comes from the environment."""

import sys

import jax
import numpy as np
import pytest

import fedkl
from fedkl.core.errors import UserError
from fedkl.core.plugins import load_plugin
from fedkl.simulators.gymnasium.simulation import Environment
from fedkl.worlds import Continuous, Discrete, Gymnasium
from fedkl.worlds import gymnasium as module
from fedkl.worlds.heterogeneous import Differences

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def registered(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    __import__("toy_environments")


@pytest.mark.parametrize(
    ("id", "size", "actions", "horizon"),
    [
        ("CartPole-v1", 4, Discrete(2), 500),
        ("Pendulum-v1", 3, Continuous(1), 200),
        ("HalfCheetah-v5", 17, Continuous(6), 1000),
        ("LunarLander-v3", 8, Discrete(4), 1000),
        ("FrozenLake-v1", 16, Discrete(4), 100),
        ("toys/Dict-v0", 5, Continuous(2), 10),
    ],
)
def test_a_world_is_what_its_environment_says(id, size, actions, horizon):
    world = Gymnasium(id=id)
    assert (world.observation_size, world.actions, world.horizon) == (size, actions, horizon)
    assert Gymnasium(id=id, horizon=7).horizon == 7
    assert hash(world) == hash(Gymnasium(id=id))
    assert world != Gymnasium(id=id, horizon=7)


def test_without_a_limit_there_must_be_one_in_the_config():
    with pytest.raises(UserError, match=r"^world\.horizon must say how many steps .*toys/Endless"):
        Gymnasium(id="toys/Endless-v0")
    assert Gymnasium(id="toys/Endless-v0", horizon=30).horizon == 30


def test_gymnasiums_own_are_used_again_and_never_truncate_by_themselves():
    world = Gymnasium(id="Pendulum-v1")
    assert not world.truncates
    assert not world.simulator().fresh
    other = Gymnasium(id="toys/Plain-v0")
    assert other.truncates
    assert other.simulator().fresh
    assert not Gymnasium(id="toys/Plain-v0", reuse=True).simulator().fresh


@pytest.mark.parametrize("id", ["toys/Plain-v0", "toys/Pendulum-v0"])
def test_plugins_go_with_environments_that_they_may_have_registered(tmp_path, id):
    """Also with Gymnasium's own, which a plugin may have registered by another id."""
    plugin = tmp_path / "mine.py"
    plugin.write_text("")
    load_plugin(plugin)
    assert str(plugin) in Gymnasium(id=id).simulator().plugins
    plugin.unlink()
    assert str(plugin) not in Gymnasium(id=id).simulator().plugins


def test_arguments_of_the_constructor_are_part_of_the_world():
    assert Gymnasium(id="LunarLander-v3", arguments=("continuous=true",)).actions == Continuous(2)
    with pytest.raises(UserError, match=r"^world\.arguments must be a list of name=value"):
        Gymnasium(id="LunarLander-v3", arguments=("continuous",))


def test_longer_episodes_are_given_more_time():
    assert Gymnasium(id="CartPole-v1").patience == 60
    assert Gymnasium(id="CartPole-v1", horizon=3000, timeout=10.0).patience == 30


def test_clients_are_alike_unless_a_table_says_otherwise():
    assert Gymnasium(id="HalfCheetah-v5").clients(3, KEY) == {}


def test_clients_have_what_the_table_says_of_the_environments_words():
    table = {
        "gravity": {"linspace": [7, 13]},
        "action_noise": 0.2,
        "action_offset": {"normal": [0, 0.4]},
        "model.opt.timestep": [0.01, 0.005],
        "initial_low": -0.2,
    }
    world = Gymnasium(id="HalfCheetah-v5", differences=Differences.from_table(table))
    rows = world.clients(4, KEY)
    assert rows["gravity"].tolist() == [7, 9, 11, 13]
    assert rows["action_noise"].tolist() == [0.2] * 4
    assert rows["action_offset"].shape == (4, 6)
    assert rows["model.opt.timestep"].tolist() == [0.01, 0.005, 0.01, 0.005]
    assert rows["initial_low"].shape == (4, 18)
    one = jax.tree.map(lambda x: x[1], rows)
    assert set(one) == set(table)


@pytest.mark.parametrize(
    ("id", "table", "sentence"),
    [
        (
            "CartPole-v1",
            {"gravty": 1},
            "world.clients.gravty is not a parameter of gym:CartPole-v1 (",
        ),
        ("CartPole-v1", {"action_noise": 0.1}, "its actions are discrete"),
        (
            "Acrobot-v1",
            {"gravity": 3.0},
            "world.clients.gravity is not a parameter of gym:Acrobot-v1",
        ),
        (
            "HalfCheetah-v5",
            {"model.nope": 3.0},
            "world.clients.model.nope is not a parameter of gym:HalfCheetah-v5: it stands for nope "
            "of the environment's MuJoCo model, and there is no such number to be set",
        ),
        ("CartPole-v1", {"model.nq": 4}, "it stands for nq of the environment's MuJoCo model, and"),
        (
            "HalfCheetah-v5",
            {"attribute.dt": 1},
            "it stands for the attribute dt of the environment, and",
        ),
        ("Ant-v5", {"make.foo": 1}, "the argument foo of the environment's constructor, and there"),
        ("LunarLander-v3", {"gravity": 20.0}, "world.clients.gravity must be at least 0.01 and"),
        ("CartPole-v1", {"masscart": 0.0}, "world.clients.masscart must be at least 0.001"),
    ],
)
def test_a_table_may_only_name_what_the_environment_has(id, table, sentence):
    with pytest.raises(UserError) as caught:
        Gymnasium(id=id, differences=Differences.from_table(table))
    assert sentence in str(caught.value)


@pytest.mark.parametrize("parameter", ["initial_low", "initial_high", "initial_state"])
def test_what_wrappers_would_not_see_is_no_word_of_a_model(parameter):
    table = {parameter: {"boxes": 2} if parameter == "initial_state" else 0.0}
    with pytest.raises(UserError) as caught:
        Gymnasium(id="toys/Cheetah-v0", differences=Differences.from_table(table))
    sentence = (
        f"world.clients.{parameter} is not a parameter of gym:toys/Cheetah-v0: its wrappers would"
    )
    assert str(caught.value).startswith(sentence)
    assert Gymnasium(id="HalfCheetah-v5", differences=Differences.from_table(table)).clients(2, KEY)


def test_where_episodes_start_can_be_cut_into_boxes():
    boxes = Differences.from_table({"initial_state": {"boxes": 4}})
    rows = Gymnasium(id="CartPole-v1", differences=boxes).clients(4, KEY)
    np.testing.assert_allclose(rows["initial_low"], [-0.05, -0.025, 0, 0.025], atol=1e-12)
    np.testing.assert_allclose(rows["initial_high"], [-0.025, 0, 0.025, 0.05], atol=1e-12)
    assert Gymnasium(id="HalfCheetah-v5", differences=boxes).clients(4, KEY)[
        "initial_low"
    ].shape == (4, 18)


def test_without_gymnasium_there_is_a_sentence_that_says_what_to_install(monkeypatch):
    module._examined.cache_clear()
    for name in list(sys.modules):
        if name.split(".")[0] == "gymnasium" or name.startswith("fedkl.simulators.gymnasium"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "fedkl.simulators.spaces", raising=False)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[gymnasium\]'"):
        Gymnasium()


def test_a_client_is_filmed_by_its_environments_own_pictures():
    config = fedkl.preset("gym:CartPole-v1", set={"federation.clients": 2, "world.horizon": 30})
    with fedkl.Federation(config) as federation:
        episode = federation.film(1, deterministic=True)
        frames = list(episode.frames)
    assert episode.frames_per_second == 50
    assert len(frames) == len(episode.totals) > 1
    assert frames[0].shape == (400, 600, 3)
    assert not np.array_equal(frames[0], frames[-1])


def test_an_environment_that_has_no_pictures_is_refused_when_it_is_filmed():
    with pytest.raises(UserError, match=r"toys/Dict-v0 cannot be drawn: .* rgb_array \(available"):
        Environment("toys/Dict-v0").prepare_pictures()
