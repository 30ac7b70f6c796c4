"""The loop when clients go wrong: who is run again, who is left out, and when it gives up."""

import equinox as eqx
import jax
import numpy as np
import pytest

import fedkl
from fedkl.clients.round import Trained
from fedkl.engines import Failure
from fedkl.server.loop import Federation


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def states(federation):
    """Clients' own states."""
    return dict(federation.engine.save())


def spoilt(answer: Trained):
    """The answer with a policy that is not a number."""
    broken = jax.tree.map(lambda x: x * np.nan, answer.update.model.policy)
    return eqx.tree_at(lambda a: a.update.model.policy, answer, broken)


def nobody(client, attempt, answer):
    return Failure("out of order")


def test_a_client_that_fails_once_is_run_again_with_a_fresh_key(tiny, between):
    bad = Federation(tiny()).run_round()["selected"][0]
    federation, engine = between(
        tiny(),
        lambda client, attempt, answer: spoilt(answer) if (client, attempt) == (bad, 1) else answer,
    )
    record = federation.run_round()
    assert [job.client for job in engine.asked[1]] == [bad]
    first, again = ([j.key for j in jobs if j.client == bad] for jobs in engine.asked)
    assert not np.array_equal(first, again)
    assert record["rejected"] == []
    assert [c["client"] for c in record["clients"]] == record["selected"]
    assert record["bytes_down"] == 3 * (Federation(tiny()).run_round()["bytes_down"] // 2)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (spoilt, "is not finite"),
        (lambda answer: Failure("the battery is empty"), "the battery is empty"),
        (lambda answer: answer._replace(update="garbage"), "of another type"),
        (lambda answer: b"garbage", "of another type"),
    ],
)
def test_a_client_that_fails_again_is_left_out_and_named(tiny, between, wrong, reason):
    bad, other = Federation(tiny()).run_round()["selected"]
    federation, engine = between(
        tiny(), lambda client, attempt, answer: wrong(answer) if client == bad else answer
    )
    record = federation.run_round()
    assert len(engine.asked) == 2
    assert [r["client"] for r in record["rejected"]] == [bad]
    assert reason in record["rejected"][0]["reason"]
    assert record["note"] is None
    assert list(states(federation)) == [other]
    assert engine.kept == [(1, [other])]
    assert np.isfinite(record["return_mean"])


def test_without_retries_nobody_is_asked_twice(tiny, between):
    federation, engine = between(tiny(federation__retries=0), nobody)
    federation.run_round()
    assert len(engine.asked) == 1


def test_a_round_in_which_everybody_fails_leaves_the_model_and_the_run_goes_on(tiny, between):
    federation, engine = between(tiny(), nobody)
    before = federation.state.model
    record = federation.run_round()
    assert same_bits(federation.state.model, before)
    assert record["kl_local"] is None
    assert record["coefficients"] == {}
    assert len(record["rejected"]) == 2
    assert record["note"] == "0 accepted updates, fewer than the quorum of 1"
    assert engine.kept == [(0, [])]
    assert federation.run_round()["round"] == 2


def test_fewer_than_the_quorum_leave_everything_as_it_was(tiny, between):
    config = tiny(federation__quorum=2, selection__name="round-robin", federation__rounds=4)
    bad = Federation(config).run_round()["selected"][0]
    federation, _ = between(
        config, lambda client, attempt, answer: Failure("no") if client == bad else answer
    )
    before = federation.state
    record = federation.run_round()
    assert record["note"] == "1 accepted updates, fewer than the quorum of 2"
    assert [row["client"] for row in record["clients"]] == record["selected"][1:]
    assert record["env_steps"] == 0
    assert same_bits(federation.state.model, before.model)
    assert states(federation) == {}
    assert federation.changed == set()
    # The round counts, and so do the turns of those who were asked.
    assert (record["round"], federation.state.round, federation.state.empty_rounds) == (1, 1, 1)
    assert federation.state.selector.sum() == 2
    # The next two are both well.
    record = federation.run_round()
    assert record["note"] is None
    assert federation.state.empty_rounds == 0
    assert sorted(states(federation)) == record["selected"]


def test_a_run_that_goes_nowhere_is_given_up(tiny, between):
    config = tiny(federation__max_empty_rounds=3, federation__rounds=10)
    federation, engine = between(config, nobody)
    with pytest.raises(fedkl.StalledError) as caught:
        list(federation)
    assert engine.kept == [(0, []), (1, []), (2, [])]
    assert str(caught.value) == (
        "training has stalled: no update of the last 3 rounds reached the model "
        "(see federation.max_empty_rounds)"
    )


def test_a_run_without_a_single_accepted_update_has_stalled_however_short_it_is(tiny, between):
    federation, _ = between(tiny(federation__max_empty_rounds=100, federation__rounds=2), nobody)
    with pytest.raises(fedkl.StalledError, match="the last 2 rounds"):
        list(federation)
    assert federation.stalled


def test_an_accepted_round_forgives_the_empty_ones_before_it(tiny, between):
    config = tiny(federation__max_empty_rounds=2, federation__rounds=6, federation__retries=0)
    calls = []

    def every_other(client, attempt, answer):
        calls.append(client)
        return answer if (len(calls) - 1) // 2 % 2 else Failure("asleep")

    federation, _ = between(config, every_other)
    assert [r["note"] is None for r in federation] == [False, True] * 3


def test_an_aggregate_that_is_not_finite_is_not_taken(tiny, monkeypatch):
    federation = Federation(tiny(federation__rounds=2))
    before = federation.state
    aggregation = federation._aggregation

    class Overflowing:
        start = aggregation.start

        def __call__(self, *args):
            made = aggregation(*args)
            huge = jax.tree.map(lambda x: np.full_like(x, np.inf), made.model.critic)
            return made._replace(model=eqx.tree_at(lambda m: m.critic, made.model, huge))

    monkeypatch.setattr(federation, "_aggregation", Overflowing())
    record = federation.run_round()
    assert record["note"].startswith("the aggregate was not taken: critic.")
    assert record["note"].endswith("would not be finite")
    assert same_bits(federation.state.model, before.model)
    assert states(federation) == {}
    assert record["env_steps"] == 0
    assert federation.state.empty_rounds == 1


def test_statistics_that_clients_cannot_take_in_float32_are_not_taken(tiny, monkeypatch):
    federation = Federation(tiny())
    aggregation = federation._aggregation

    class TooLarge:
        start = aggregation.start

        def __call__(self, *args):
            made = aggregation(*args)
            return made._replace(
                model=eqx.tree_at(lambda m: m.rewards.squares, made.model, np.float64(1e39))
            )

    monkeypatch.setattr(federation, "_aggregation", TooLarge())
    assert "rewards.squares would not be finite" in federation.run_round()["note"]


def test_an_evaluation_that_fails_is_a_defect(tiny):
    federation = Federation(tiny())
    federation.engine.run = lambda *_: iter([(client, Failure("broken")) for client in range(4)])
    with pytest.raises(RuntimeError, match="client 0: broken"):
        federation.evaluate(1, deterministic=True)
