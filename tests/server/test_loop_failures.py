"""The loop when clients go wrong: who is run again, who is left out, and when it gives up."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkl
from fedkl.clients.records import Trained
from fedkl.clients.work import Train
from fedkl.engines import Failure
from fedkl.server.aggregation import Mean
from fedkl.server.loop import Federation
from fedkl.server.selection import Selector


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


def test_a_round_in_which_all_clients_fail_leaves_the_model_and_the_run_continues(tiny, between):
    federation, engine = between(tiny(), nobody)
    before = federation.state.model
    record = federation.run_round()
    assert same_bits(federation.state.model, before)
    assert record["kl_local"] is None
    assert record["coefficients"] == {}
    assert len(record["rejected"]) == 2
    assert record["note"] == "0 accepted updates, fewer than the quorum of 1"
    assert engine.kept == [(1, [])]
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
    assert federation.save().changed == set()
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
    assert engine.kept == [(1, []), (2, []), (3, [])]
    assert str(caught.value) == (
        "training has stalled: no update of the last 3 rounds reached the model (see "
        "federation.max_empty_rounds); in the last round: 0 accepted updates, fewer than the "
        "quorum of 1; client 1: out of order"
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
        init, start = aggregation.init, aggregation.start

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
        init, start = aggregation.init, aggregation.start

        def __call__(self, *args):
            made = aggregation(*args)
            return made._replace(
                model=eqx.tree_at(lambda m: m.rewards.squares, made.model, np.float64(1e39))
            )

    monkeypatch.setattr(federation, "_aggregation", TooLarge())
    assert "rewards.squares would not be finite" in federation.run_round()["note"]


def test_clients_that_cannot_be_evaluated_are_left_out_of_the_returns(tiny):
    federation = Federation(tiny(federation__rounds=1))
    run = federation.engine.run

    def some(work, model, jobs, key):
        for client, answer in run(work, model, jobs, key):
            if isinstance(work, Train) or client in (0, 3):
                yield client, answer
            elif client == 1:
                yield client, Failure("out of range")

    federation.engine.run = some
    record = federation.run_round()
    assert record["evaluated"] == [0, 3]
    assert len(record["return_per_client"]) == 2
    assert record["return_mean"] == pytest.approx(np.mean(record["return_per_client"]))
    assert np.isnan(federation.evaluate(2, deterministic=True)).all(axis=1).tolist() == [
        False,
        True,
        True,
        False,
    ]


def test_a_round_that_nobody_can_evaluate_has_no_returns(tiny):
    federation = Federation(tiny(federation__rounds=1))
    run = federation.engine.run
    federation.engine.run = lambda work, *rest: (
        run(work, *rest) if isinstance(work, Train) else iter(())
    )
    record = federation.run_round()
    assert record["return_mean"] is None
    with pytest.raises(fedkl.UserError, match="client 2 gave no episode to look at"):
        federation.film(2, deterministic=True)


def test_a_client_that_never_answers_is_left_out_and_named(tiny, between):
    config = tiny(federation__rounds=1)
    silent = Federation(config).run_round()["selected"][0]
    federation, engine = between(config)
    run = engine.run
    engine.run = lambda work, *rest: (
        (client, answer)
        for client, answer in run(work, *rest)
        if client != silent or not isinstance(work, Train)
    )
    record = federation.run_round()
    assert record["rejected"] == [{"client": silent, "reason": "it did not answer"}]
    # Asked twice, heard never.
    alone = record["bytes_up"]
    assert record["bytes_down"] > 2 * alone


class Doubled(Selector[tuple[()]]):
    name: ClassVar[str] = "doubled"
    summary: ClassVar[str] = "the same client twice"

    def __call__(self, state, round, pool):
        return [1, 1]


class Outside(Doubled):
    def __call__(self, state, round, pool):
        return [0, 77]


class Growing(Doubled):
    def init(self, clients):
        return np.zeros(1)

    def __call__(self, state, round, pool):
        return [0, 1]

    def observe(self, state, round, selected, reports):
        return np.append(state, 1.0)


@pytest.mark.parametrize(
    ("selector", "sentence"),
    [
        (Doubled(), "selection.name = doubled must select different clients from 0 to 3"),
        (Outside(), "selection.name = doubled must select different clients from 0 to 3"),
        (Growing(), "selection.name = doubled must keep its state as it was made"),
    ],
)
def test_a_selector_that_cannot_be_right_is_refused_and_nothing_moves(tiny, selector, sentence):
    federation = Federation(replace(tiny(), selection=selector))
    before = federation.state
    with pytest.raises(fedkl.UserError) as caught:
        federation.run_round()
    assert str(caught.value).startswith(sentence)
    assert federation.state is before
    assert states(federation) == {}


class Telling(fedkl.Algorithm):
    """Shares an integer and a float, and gathers them in NumPy's own precision."""

    name: ClassVar[str] = "telling"
    summary: ClassVar[str] = "shares two numbers"
    grows: bool = False

    def server_state(self, policy):
        return {"count": jnp.zeros((), jnp.int32), "sum": jnp.zeros(2)}

    def finish(self, ended):
        return (), ended.server_state

    def gather(self, shared, messages, clients):
        size = 3 if self.grows and shared["count"] > 0 else 2
        return {"count": shared["count"] + len(messages), "sum": np.ones(size, np.float64)}


def test_what_an_algorithm_shares_keeps_its_types_over_rounds(tiny):
    federation = Federation(replace(tiny(), algorithm=Telling()))
    records = list(federation)
    assert all(record["rejected"] == [] for record in records)
    shared = federation.state.model.shared
    assert (shared["count"], shared["count"].dtype, shared["sum"].dtype) == (6, "int32", "float32")
    Federation(federation.config).restore(*federation.save()[:2])


def test_an_algorithm_that_gathers_another_shape_later_on_is_refused_in_that_round(tiny):
    federation = Federation(replace(tiny(), algorithm=Telling(grows=True)))
    federation.run_round()
    with pytest.raises(fedkl.UserError, match="what telling gathers does not fit what it shares"):
        federation.run_round()


class Poisonous(fedkl.Reducer):
    name: ClassVar[str] = "poisonous"
    summary: ClassVar[str] = "gives no numbers"

    def __call__(self, points, weights):
        return points[0] * np.nan


def test_a_region_whose_aggregate_is_not_finite_is_not_taken_either(tiny):
    config = tiny(aggregation__reduce="grouped", aggregation__region_rounds=4)
    links = replace(config.aggregation, levels=(Poisonous(), Mean()))
    federation = Federation(replace(config, aggregation=links))
    before = federation.state
    record = federation.run_round()
    assert "would not be finite" in record["note"]
    assert same_bits(federation.state.aggregation, before.aggregation)


def test_clients_of_a_region_start_from_one_object(tiny, between):
    config = tiny(
        aggregation__reduce="grouped",
        aggregation__regions=1,
        aggregation__region_rounds=3,
        federation__clients_per_round=4,
    )
    federation, engine = between(config)
    federation.run_round()
    federation.run_round()
    first, second = engine.asked
    assert {job.model for job in first} == {None}
    assert len({id(job.model) for job in second}) == 1
    assert {x.dtype for x in jax.tree.leaves(second[0].model)} == {np.dtype(np.float32)}


def test_a_run_whose_clients_keep_their_states_is_resumed_only_where_they_are(tiny, between):
    """An engine that gives the server no states, as one over a network would."""
    config = tiny(federation__clients_per_round=4)
    federation, engine = between(config)
    engine.save, engine.restore = dict, lambda saved: None
    federation.run_round()
    arrays, rows, changed = federation.save()
    assert changed == {0, 1, 2, 3}
    assert {name for row in rows.values() for name in row} == {"since"}
    elsewhere = Federation(config)
    elsewhere.restore(arrays, rows)
    with pytest.raises(fedkl.UserError, match="keep their states themselves"):
        elsewhere.run_round()
    federation.restore(arrays, rows)
    federation.run_round()
    assert {job.since for job in engine.asked[-1]} == {1}
