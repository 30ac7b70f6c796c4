"""Each client by itself: federations in which whole policies stay on the clients."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import ALGORITHMS
from fedkl.clients.records import Start, first_states
from fedkl.clients.round import local_round
from fedkl.clients.sources import Traced
from fedkl.io.arrays import to_arrays
from fedkl.learning.randomness import Purpose, key_for
from fedkl.learning.settings import Sharing
from fedkl.server.loop import Federation

ALONE = {
    "federation__personal": "all",
    "federation__critic": "local",
    "federation__observation_statistics": "local",
    "federation__reward_statistics": "local",
    "learner__hidden": [3],
    "critic__hidden": [2],
    "evaluation__every": 100,
}
ALLOWED = [name for name in ALGORITHMS if name not in ("scaffold", "fedkl-anchored")]


def by_itself(config, client, rounds):
    """A client's policy after these rounds, where no server is: what one leaves, the next takes.

    Here the policy is the model's, as in a federation of one.
    """
    task = config.task
    local = Sharing("local", "local", "local", "none")
    model, state = first_states(task, local, key_for(config.seed, Purpose.MODEL))
    source = Traced(task.world, jax.tree.map(lambda x: x[client], config.client_params))
    train = jax.jit(lambda task, start: local_round(task, start, source))
    for t in rounds:
        key = key_for(config.seed, Purpose.TRAINING, t, client, 0)
        trained, state = train(task, Start(model, state, key))
        model = replace(model, policy=trained.update.model.policy)
    return model.policy


@pytest.mark.parametrize("algorithm", ALLOWED)
def test_each_client_trains_as_if_there_were_no_others(tiny, algorithm):
    config = tiny(algorithm, **ALONE | {"federation__rounds": 4, "world__spread": 1.0})
    federation = Federation(config)
    records = list(federation)
    assert [(record["rejected"], record["note"]) for record in records] == [([], None)] * 4
    trained = {n: [t for t in range(4) if n in records[t]["selected"]] for n in range(4)}
    assert max(len(rounds) for rounds in trained.values()) > 1
    own = federation.engine.save()
    for client, rounds in trained.items():
        if rounds:
            jax.tree.map(
                np.testing.assert_array_equal,
                own[client].personal,
                by_itself(config, client, rounds),
            )


def test_nothing_but_the_weight_leaves_a_client_that_learns_alone(tiny):
    federation = Federation(tiny(**ALONE))
    record = federation.run_round()
    assert record["rejected"] == []
    assert record["bytes_down"] == 0
    assert record["bytes_up"] == 2 * 4
    assert [n for n in to_arrays(federation.state) if n.startswith("model.")] == []


def test_the_budget_is_that_of_the_federation(tiny):
    """Two clients, two iterations of 64 steps."""
    alone, together = (Federation(tiny(**s)).run_round() for s in (ALONE, {}))
    assert alone["env_steps"] == together["env_steps"] == 2 * 2 * 64
    assert alone["selected"] == together["selected"]


def test_each_client_finds_its_own_target_and_one_that_never_trains_stays_where_all_began():
    """Targets -0.5, 1/6, 5/6 and 1.5; the first action of everybody is 0, and the last client never
    trains. What one action for all can do is 1/2, which costs the mean of 1, 1/9, 1/9 and 1."""
    settings = {key.replace("__", "."): value for key, value in ALONE.items()} | {
        "world.spread": 1.0,
        "federation.clients_per_round": 3,
        "federation.rounds": 8,
        "selection.name": "weighted",
        "selection.weights": [1.0, 1.0, 1.0, 0.0],
        "learner.initial_log_std": -1.0,
    }
    federation = Federation(fedkl.preset("probe-point", "fedavg", set=settings))
    for _ in range(8):
        federation.run_round()
    returns = federation.evaluate(4, deterministic=True).mean(axis=1)
    assert (returns[:3] > -0.1).all()
    assert returns[3] == pytest.approx(-(1.5**2), rel=0.1)


def test_a_run_is_resumed_from_what_was_saved(tiny):
    config = tiny(**ALONE)
    through, first, second = (Federation(config) for _ in range(3))
    list(through)
    first.run_round()
    saved = first.save()
    second.restore(saved.arrays, {client: dict(row) for client, row in saved.rows.items()})
    list(second)
    for client, state in through.engine.save().items():
        jax.tree.map(np.testing.assert_array_equal, state, second.engine.save()[client])


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        ("fedavg", {"federation__critic": "federated"}, r"federation\.critic must be local where"),
        (
            "fedavg",
            {"federation__observation_statistics": "federated"},
            r"federation\.observation_statistics must be local or none where",
        ),
        (
            "fedavg",
            {"federation__reward_statistics": "federated"},
            r"federation\.reward_statistics must be local or none where",
        ),
        ("scaffold", {}, r"federation\.personal must not be all for scaffold, which shares more"),
        ("fedkl-anchored", {}, r"federation\.personal must not be all for fedkl-anchored, which"),
        (
            "fedavg",
            {"learner__c2_across_rounds": "averaged"},
            r"learner\.c2_across_rounds must be kept or reset where",
        ),
        (
            "fedkl",
            {"algorithm__c1_across_rounds": "averaged"},
            r"algorithm\.c1_across_rounds must be kept or reset where",
        ),
        ("fedavg", {"learner__personal_iterations": 1}, r"personal_iterations must be 0 where"),
        ("fedavg", {"aggregation__reduce": "median"}, r"aggregation must be as it is by default"),
        (
            "fedavg",
            {"heterogeneity__every": 1, "federation__observation_statistics": "none"},
            r"federation\.personal must not be all where the level of heterogeneity is measured",
        ),
    ],
)
def test_what_would_make_clients_less_than_alone_is_refused(tiny, algorithm, settings, message):
    with pytest.raises(fedkl.UserError, match=message):
        tiny(algorithm, **ALONE | settings)
