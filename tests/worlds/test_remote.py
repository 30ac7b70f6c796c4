"""A world of which the server knows what a policy sees and does, and nothing else."""

import jax
import pytest

from fedkl.core.errors import UserError
from fedkl.core.settings import build
from fedkl.worlds import WORLDS, Continuous, Discrete, Remote


def test_sizes_are_what_the_settings_say():
    values = {"observation_size": 7, "action_size": 3, "horizon": 50}
    world = build(WORLDS["remote"], values, "world")
    assert (world.observation_size, world.actions, world.horizon) == (7, Continuous(3), 50)
    assert build(Remote, values | {"discrete": True}, "world").actions == Discrete(3)


def test_clients_have_nothing_that_the_server_knows():
    assert Remote().clients(3, jax.random.key(0)) == {}


def test_there_is_nothing_to_simulate():
    with pytest.raises(UserError, match="only on the clients of a network"):
        Remote().simulator()


@pytest.mark.parametrize("name", ["observation_size", "action_size", "horizon"])
def test_sizes_are_positive(name):
    with pytest.raises(UserError, match=f"world.{name} must be at least 1"):
        build(Remote, {name: 0}, "world")
