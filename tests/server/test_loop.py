"""The loop: what a round does to the state."""

import jax
import numpy as np
import pytest

from fedkl.engines import Failure
from fedkl.server.loop import Federation


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def states(federation):
    """Clients' own states."""
    return dict(federation.engine.save())


def timeless(records):
    return [{**record, "seconds": 0} for record in records]


def test_training_is_a_pure_function_of_the_config(tiny):
    first, second = Federation(tiny()), Federation(tiny())
    records = [list(first), list(second)]
    assert same_bits(first.state, second.state)
    assert same_bits(states(first), states(second))
    assert timeless(records[0]) == timeless(records[1])


def test_it_does_not_matter_who_brings_the_clients(tiny, between):
    directly = Federation(tiny())
    federation, engine = between(tiny())
    assert timeless(directly) == timeless(federation)
    assert same_bits(directly.state, federation.state)
    assert [round for round, _ in engine.kept] == [1, 2, 3]


def test_evaluation_changes_nothing_in_training(tiny):
    watched, blind = Federation(tiny()), Federation(tiny(evaluation__every=100))
    for _ in watched:
        watched.evaluate(7, deterministic=True)
    list(blind)
    assert same_bits(watched.state, blind.state)
    assert same_bits(states(watched), states(blind))


def test_rounds_without_evaluation_have_no_returns_and_the_last_has(tiny):
    records = list(Federation(tiny(evaluation__every=2)))
    assert [r["return_mean"] is None for r in records] == [True, False, False]


def test_only_selected_clients_change(tiny):
    federation = Federation(tiny())
    record = federation.run_round()
    assert sorted(states(federation)) == record["selected"]
    assert federation.save().changed == set(record["selected"])


def test_records_add_up(tiny):
    record = Federation(tiny()).run_round()
    assert record["env_steps"] == 2 * 2 * 64
    assert record["return_mean"] == pytest.approx(np.mean(record["return_per_client"]))
    assert record["return_min"] == min(record["return_per_client"])
    assert record["note"] is None
    assert record["evaluated"] is None


def test_bytes_are_those_of_the_arrays_sent(tiny):
    record = Federation(tiny()).run_round()
    policy = (1 * 8 + 8) + (8 * 1 + 1) + 1
    critic = (1 * 8 + 8) + (8 * 1 + 1)
    moments = (1 + 1 + 1) + 3
    assert record["bytes_down"] == 2 * 4 * (policy + critic + moments)
    assert record["bytes_up"] == record["bytes_down"] + 2 * 4
    assert (record["bytes_down_regions"], record["bytes_up_regions"]) == (0, 0)
    # SCAFFOLD sends a control variate with the policy, and gets one back.
    shared = Federation(tiny("scaffold")).run_round()
    assert shared["bytes_down"] == record["bytes_down"] + 2 * 4 * policy
    assert shared["bytes_up"] == record["bytes_up"] + 2 * 4 * policy


def test_a_job_says_in_which_round_the_client_was_last_accepted(tiny, between):
    config = tiny(federation__clients=3, federation__rounds=4)
    federation, engine = between(config)
    last = {}
    for record, jobs in zip(federation, engine.asked, strict=False):
        assert [job.since for job in jobs] == [last.get(job.client, 0) for job in jobs]
        last |= dict.fromkeys(record["selected"], record["round"])
    assert max(job.since for jobs in engine.asked for job in jobs) > 0


def test_a_sample_of_clients_is_evaluated_the_same_in_every_round(tiny):
    config = tiny(federation__clients=12, evaluation__clients=3)
    federation, everybody = Federation(config), Federation(tiny(federation__clients=12))
    of_sample, of_all = list(federation), list(everybody)
    assert same_bits(federation.state, everybody.state)
    sample = of_sample[0]["evaluated"]
    assert sample == sorted(set(sample))
    assert len(sample) == 3
    assert sample != [0, 1, 2]
    for record, whole in zip(of_sample, of_all, strict=True):
        assert record["evaluated"] == sample
        # A sampled client runs the episodes that it would run among all.
        assert record["return_per_client"] == pytest.approx(
            [whole["return_per_client"][c] for c in sample], rel=1e-5
        )
        assert whole["evaluated"] is None
    others = [Federation(tiny(seed=s, federation__clients=12, evaluation__clients=3)).evaluated
              for s in range(1, 4)]  # fmt: skip
    assert any(other != sample for other in others)


def test_a_sample_of_everybody_is_everybody(tiny):
    assert Federation(tiny(evaluation__clients=4)).evaluated is None


def test_clients_are_selected_in_turns_if_the_config_says_so(tiny):
    config = tiny(selection__name="round-robin", federation__rounds=4)
    selected = [r["selected"] for r in Federation(config)]
    assert sorted(selected[0] + selected[1]) == [0, 1, 2, 3]
    assert sorted(selected[2] + selected[3]) == [0, 1, 2, 3]


def test_clients_are_selected_by_weight_if_the_config_says_so(tiny):
    config = tiny(selection__name="weighted", selection__weights=[0, 1, 0, 2])
    assert [r["selected"] for r in Federation(config)] == [[1, 3]] * 3


def test_a_selector_is_shown_what_the_accepted_clients_reported(tiny, between, monkeypatch):
    config = tiny()
    bad = Federation(config).run_round()["selected"][0]
    federation, _ = between(
        config, lambda client, attempt, answer: Failure("no") if client == bad else answer
    )
    seen = []
    monkeypatch.setattr(
        type(config.selection), "observe", lambda self, *args: seen.append(args) or ()
    )
    record = federation.run_round()
    ((state, round, selected, reports),) = seen
    assert (state, round, selected) == ((), 0, record["selected"])
    assert reports == {row["client"]: row for row in record["clients"]}
    assert bad not in reports


def test_regions_start_from_their_own_models_between_reports(tiny, between):
    config = tiny(
        federation__clients_per_round=4,
        federation__rounds=2,
        aggregation__reduce="grouped",
        aggregation__region_rounds=2,
    )
    federation, engine = between(config)
    before = federation.state.model
    first = federation.run_round()
    assert all(job.model is None for job in engine.asked[0])
    assert same_bits(federation.state.model, before)
    assert (first["note"], first["bytes_up_regions"]) == (None, 0)
    second = federation.run_round()
    models = [job.model for job in engine.asked[1]]
    assert same_bits(models[0], models[1])
    assert same_bits(models[2], models[3])
    assert not same_bits(models[0], models[2])
    assert not same_bits(federation.state.model, before)
    # Two regions send their models and weights, and are sent the new one.
    size = first["bytes_down"] // 4
    assert second["bytes_down_regions"] == 2 * size
    assert second["bytes_up_regions"] == 2 * (size + 4)


def test_federated_statistics_count_every_training_step(tiny):
    federation = Federation(tiny())
    records = list(federation)
    assert federation.state.model.observations.count == records[-1]["env_steps"]


@pytest.mark.parametrize("algorithm", ["fedkl", "fedavg", "fedprox", "fmarl", "scaffold"])
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
    assert (wild["kl_local"], wild["distance_global"]) == (0.0, 0.0)


def test_many_episodes_are_evaluated_in_blocks_that_differ(tiny):
    returns = Federation(tiny()).evaluate(450, deterministic=False)
    assert returns.shape == (4, 450)
    assert len(np.unique(returns)) > 1700


@pytest.mark.parametrize("settings", [
    {},
    {"algorithm": "scaffold"},
    {"federation__critic": "local", "federation__observation_statistics": "local"},
    {"selection__name": "round-robin"},
    {"aggregation__step": "adam"},
    {"aggregation__reduce": "grouped", "aggregation__region_rounds": 2},
], ids=str)  # fmt: skip
def test_a_federation_can_be_taken_up_in_memory(tiny, settings):
    config = tiny(**settings)
    whole, first, second = (Federation(config) for _ in range(3))
    records = list(whole)
    first.run_round()
    second.restore(*first.save()[:2])
    assert second.save().changed == set()
    assert timeless(second) == timeless(records[1:])
    assert same_bits(whole.state, second.state)
    assert same_bits(states(whole), states(second))


def test_what_was_saved_of_another_federation_is_refused(tiny):
    arrays, rows, _ = Federation(tiny()).save()
    with pytest.raises(ValueError, match="selector is missing"):
        Federation(tiny(selection__name="round-robin")).restore(arrays, rows)
    federation = Federation(tiny())
    federation.run_round()
    other = Federation(tiny(federation__critic="local"))
    with pytest.raises(ValueError, match=r"critic"):
        other.restore(*federation.save()[:2])
    assert other.state.round == 0
