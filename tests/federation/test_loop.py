"""The loop: what a round does to the state, and what it does when a client goes wrong."""

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.federation.loop import Federation


def leaves_equal(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def spoilt(engine_train, is_bad):
    """An engine whose updates are NaN for the clients (and calls) that `is_bad` names."""
    calls = []

    def train(model, clients, *rest):
        calls.append(list(clients))
        outcomes = engine_train(model, clients, *rest)
        return [
            eqx.tree_at(
                lambda o: o[0].model.policy,
                o,
                jax.tree.map(lambda x: x * np.nan, o[0].model.policy),
            )
            if is_bad(client, len(calls))
            else o
            for client, o in zip(clients, outcomes, strict=True)
        ]

    return train, calls


def test_training_is_a_pure_function_of_the_config(tiny):
    first, second = Federation(tiny()), Federation(tiny())
    records = [list(first), list(second)]
    assert leaves_equal(first.state, second.state)
    for a, b in zip(*records, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_evaluation_changes_nothing_in_training(tiny):
    watched, blind = Federation(tiny()), Federation(tiny(evaluation__every=100))
    for _ in watched:
        watched.evaluate(7, deterministic=True)
    list(blind)
    assert leaves_equal(watched.state, blind.state)


def test_rounds_without_evaluation_have_no_returns_and_the_last_has(tiny):
    records = list(Federation(tiny(evaluation__every=2)))
    assert [r["return_mean"] is None for r in records] == [True, False, False]


def test_only_selected_clients_change(tiny):
    federation = Federation(tiny())
    record = federation.run_round()
    trained = [c for c in range(4) if federation.state.clients.iterations[c] > 0]
    assert trained == record["selected"]


def test_a_record_has_all_the_documented_keys(tiny):
    record = Federation(tiny()).run_round()
    assert list(record) == [
        "round", "return_mean", "return_min", "return_std", "return_per_client",
        "deterministic_return_mean", "selected", "rejected", "kl_local", "kl_global", "c1", "c2",
        "guarded", "clients", "env_steps", "bytes_down", "bytes_up", "seconds",
    ]  # fmt: skip
    assert record["env_steps"] == 2 * 2 * 64
    assert record["return_mean"] == pytest.approx(np.mean(record["return_per_client"]))
    assert record["return_min"] == min(record["return_per_client"])


def test_bytes_are_those_of_the_arrays_sent(tiny):
    record = Federation(tiny()).run_round()
    policy = (1 * 8 + 8) + (8 * 1 + 1) + 1
    critic = (1 * 8 + 8) + (8 * 1 + 1)
    moments = (1 + 1 + 1) + 3
    assert record["bytes_down"] == 2 * 4 * (policy + critic + moments)
    assert record["bytes_up"] == record["bytes_down"] + 2 * 4


def test_a_client_that_fails_once_is_run_again_with_a_fresh_key(tiny):
    federation = Federation(tiny())
    bad = federation.run_round()["selected"][0]
    federation = Federation(tiny())
    federation.engine.train, calls = spoilt(
        federation.engine.train, lambda client, call: client == bad and call == 1
    )
    record = federation.run_round()
    assert calls[1] == [bad]
    assert record["rejected"] == []
    assert [c["client"] for c in record["clients"]] == record["selected"]


def test_a_client_that_fails_again_is_left_out_and_named(tiny):
    bad = Federation(tiny()).run_round()["selected"][0]
    federation = Federation(tiny())
    federation.engine.train, calls = spoilt(federation.engine.train, lambda c, _: c == bad)
    record = federation.run_round()
    assert len(calls) == 2
    assert [r["client"] for r in record["rejected"]] == [bad]
    assert "not finite" in record["rejected"][0]["reason"]
    assert federation.state.clients.iterations[bad] == 0
    assert np.isfinite(record["return_mean"])


def test_a_round_in_which_everybody_fails_leaves_the_model_and_the_run_goes_on(tiny):
    federation = Federation(tiny())
    before = federation.state.model
    federation.engine.train, _ = spoilt(federation.engine.train, lambda *_: True)
    record = federation.run_round()
    assert leaves_equal(federation.state.model, before)
    assert record["kl_local"] is None
    assert len(record["rejected"]) == 2
    assert federation.run_round()["round"] == 2


def test_federated_statistics_count_every_training_step(tiny):
    federation = Federation(tiny())
    records = list(federation)
    assert federation.state.model.observations.count == records[-1]["env_steps"]


@pytest.mark.parametrize("algorithm", ["fedkl", "fedavg", "fedprox", "fmarl"])
def test_clients_that_want_different_things_agree_on_the_middle(tiny, algorithm):
    config = tiny(
        algorithm,
        federation__clients_per_round=4,
        federation__rounds=12,
        learner__iterations=5,
        learner__steps=256,
        world__spread=0.3,
        evaluation__every=100,
        evaluation__episodes=50,
    )
    federation = Federation(config)
    list(federation)
    # The constant observation is standardised to 0.
    # Targets are 0.5 with a spread whose mean is 0: the best common action is 0.5.
    policy = federation.state.model.policy
    assert float(policy(np.zeros((1, 1))).mode()[0, 0]) == pytest.approx(0.5, abs=0.12)


def test_iterations_that_were_rolled_back_do_not_count_as_divergence(tiny):
    calm = Federation(tiny(learner__learning_rate=1e-6)).run_round()
    wild = Federation(tiny(learner__learning_rate=1e6)).run_round()
    assert calm["guarded"] == 0
    assert calm["kl_local"] > 0
    assert wild["guarded"] == 2 * 2
    assert (wild["kl_local"], wild["kl_global"]) == (0.0, 0.0)


def test_many_episodes_are_evaluated_in_blocks_that_differ(tiny):
    returns = Federation(tiny()).evaluate(450, deterministic=False)
    assert returns.shape == (4, 450)
    assert len(np.unique(returns)) > 1700
