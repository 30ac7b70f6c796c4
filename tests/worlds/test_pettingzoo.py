"""PettingZoo's environments as shared worlds."""

import pytest

import fedkl
from fedkl.core.errors import UserError
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


TWO = {"world.arguments": ["leaves=[2, 3]"]}


def test_there_are_as_many_clients_as_agents():
    federation = fedkl.preset("pettingzoo:toy_parallel", set=TWO).federation
    assert (federation.clients, federation.clients_per_round) == (2, 2)
    one = fedkl.preset("pettingzoo:toy_parallel", set=TWO | {"federation.clients_per_round": 1})
    assert (one.federation.clients, one.federation.clients_per_round) == (2, 1)
    with pytest.raises(UserError, match=r"^federation\.clients must be 2, as many as there are"):
        fedkl.preset("pettingzoo:toy_parallel", set=TWO | {"federation.clients": 3})


def test_other_clients_are_no_agents():
    settings = {"federation.clients": "agents"}
    with pytest.raises(
        UserError, match=r"^federation\.clients must be a whole number, not 'agents'"
    ):
        fedkl.preset("cartpole", set=settings)
