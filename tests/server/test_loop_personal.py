"""Federations in which each client keeps a part of the policy to itself."""

import equinox as eqx
import jax
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import ALGORITHMS
from fedkl.clients.round import policy_of
from fedkl.core.errors import UserError
from fedkl.io.arrays import to_arrays
from fedkl.learning.policy import whole
from fedkl.learning.settings import PERSONAL
from fedkl.server.loop import Federation
from fedkl.server.state import broadcast

pytestmark = pytest.mark.usefixtures("quick_compilation")
SMALL = {"learner__hidden": [3], "critic__hidden": [2], "evaluation__every": 100}
NUMBERS = {"none": 0, "action-bias": 1, "last-layer": 3 + 1}
"""Of a policy with three hidden units and one action."""


def biases(policy):
    return float(np.ravel(policy.network.biases[-1])[0])


@pytest.fixture
def after(tiny):
    """A federation after some rounds, and the records of them."""

    def run(algorithm="fedkl", rounds=1, **settings):
        federation = Federation(tiny(algorithm, **SMALL | settings))
        return federation, [federation.run_round() for _ in range(rounds)]

    return run


@pytest.mark.parametrize("personal", PERSONAL[1:-1])
def test_the_servers_model_lacks_what_is_personal(after, personal):
    federation, (record,) = after(federation__personal=personal)
    assert record["rejected"] == []
    policy = federation.state.model.policy
    assert policy.network.biases[-1] is None
    assert (policy.network.weights[-1] is None) == (personal == "last-layer")
    assert sorted(federation.engine.save()) == record["selected"]
    for name in to_arrays(federation.state):
        assert "biases.1" not in name or "critic" in name


@pytest.mark.parametrize("algorithm", ["fedkl", "scaffold"])
def test_what_is_personal_is_not_sent_either_way(after, algorithm):
    """Four bytes a number and a client; SCAFFOLD sends a control variate for each number, too."""
    plain = after(algorithm)[1][0]
    ways = 2 if algorithm == "scaffold" else 1
    for personal in PERSONAL[1:-1]:
        record = after(algorithm, federation__personal=personal)[1][0]
        less = 4 * NUMBERS[personal] * 2 * ways
        assert plain["bytes_down"] - record["bytes_down"] == less
        assert plain["bytes_up"] - record["bytes_up"] == less


def test_in_worlds_that_differ_clients_parts_come_to_differ(after):
    """Targets -0.5 and 1.5, of two clients that both take part; both start with a bias of 0."""
    federation, _ = after(
        rounds=3,
        federation__personal="action-bias",
        federation__clients=2,
        world__spread=1.0,
        learner__learning_rate=0.05,
    )
    low, high = (biases(federation.engine.save()[n].personal) for n in range(2))
    assert low < 0 < high
    assert high - low > 0.2


def test_a_policy_with_a_part_for_each_client_does_better_where_they_want_different_things():
    """Targets -0.5, 1/6, 5/6 and 1.5. The best that one action can do is 1/2, which costs the mean
    of 1, 1/9, 1/9 and 1, 5/9; with a bias of its own every client can have what it wants."""
    settings = {
        "world.spread": 1.0,
        "federation.clients_per_round": 4,
        "federation.rounds": 8,
        "learner.hidden": [3],
        "learner.initial_log_std": -1.0,
        "evaluation.every": 100,
        "evaluation.episodes": 4,
    }
    found = {}
    for personal in ("none", "action-bias"):
        config = fedkl.preset(
            "probe-point", "fedkl", set=settings | {"federation.personal": personal}
        )
        federation = Federation(config)
        for _ in range(8):
            federation.run_round()
        found[personal] = federation.evaluate(4, deterministic=True)
    assert found["none"].mean() < -5 / 9 + 0.05
    assert found["action-bias"].mean() > -0.1
    assert (found["action-bias"].mean(axis=1) > -0.25).all()


def test_who_was_never_selected_goes_by_the_shared_start(after):
    """Its part is what everybody began with, the rest what the server has now."""
    federation, (record,) = after(federation__personal="last-layer", world__spread=1.0)
    model = broadcast(federation.state.model)
    outsider = next(n for n in range(4) if n not in record["selected"])
    insider = record["selected"][0]
    first = federation._first_client
    fresh, trained = policy_of(model, first), policy_of(model, federation.engine.save()[insider])
    assert biases(fresh) == 0
    assert biases(trained) != 0
    # The only observation is 0, standardised: what a client does follows from its policy.
    target = np.linspace(-0.5, 1.5, 4)
    returns = federation.evaluate(2, deterministic=True).mean(axis=1)
    seen = np.clip((1 - model.observations.mean) / 1e-4, -5, 5).astype(np.float32)
    for client, policy in ((outsider, fresh), (insider, trained)):
        action = float(policy(seen[None]).mode()[0, 0])
        assert returns[client] == pytest.approx(-((action - target[client]) ** 2), abs=1e-4)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_trains_with_personal_parts(after, name):
    federation, records = after(
        name, rounds=2, federation__personal="action-bias", learner__personal_iterations=1
    )
    assert [record["rejected"] for record in records] == [[], []]
    assert [record["note"] for record in records] == [None, None]
    for state in federation.engine.save().values():
        assert np.isfinite(biases(state.personal))
        assert biases(state.personal) != 0


def test_discrete_actions_have_a_personal_part_for_each(after):
    federation, (record,) = after(
        "fedkl-anchored", world__name="probe-bandit", federation__personal="action-bias"
    )
    assert record["rejected"] == []
    for state in federation.engine.save().values():
        assert state.personal.network.biases[-1].shape == (3,)


@pytest.mark.parametrize(
    "settings",
    [
        {"aggregation__reduce": "median"},
        {
            "aggregation__reduce": "krum",
            "federation__clients": 5,
            "federation__clients_per_round": 5,
        },
        {"aggregation__reduce": "grouped", "aggregation__region_rounds": 2},
        {"aggregation__step": "adam", "aggregation__each": ["clip"]},
    ],
    ids=lambda s: s.get("aggregation__reduce", "clip and adam"),
)
@pytest.mark.parametrize("personal", PERSONAL[1:-1])
def test_every_way_to_aggregate_bears_personal_parts(after, settings, personal):
    federation, records = after(rounds=3, federation__personal=personal, **settings)
    assert [record["rejected"] for record in records] == [[]] * 3
    assert [record["note"] for record in records] == [None] * 3
    assert federation.state.model.policy.network.biases[-1] is None


@pytest.mark.parametrize("preset", ["reacher-dynamics", "reacher-both"])
def test_weighted_anchors_go_with_a_personal_bias_where_dynamics_differ(preset):
    """Two rounds of all three clients: each has a bias of its own, and c_a has found a value."""
    config = fedkl.preset(
        preset,
        "fedkl-anchored",
        set={
            "federation.clients": 3,
            "federation.clients_per_round": 3,
            "federation.personal": "action-bias",
            "algorithm.weighted": True,
            "learner.personal_iterations": 1,
            "learner.iterations": 3,
            "learner.steps": 100,
            "learner.minibatch": 50,
            "learner.epochs": 2,
            "learner.hidden": [8],
            "critic.hidden": [8],
            "critic.epochs": 1,
            "evaluation.every": 2,
            "evaluation.episodes": 2,
        },
    )
    federation = Federation(config)
    records = [federation.run_round() for _ in range(2)]
    assert [record["rejected"] for record in records] == [[], []]
    assert [record["note"] for record in records] == [None, None]
    assert np.isfinite(records[-1]["return_mean"])
    own = [biases(state.personal) for state in federation.engine.save().values()]
    assert len(set(own)) == 3
    # In the first round nobody knows where the others are, so c_a stays at 0.1.
    assert records[0]["coefficients"]["c_a"] == pytest.approx(0.1)
    assert records[1]["coefficients"]["c_a"] != pytest.approx(0.1)


def test_robust_reducers_bear_products(after):
    for settings in (
        {"aggregation__reduce": "median"},
        {
            "aggregation__reduce": "krum",
            "federation__clients": 5,
            "federation__clients_per_round": 5,
        },
    ):
        federation, records = after("fedkl-anchored", rounds=2, **settings)
        assert [record["rejected"] for record in records] == [[], []]
        assert federation.state.model.observations.products.shape == (0,)


def test_regions_bear_anchors_that_nobody_shares(after):
    _, records = after(
        "fedkl-anchored", rounds=2, aggregation__reduce="grouped", federation__personal="last-layer"
    )
    assert [record["rejected"] for record in records] == [[], []]
    assert [record["note"] for record in records] == [None, None]


def test_observations_that_leave_are_counted(after):
    """24 of each of two clients."""
    _, (plain,) = after("fedkl-anchored")
    _, (record,) = after("fedkl-anchored", algorithm__anchors="shared")
    assert (plain["observations_shared"], record["observations_shared"]) == (0, 48)
    # The message is 24 numbers for each client; the pool comes down with its count.
    assert record["bytes_up"] - plain["bytes_up"] == 2 * 4 * 24
    assert record["bytes_down"] - plain["bytes_down"] == 2 * 4 * (1024 + 1)


def test_a_personal_part_that_a_client_sends_anyway_is_refused(tiny, between):
    config = tiny(federation__personal="action-bias", federation__retries=0, **SMALL)
    part = jax.device_get(Federation(config)._first_client.personal)

    def tamper(client, attempt, answer):
        return eqx.tree_at(
            lambda a: a.update.model.policy, answer, whole(answer.update.model.policy, part)
        )

    federation, _ = between(config, tamper)
    record = federation.run_round()
    assert [r["reason"] for r in record["rejected"]] == [
        "policy.network.biases.1 is of another type than expected"
    ] * 2
    assert record["note"].startswith("all 2 answers were refused for one reason")


def test_another_part_is_refused_by_name(tiny):
    with pytest.raises(UserError, match=r"federation\.personal must be one of none, action-bias, "):
        tiny(federation__personal="everything")
