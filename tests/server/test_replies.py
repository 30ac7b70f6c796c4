"""Whose answers count: the first so many valid ones."""

import equinox as eqx
import jax
import numpy as np
import pytest

import fedkl
from fedkl.core.errors import UserError
from fedkl.engines import Failure
from fedkl.server.loop import Federation

pytestmark = pytest.mark.usefixtures("quick_compilation")


def spoilt(answer):
    broken = jax.tree.map(lambda x: x * np.nan, answer.update.model.policy)
    return eqx.tree_at(lambda a: a.update.model.policy, answer, broken)


def trained(record):
    return [row["client"] for row in record["clients"]]


@pytest.fixture
def four(tiny):
    """Four clients, of which two are wanted and one more is asked."""
    return tiny(**{"federation.clients": 4, "federation.extra": 1, "federation.retries": 0})


def test_with_extra_clients_the_first_valid_updates_count_and_nobody_else_is_blamed(four, between):
    federation, engine = between(four)
    record = federation.run_round()
    assert len(record["selected"]) == 3
    assert trained(record) == record["selected"][:2]
    assert record["rejected"] == []
    assert engine.kept == [(1, record["selected"][:2])]
    # The third has trained for nothing, and is as it was.
    assert sorted(federation.engine.save()) == record["selected"][:2]


def test_an_extra_client_steps_in_for_one_whose_update_is_invalid(four, between):
    first = Federation(four).run_round()["selected"][0]
    federation, _ = between(four, lambda c, _, answer: spoilt(answer) if c == first else answer)
    record = federation.run_round()
    assert trained(record) == record["selected"][1:]
    assert [entry["client"] for entry in record["rejected"]] == [first]


def test_the_result_is_that_of_a_round_in_which_the_bad_client_was_never_asked(four, between):
    first = Federation(four).run_round()["selected"][0]
    results = []
    for wrong in (spoilt, lambda answer: Failure("out of order")):
        federation, _ = between(four, lambda c, _, a, w=wrong: w(a) if c == first else a)
        federation.run_round()
        results.append(federation.state.model)
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, *results)))


def test_a_client_that_nobody_can_reach_is_not_asked_again_in_the_same_round(tiny, between):
    gone = lambda client, attempt, answer: Failure("it is not connected", again=False)  # noqa: E731
    federation, engine = between(tiny(**{"federation.retries": 3}), gone)
    record = federation.run_round()
    assert len(engine.asked) == 1
    assert {entry["reason"] for entry in record["rejected"]} == {"it is not connected"}
    assert "retried" not in record


def test_what_was_lost_on_the_way_is_asked_again_and_changes_nothing(tiny, between):
    def once(client, attempt, answer):
        return Failure("its connection was lost", lost=True) if attempt == 1 else answer

    federation, engine = between(tiny(), once)
    record = federation.run_round()
    assert record["rejected"] == []
    lost = [{"client": c, "reason": "its connection was lost"} for c in record["selected"]]
    assert record["retried"] == lost
    assert len(engine.asked) == 2
    honest = Federation(tiny())
    honest.run_round()
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, federation.state, honest.state)))


def test_who_has_failed_is_asked_again_with_a_fresh_key(tiny, between):
    def once(client, attempt, answer):
        return Failure("it raised") if attempt == 1 else answer

    federation, engine = between(tiny(), once)
    record = federation.run_round()
    assert {entry["reason"] for entry in record["retried"]} == {"it raised"}
    first, second = ({job.client: job.key.tolist() for job in jobs} for jobs in engine.asked)
    assert first.keys() == second.keys()
    assert all(first[client] != second[client] for client in first)


def test_a_job_says_how_many_rounds_are_over(tiny, between):
    federation, engine = between(tiny())
    federation.run_round()
    federation.run_round()
    assert [{job.round for job in jobs} for jobs in engine.asked] == [{0}, {1}]


def test_more_clients_than_there_are_cannot_be_selected():
    with pytest.raises(UserError, match=r"federation.extra must be at most 7 .*, not 8"):
        fedkl.preset("cartpole", set={"federation.extra": 8})


def test_the_seed_of_worlds_is_that_of_the_simulation_clients_share(tiny, between, monkeypatch):
    """The key of a call that trains is the shared simulation's, the jobs' keys are the clients'."""
    shared, own = [], []
    for seed, world_seed in ((1, 5), (2, 5), (2, -1)):
        federation, engine = between(tiny(seed=seed, world_seed=world_seed))
        run = engine.run

        def spy(work, model, jobs, key, run=run):
            if work.name == "train":
                shared.append(tuple(key))
                own.append(tuple(map(tuple, (job.key for job in jobs))))
            return run(work, model, jobs, key)

        monkeypatch.setattr(engine, "run", spy)
        federation.run_round()
    assert shared[0] == shared[1] != shared[2]
    assert own[0] != own[1] == own[2]


def test_first_statistics_that_the_other_client_knows_nothing_of_wait(tiny, between):
    """One of two claims data a thousand times as far: its policy counts, its statistics do not."""
    config = tiny()
    liar, honest = Federation(config).run_round()["selected"]

    def stretched(answer):
        rewards = answer.update.model.rewards
        wide = eqx.tree_at(lambda m: m.squares, rewards, rewards.squares * np.float32(1e6))
        return eqx.tree_at(lambda a: a.update.model.rewards, answer, wide)

    federation, _ = between(config, lambda c, _, answer: stretched(answer) if c == liar else answer)
    record = federation.run_round()
    assert trained(record) == [liar, honest]
    assert record["rejected"] == []
    (held,) = record["held_back"]
    assert held["client"] == liar
    assert held["reason"].startswith("rewards deviate")
    counted = [row["steps"] for row in record["clients"] if row["client"] == honest]
    assert [float(federation.state.model.rewards.count)] == counted
