"""The simulation and a lone client run the same code and give the same update."""

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.algorithms import ALGORITHMS
from fedkl.clients.records import Start
from fedkl.clients.round import local_round
from fedkl.clients.sources import Traced
from fedkl.clients.work import Evaluate, RecordEpisode, Train
from fedkl.engines import Failure, Job
from fedkl.learning.randomness import Purpose, key_data_of, key_for
from fedkl.server.loop import Federation
from fedkl.server.state import broadcast

COMMON = key_data_of(key_for(0, Purpose.SHARED_WORLD, 0, 0))


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def key_of(client):
    return key_for(0, Purpose.TRAINING, 0, client, 0)


def jobs_of(clients, **more):
    return [Job(client, key_data_of(key_of(client)), **more) for client in clients]


def train(federation, jobs):
    model = broadcast(federation.state.model)
    return dict(federation.engine.run(Train(), model, jobs, COMMON))


def trained(config, clients):
    """What some clients answer, and their states after it."""
    federation = Federation(config)
    answers = train(federation, jobs_of(clients))
    federation.engine.keep(1, clients)
    return answers, federation.engine.save()


def alone(config, client, model=None):
    """One client's round without any engine."""
    federation = Federation(config)
    params = jax.tree.map(lambda x: x[client], config.world.clients(4, key_for(0, Purpose.WORLDS)))
    model = broadcast(federation.state.model) if model is None else model
    start = Start(model, federation._first_client, key_of(client))
    return jax.device_get(
        jax.jit(lambda task, s, p: local_round(task, s, Traced(task.world, p)))(
            federation.config.task, start, params
        )
    )


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_a_network_client_would_send_and_keep_the_same_bits(tiny, algorithm):
    config = tiny(algorithm)
    answers, states = trained(config, [0, 3])
    for client in (0, 3):
        answer, state = alone(config, client)
        assert same_bits(answers[client], answer)
        assert same_bits(states[client], state)


def test_the_clients_chain_has_the_same_bits_wherever_it_runs(tiny):
    plain, clipped = tiny(), tiny(upload__each=["clip"], upload__max_norm=0.01)
    (before, kept), (answers, states) = trained(plain, [0, 3]), trained(clipped, [0, 3])
    start = Start(broadcast(Federation(plain).state.model), None, key_of(0))
    for client in (0, 3):
        answer, state = alone(clipped, client)
        assert same_bits(answers[client], answer)
        assert same_bits(states[client], state)
        # The links are all that differs, and only in what is sent.
        assert same_bits(kept[client], state)
        update = jax.jit(clipped.upload)(before[client].update, start)
        assert same_bits(update, answer.update)
        assert not same_bits(update, before[client].update)


def test_clients_vmapped_together_give_the_same_update_up_to_rounding(tiny):
    singly, _ = trained(tiny(), [0, 1, 3])
    together, _ = trained(tiny(federation__clients_at_once=2), [0, 1, 3])
    assert list(together) == [0, 1, 3]
    for client in singly:
        pairs = zip(
            jax.tree.leaves(singly[client].update),
            jax.tree.leaves(together[client].update),
            strict=True,
        )
        for a, b in pairs:
            assert np.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("fedkl", {"federation__personal": "action-bias", "algorithm__c1_adapted": "round"}),
        ("scaffold", {"federation__personal": "last-layer"}),
        ("fedkl-anchored", {"federation__personal": "last-layer"}),
        ("fedkl-anchored", {"algorithm__anchors": "shared"}),
    ],
    ids=["action-bias", "control variates", "anchors", "shared anchors"],
)
def test_personal_parts_and_anchors_are_vmapped_like_all_else(tiny, algorithm, settings):
    small = settings | {"learner__hidden": [3], "critic__hidden": [2], "world__spread": 1.0}
    (singly, kept), (together, others) = (
        trained(tiny(algorithm, federation__clients_at_once=n, **small), [0, 1, 3]) for n in (1, 2)
    )
    for ours, theirs in ((singly, together), (kept, others)):
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    if "federation__personal" in settings:
        own = [float(kept[n].personal.network.biases[-1][0]) for n in (0, 3)]
        assert own[0] != own[1]


def test_a_client_does_not_depend_on_who_else_is_selected(tiny):
    pair, of_pair = trained(tiny(), [1, 2])
    other, of_other = trained(tiny(), [2, 3])
    lonely, of_lonely = trained(tiny(), [2])
    for answers, states in ((other, of_other), (lonely, of_lonely)):
        assert same_bits(pair[2], answers[2])
        assert same_bits(of_pair[2], states[2])


def test_a_job_with_a_model_of_its_own_starts_from_it(tiny):
    config = tiny()
    federation = Federation(config)
    model = broadcast(federation.state.model)
    moved = eqx.tree_at(lambda m: m.policy.network.biases[-1], model, np.full(1, 0.3, np.float32))
    answers = train(federation, [*jobs_of([0]), *jobs_of([1], model=moved), *jobs_of([2])])
    assert sorted(answers) == [0, 1, 2]
    for client, started in ((0, model), (1, moved), (2, model)):
        assert same_bits(answers[client], alone(config, client, started)[0])
    assert not same_bits(answers[1], alone(config, 1)[0])


def test_states_that_were_saved_are_resumed_from(tiny):
    config = tiny("scaffold", federation__critic="local")
    first = Federation(config)
    train(first, jobs_of([0, 1]))
    first.engine.keep(1, [0])
    saved = dict(first.engine.save())
    assert list(saved) == [0]
    second = Federation(config)
    second.engine.restore(saved)
    assert same_bits(train(first, jobs_of([0, 1])), train(second, jobs_of([0, 1])))
    # Client 0 goes on, client 1 starts again.
    fresh = train(Federation(config), jobs_of([0, 1]))
    again = train(second, jobs_of([0, 1]))
    assert not same_bits(again[0], fresh[0])
    assert same_bits(again[1], fresh[1])


def test_a_client_whose_new_state_is_not_finite_fails_and_keeps_its_old_one(tiny):
    """Without a guard, a step of 1e30 ruins the control variate that SCAFFOLD keeps."""
    federation = Federation(
        tiny("scaffold", learner__guard=False, learner__learning_rate=1e30, federation__retries=0)
    )
    answers = train(federation, jobs_of([0, 1]))
    for answer in answers.values():
        assert isinstance(answer, Failure)
        assert answer.reason.startswith("state.")
        assert answer.reason.endswith("is not finite")
    federation.engine.keep(1, [])
    assert federation.engine.save() == {}


def test_evaluation_of_many_clients_equals_that_of_each(tiny):
    config = tiny(federation__clients=23)
    federation = Federation(config)
    returns = federation.evaluate(5, deterministic=True)
    assert returns.shape == (23, 5)
    # The deterministic policy starts at 0, so the return is -(target)^2 for each client.
    targets = np.asarray(config.world.clients(23, key_for(0, Purpose.WORLDS)).target).reshape(23)
    assert returns.mean(axis=1) == pytest.approx(-(targets**2), abs=0.05)


def test_work_that_only_looks_leaves_nothing_behind(tiny):
    federation = Federation(tiny())
    model, jobs = broadcast(federation.state.model), jobs_of([0, 1])
    for work in (Evaluate(3, False), RecordEpisode(False)):
        answers = dict(federation.engine.run(work, model, jobs, COMMON))
        assert sorted(answers) == [0, 1]
    federation.engine.keep(1, [])
    assert federation.engine.save() == {}


def test_a_recording_is_an_episode_in_that_clients_world(tiny):
    federation = Federation(tiny(world__spread=0.3))
    model = broadcast(federation.state.model)
    ((client, recording),) = federation.engine.run(RecordEpisode(True), model, jobs_of([3]), COMMON)
    assert client == 3
    # The last of four clients wants 0.5 + 0.3, and the fresh policy acts with about 0.
    assert recording.params.target == pytest.approx(0.8)
    assert recording.reward == pytest.approx(np.array([-(0.8**2)]), abs=0.05)
    assert recording.mask.tolist() == [True]


def test_an_engine_without_simulators_has_nothing_to_report(tiny):
    with Federation(tiny()) as federation:
        assert federation.engine.report() == {}
