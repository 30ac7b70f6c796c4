"""Training over messages gives the same bits as training in this process, whatever happens."""

from typing import ClassVar

import jax
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import ALGORITHMS
from fedkl.clients.records import Trained
from fedkl.clients.upload import UPLOADS
from fedkl.clients.work import Evaluate, Train
from fedkl.engines import Failure
from fedkl.heterogeneity import Measurement
from fedkl.io.arrays import to_arrays
from fedkl.learning.diagnostics import DIAGNOSTICS
from fedkl.network.messages import read_reply, read_request
from fedkl.server.loop import Federation
from fedkl.training import lifecycle

pytestmark = pytest.mark.usefixtures("quick_compilation")
REACHER = {
    "federation.clients": 3,
    "federation.clients_per_round": 2,
    "federation.rounds": 2,
    "learner.iterations": 2,
    "learner.steps": 100,
    "learner.epochs": 1,
    "learner.hidden": [4],
    "critic.hidden": [4],
    "critic.epochs": 1,
    "evaluation.clients": 1,
    "evaluation.every": 100,
    "evaluation.episodes": 2,
}
LOCAL = {
    "evaluation__clients": 1,
    "evaluation__every": 100,
    "federation__critic": "local",
    "federation__observation_statistics": "local",
    "federation__reward_statistics": "local",
}


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def here(config, rounds=None):
    """A federation in this process after some rounds."""
    federation = Federation(config)
    for _ in range(config.federation.rounds if rounds is None else rounds):
        federation.run_round()
    return federation


def deceived(config, tamper):
    """A federation in this process whose answers are tampered with, after all its rounds."""

    class Between(fedkl.engines.InProcess):
        def run(self, work, model, jobs, key):
            round = int(federation.state.round)
            for client, answer in super().run(work, model, jobs, key):
                yield client, tamper(client, round, answer)

    federation = Federation(config)
    federation.engine.__class__ = Between
    list(federation)
    return federation


def keys_that_leave(engine):
    return {name for _, reply in engine.sent for name in read_reply(reply).result}


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_algorithm_learns_the_same_bits(tiny, over, algorithm):
    config = tiny(algorithm, evaluation__every=100, evaluation__clients=1)
    federation, engine = over(config)
    records = list(federation)
    assert same_bits(federation.state, here(config).state)
    assert all(record["rejected"] == [] for record in records)
    assert engine.save() == {}


def test_what_clients_do_to_an_update_before_they_send_it_has_the_same_bits(
    tiny, over, monkeypatch
):
    class Noise(fedkl.Upload):
        name: ClassVar[str] = "noise"
        summary: ClassVar[str] = "for this test"

        def __call__(self, move, key):
            return move + 0.01 * jax.random.normal(key, move.shape)

    monkeypatch.setitem(UPLOADS._classes, "noise", (Noise, None))
    chain = {"upload__each": ["clip", "noise"], "upload__max_norm": 0.01}
    plain, config = (tiny(federation__rounds=2, **LOCAL, **more) for more in ({}, chain))
    federation, _ = over(config)
    records = list(federation)
    assert same_bits(federation.state, here(config).state)
    assert not same_bits(federation.state, here(plain).state)
    assert all(record["rejected"] == [] for record in records)


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_a_tiny_reacher_learns_the_same_bits(over, algorithm):
    config = fedkl.preset("reacher-both", algorithm, 0, REACHER)
    federation, _ = over(config)
    list(federation)
    assert same_bits(federation.state, here(config).state)


def test_what_starts_from_another_run_learns_the_same_bits(tiny, over, tmp_path):
    plain = tiny("fedkl", federation__rounds=2, evaluation__every=100, evaluation__clients=1)
    before = lifecycle.create(tiny("fedavg", federation__rounds=1), tmp_path / "before")
    lifecycle.run_remaining(before, lambda record: None, pytest.fail)
    config = fedkl.start_from(plain, before.path)
    federation, _ = over(config)
    assert [record["rejected"] for record in federation] == [[], []]
    assert same_bits(federation.state, here(config).state)
    assert not same_bits(federation.state.model, here(plain).state.model)


@pytest.mark.parametrize("algorithm", ["fedkl", "scaffold"])
def test_what_stays_on_the_client_is_kept_there(tiny, over, algorithm):
    """Every process is made anew for every message, so all it knows is on its disk."""
    config = tiny(algorithm, federation__rounds=5, **LOCAL)
    federation, engine = over(config)
    engine.lost = {0, 1, 2, 3}
    list(federation)
    assert same_bits(federation.state, here(config).state)
    assert not [k for k in keys_that_leave(engine) if "critic" in k or "observations" in k]


def test_the_personal_part_of_a_policy_stays_at_home(tiny, over):
    config = tiny(federation__personal="action-bias", federation__rounds=4)
    federation, engine = over(config)
    list(federation)
    assert same_bits(federation.state, here(config).state)
    biases = {k for k in keys_that_leave(engine) if "biases" in k and "policy" in k}
    assert biases == {"update.model.policy.network.biases.0"}


def test_a_client_that_learns_alone_sends_its_weight_and_metrics_only(tiny, over):
    config = tiny(federation__personal="all", federation__rounds=4, **LOCAL)
    federation, engine = over(config)
    records = list(federation)
    assert same_bits(federation.state, here(config).state)
    assert all(record["rejected"] == [] for record in records)
    assert {k for k in keys_that_leave(engine) if k.startswith("update.")} == {"update.weight"}


def test_a_server_that_goes_back_to_an_older_checkpoint_finds_the_clients_there(tiny, over):
    config = tiny("scaffold", federation__rounds=6, **LOCAL)
    federation, engine = over(config)
    for _ in range(3):
        federation.run_round()
    saved = federation.save()
    rows = {client: dict(row) for client, row in saved.rows.items()}
    for _ in range(2):
        federation.run_round()
    resumed, second = over(config, engine.exchange.federation)
    resumed.restore(saved.arrays, rows)
    list(resumed)
    assert int(resumed.state.round) == 6
    assert same_bits(resumed.state, here(config).state)
    assert second.folder == engine.folder


def test_clients_forget_only_what_the_server_will_not_go_back_to(tiny, over):
    config = tiny("scaffold", federation__rounds=8, federation__clients_per_round=1, **LOCAL)
    federation, engine = over(config)
    for _ in range(7):
        federation.run_round()
        saved = federation.save()
        kept = (saved.arrays, {client: dict(row) for client, row in saved.rows.items()})
        federation.saved(int(federation.state.round))
    federation.run_round()
    for client in range(4):
        states = list((engine.folder / str(client)).rglob("*.safetensors"))
        assert len(states) <= 3
    resumed, _ = over(config, engine.exchange.federation)
    resumed.restore(*kept)
    resumed.run_round()
    assert same_bits(resumed.state, federation.state)


def test_the_best_round_can_be_evaluated_when_later_checkpoints_are_long_gone(tiny, over, tmp_path):
    config = tiny(
        "scaffold",
        federation__rounds=8,
        checkpoint__keep_best=True,
        **LOCAL | {"evaluation__every": 1},
    )
    federation, engine = over(config)
    run_round = federation.run_round
    federation.run_round = lambda: (r := run_round()) | {"return_mean": -abs(r["round"] - 3.0)}
    run = lifecycle.create(config, tmp_path / "run")
    lifecycle.run_remaining(run, lambda record: None, pytest.fail, federation)
    looked_at, _ = over(config, engine.exchange.federation)
    lifecycle.load(run, pytest.fail, looked_at, best=True)
    assert int(looked_at.state.round) == 3
    returns, failures = looked_at.evaluation(Evaluate(2, False))()
    assert failures == {}
    assert np.array_equal(returns, here(config, 3).evaluate(2, False))


def test_an_evaluation_says_why_a_client_gave_no_return(tiny, over):
    federation, engine = over(tiny("scaffold", **LOCAL))
    (client, *_) = federation.run_round()["selected"]
    for path in (engine.folder / str(client)).rglob("*.safetensors"):
        path.unlink()
    returns, failures = federation.evaluation(Evaluate(2, False))()
    assert failures == {client: "this client's state after round 1 is not on its disk"}
    assert np.isnan(returns[client]).all()


def test_a_state_whose_update_was_rejected_is_not_resumed_from(tiny, over, tmp_path):
    config = tiny("scaffold", federation__rounds=6, federation__retries=0, **LOCAL)
    culprit = next(iter(over(config)[0]))["selected"][0]

    def reject(client, round, answer):
        rejected = (client, round) in {(culprit, 0), (culprit, 3)}
        return Failure("a lie") if rejected else answer

    federation, engine = over(config, folder="again")
    engine.tamper = reject
    records = list(federation)
    assert {"client": culprit, "reason": "a lie"} in records[0]["rejected"]
    assert same_bits(federation.state, deceived(config, reject).state)


def test_a_client_that_is_asked_again_starts_from_its_own_state_once_more(tiny, over):
    config = tiny("scaffold", federation__rounds=4, federation__retries=1, **LOCAL)
    federation, engine = over(config)

    def once():
        asked = set()

        def tamper(client, round, answer):
            if not isinstance(answer, Trained):
                return answer
            first = (client, round) not in asked
            asked.add((client, round))
            return Failure("try again") if first and round % 2 else answer

        return tamper

    engine.tamper = once()
    list(federation)
    assert same_bits(federation.state, deceived(config, once()).state)
    requests = [read_request(request) for request, _ in engine.sent]
    assert len({request.turn for request in requests}) == len(requests)
    trained = [request for request in requests if isinstance(request.work, Train)]
    assert [sum(r.round == t for r in trained) for t in range(4)] == [2, 4, 2, 4]
    twice = {(r.client, r.round): r.since for r in trained if r.round == 3}
    assert all(sum((r.client, r.round) == k for r in trained) == 2 for k in twice)
    assert {r.since for r in trained if (r.client, r.round) in twice} == {*twice.values()}


def test_evaluation_and_measurement_are_what_they_are_in_this_process(tiny, over):
    config = tiny(heterogeneity__every=1, world__spread=0.3)
    (federation, engine), local = over(config), Federation(config)
    federation.run_round()
    local.run_round()
    for deterministic in (False, True):
        ours, theirs = (f.evaluate(5, deterministic) for f in (federation, local))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    ours, theirs = (f.measure().measurements for f in (federation, local))
    assert sorted(ours) == [0, 1, 2, 3]
    for client in ours:
        for a, b in zip(ours[client], theirs[client], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)
    measured = [
        read_reply(y).result for x, y in engine.sent if read_request(x).work.name == "measure"
    ]
    assert len(measured) == 8
    assert {name for result in measured for name in result} == {*Measurement._fields}


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_no_episode_and_no_observation_leaves_a_client(tiny, over, algorithm):
    config = tiny(algorithm, federation__rounds=1, evaluation__clients=1)
    federation, engine = over(config)
    federation.run_round()
    model = set(to_arrays(federation.state.model))
    each = {
        "kl_local", "distance_global", "guarded", "steps", "train_return", "outliers", "step_scale",
        *DIAGNOSTICS,
    }  # fmt: skip
    for name in keys_that_leave(engine):
        place, _, rest = name.partition(".")
        if place == "update" and rest.startswith("model."):
            assert rest.removeprefix("model.") in model
        elif place == "update":
            assert rest == "weight" or rest.startswith("message")
        elif place == "metrics":
            assert rest in each or rest.startswith("coefficients.")
        else:
            # The returns of an evaluation are one array without a name.
            assert name == ""
    # Only what an algorithm itself sends, and counts, may hold observations.
    assert config.algorithm.observations_sent == 0


def test_an_episode_cannot_be_looked_at_from_afar(tiny, over):
    federation, engine = over(tiny())
    with pytest.raises(fedkl.UserError, match="the client's data, and never leaves it"):
        federation.film(0, True)
    assert engine.sent == []
