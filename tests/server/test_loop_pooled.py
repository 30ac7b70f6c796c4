"""All data in one place: whoever trains collects its episodes in the worlds of all clients."""

import equinox as eqx
import jax
import numpy as np
import pytest

import fedkl
from fedkl.server.loop import Federation

CENTRALISED = {
    "federation__data": "pooled",
    "federation__clients_per_round": 1,
    "selection__name": "weighted",
    "selection__weights": [1.0, 0.0, 0.0, 0.0],
    "learner__steps": 2 * 64,
    "evaluation__every": 100,
}


def returns(config, rounds):
    federation = Federation(config)
    for _ in range(rounds):
        record = federation.run_round()
        assert (record["rejected"], record["note"]) == ([], None)
    return federation.evaluate(4, deterministic=True).mean(axis=1)


def test_a_learner_of_all_data_finds_what_is_best_for_all():
    """Targets -0.5, 1/6, 5/6 and 1.5. Trained in its own world alone, client 0 would lead to its
    own target, which costs the others 4/9, 16/9 and 4; the best common action, 1/2, costs 1, 1/9,
    1/9 and 1. Each client is evaluated in its own world."""
    settings = {
        "world.spread": 1.0,
        "federation.clients_per_round": 1,
        "selection.name": "weighted",
        "selection.weights": [1.0, 0.0, 0.0, 0.0],
        "federation.rounds": 8,
        "learner.initial_log_std": -1.0,
        "learner.steps": 512,
        "evaluation.every": 100,
    }
    pooled, own = (
        returns(fedkl.preset("probe-point", "fedavg", set=settings | {"federation.data": data}), 8)
        for data in ("pooled", "own")
    )
    np.testing.assert_allclose(pooled, [-1, -1 / 9, -1 / 9, -1], atol=0.25)
    np.testing.assert_allclose(own, [0, -4 / 9, -16 / 9, -4], atol=0.5)


def test_with_one_learner_of_k_times_the_steps_the_budget_is_the_federations(tiny):
    pooled, federated = (Federation(tiny(**s)).run_round() for s in (CENTRALISED, {}))
    assert pooled["env_steps"] == federated["env_steps"] == 2 * 2 * 64
    assert pooled["selected"] == [0]


def test_several_learners_of_all_data_vmapped_together_agree_up_to_rounding(tiny):
    several = CENTRALISED | {
        "federation__clients_per_round": 2,
        "selection__weights": [1.0, 1.0, 0.0, 0.0],
        "world__spread": 1.0,
    }
    singly, together = (
        Federation(tiny(**several, federation__clients_at_once=number)) for number in (1, 2)
    )
    for federation in (singly, together):
        federation.run_round()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
        *(eqx.filter(f.state.model, eqx.is_array_like) for f in (singly, together)),
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"federation__personal": "action-bias"},
            r"^federation\.personal must be none where federation\.data is pooled, not action-bias",
        ),
        (
            {"federation__observation_statistics": "local"},
            r"^federation\.observation_statistics must be federated or none where",
        ),
        ({"federation__data": "shared"}, r"^federation\.data must be one of own, pooled"),
    ],
)
def test_what_those_who_never_train_would_lack_is_refused(tiny, settings, message):
    with pytest.raises(fedkl.UserError, match=message):
        tiny("fedavg", **CENTRALISED | settings)


def test_agents_of_one_simulation_cannot_be_put_in_each_others_place():
    with pytest.raises(fedkl.UserError, match=r"^federation\.data must be own in the world"):
        fedkl.preset("figure-eight", "fedavg", set={"federation.data": "pooled"})
