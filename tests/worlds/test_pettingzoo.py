"""PettingZoo's environments as shared worlds."""

import pytest

import fedkl
from fedkl.errors import UserError
from fedkl.worlds import Continuous, Discrete, PettingZoo


@pytest.fixture(autouse=True)
def importable(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)


def test_a_world_is_what_its_environment_says():
    world = PettingZoo()
    assert (world.agents, world.observation_size, world.actions) == (3, 18, Discrete(5))
    assert world.horizon == 25
    toy = PettingZoo(module="toy_parallel", arguments=("leaves=[2, 3]",))
    assert (toy.agents, toy.observation_size, toy.actions) == (2, 2, Continuous(1))
    assert toy.horizon == 6
    assert toy.truncates
    assert toy.simulator().fresh
    assert toy.simulator().arguments["arguments"] == {"leaves": [2, 3]}


def test_without_a_limit_there_must_be_one_in_the_config():
    with pytest.raises(UserError, match=r"^world\.horizon must say how many steps"):
        PettingZoo(module="toy_parallel", arguments=("limit=false",))
    world = PettingZoo(module="toy_parallel", arguments=("limit=false",), horizon=9)
    assert world.horizon == 9


def test_there_are_as_many_clients_as_agents():
    with pytest.raises(UserError, match=r"^federation\.clients must be 2, as many as there are"):
        fedkl.preset("pettingzoo:toy_parallel", set={"world.arguments": ["leaves=[2, 3]"]})
