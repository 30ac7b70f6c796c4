"""One client that learns alone, with the world that it has in the federation."""

import numpy as np
import pytest

import fedkl
from fedkl.io.arrays import to_arrays
from fedkl.server.loop import Federation

QUICK = {
    "federation.rounds": 2,
    "learner.iterations": 1,
    "learner.steps": 16,
    "evaluation.episodes": 2,
    "world.spread": 0.5,
}


@pytest.mark.usefixtures("quick_compilation")
def test_only_that_client_trains_and_is_evaluated_in_its_own_world():
    config = fedkl.preset("probe-point", set=QUICK)
    alone = fedkl.only_client(config, 2)
    for name, before in to_arrays(config.client_params).items():
        np.testing.assert_array_equal(before, to_arrays(alone.client_params)[name])
    records = [*Federation(alone)]
    assert [record["selected"] for record in records] == [[2], [2]]
    assert [record["evaluated"] for record in records] == [[2], [2]]
    assert all(len(record["return_per_client"]) == 1 for record in records)


def test_the_server_takes_its_update_as_it_is():
    robust = {
        "aggregation.reduce": "krum",
        "federation.clients_per_round": 5,
        "federation.extra": 1,
    }
    config = fedkl.only_client(fedkl.preset("reacher-dynamics", set=robust), 7)
    assert config.aggregation == fedkl.preset("demo").aggregation
    assert (config.federation.clients_per_round, config.federation.extra) == (1, 0)


@pytest.mark.parametrize("client", [-1, 60, 1.5, True])
def test_there_must_be_such_a_client(client):
    with pytest.raises(fedkl.UserError, match="client must be"):
        fedkl.only_client(fedkl.preset("reacher-dynamics"), client)


def test_agents_of_one_simulation_cannot_be_trained_alone():
    with pytest.raises(fedkl.UserError, match="agents of one simulation"):
        fedkl.only_client(fedkl.preset("figure-eight"), 0)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"evaluation.only": [60]}, "evaluation.only must name different clients from 0 to 59"),
        ({"evaluation.only": [1, 1]}, "evaluation.only must name different clients from 0 to 59"),
        ({"evaluation.only": [1], "evaluation.clients": 2}, "evaluation.clients must be 0 where"),
    ],
)
def test_clients_to_evaluate_are_named_in_one_way(settings, sentence):
    with pytest.raises(fedkl.UserError, match=sentence):
        fedkl.preset("demo", set=settings)
