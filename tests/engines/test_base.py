"""Clients' states behind an engine, and jobs in parts."""

import copy

import equinox as eqx
import jax
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import FedKL
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Task, first_states
from fedkl.engines.base import Engine, Failure, Job, Rows, parts_of
from fedkl.learning.settings import CriticSettings, Sharing
from fedkl.worlds import PointTarget

WORDS = np.zeros(2, np.uint32)


@pytest.fixture(scope="module")
def made():
    task = Task(
        PointTarget(), FedKL(), PolicyOptimisation(hidden=(2,)), CriticSettings(hidden=(2,))
    )
    return first_states(task, Sharing(), jax.random.key(0))


@pytest.fixture(scope="module")
def first(made):
    return made[1]


def with_c1(state, value):
    return eqx.tree_at(lambda s: s.coefficients["c1"], state, np.float32(value))


def c1(rows, client):
    return float(rows.own(client).coefficients["c1"])


@pytest.fixture
def rows(first):
    return Rows(with_c1(first, 0.5))


def test_every_client_has_the_first_state_until_it_has_one_of_its_own(rows, first):
    assert c1(rows, 99_999) == 0.5
    assert rows.save() == {}
    rows.propose(7, with_c1(first, 2.0), "answer")
    rows.keep(1, [7])
    assert (c1(rows, 7), c1(rows, 8)) == (2.0, 0.5)
    assert list(rows.save()) == [7]


def test_what_is_pending_becomes_a_clients_own_only_when_it_is_kept(rows, first):
    assert rows.propose(1, with_c1(first, 2.0), "answer") == "answer"
    assert c1(rows, 1) == 0.5
    assert rows.save() == {}
    rows.keep(1, [1])
    assert c1(rows, 1) == 2.0


def test_what_is_pending_and_not_kept_is_forgotten(rows, first):
    rows.propose(1, with_c1(first, 2.0), "answer")
    rows.propose(2, with_c1(first, 3.0), "answer")
    rows.keep(1, [1])
    assert c1(rows, 2) == 0.5
    with pytest.raises(KeyError):
        rows.keep(1, [2])


def test_the_last_of_two_proposals_counts(rows, first):
    rows.propose(1, with_c1(first, 2.0), "first attempt")
    rows.propose(1, with_c1(first, 3.0), "second attempt")
    rows.keep(1, [1])
    assert c1(rows, 1) == 3.0


def test_work_that_changes_nothing_leaves_nothing_pending(rows):
    assert rows.propose(1, None, "returns") == "returns"
    with pytest.raises(KeyError):
        rows.keep(1, [1])


def test_a_state_that_is_not_finite_is_a_failure_that_names_it(rows, first):
    rows.propose(1, with_c1(first, 2.0), "answer")
    rows.keep(1, [1])
    refused = rows.propose(1, with_c1(first, np.nan), "answer")
    assert refused == Failure("state.coefficients.c1 is not finite")
    rows.keep(1, [])
    assert c1(rows, 1) == 2.0


def test_a_state_of_another_shape_is_a_failure_that_names_it(rows, first):
    wider = eqx.tree_at(lambda s: s.step_scale, first, np.ones(3, np.float32))
    refused = rows.propose(1, wider, "answer")
    assert refused == Failure("state.step_scale is float32 of shape (3,), not float32 of shape ()")


def test_restoring_goes_back_to_what_was_saved_and_forgets_what_was_pending(rows, first):
    rows.propose(1, with_c1(first, 2.0), "answer")
    rows.keep(1, [1])
    saved = dict(rows.save())
    rows.propose(1, with_c1(first, 3.0), "answer")
    rows.keep(1, [1])
    rows.propose(2, with_c1(first, 4.0), "answer")
    rows.restore(saved)
    assert (c1(rows, 1), c1(rows, 2)) == (2.0, 0.5)
    with pytest.raises(KeyError):
        rows.keep(1, [2])
    rows.propose(1, with_c1(first, 5.0), "answer")
    rows.keep(1, [1])
    assert saved[1].coefficients["c1"] == 2.0


def test_jobs_that_start_from_the_same_model_go_together_up_to_the_width(made):
    everybody, region = made[0], copy.copy(made[0])
    jobs = [Job(c, WORDS, model=region if c in (1, 4) else None) for c in range(6)]
    parts = parts_of(jobs, everybody, 3)
    assert [(model is region, [job.client for job in part]) for model, part in parts] == [
        (False, [0, 2, 3]),
        (False, [5]),
        (True, [1, 4]),
    ]


class Without:
    """An engine around an engine, in which some clients drop out of every round."""

    def __init__(self, engine, gone):
        self._engine, self._gone = engine, gone

    def run(self, work, model, jobs, key):
        left = [job for job in jobs if job.client not in self._gone]
        yield from ((c, Failure("gone", again=False)) for c in self._gone)
        yield from self._engine.run(work, model, left, key)

    def __getattr__(self, name):
        return getattr(self._engine, name)


def test_an_engine_may_be_wrapped_in_one_that_clients_drop_out_of():
    """Who stays trains to the same bits, and who is gone is named and keeps no new state."""
    config = fedkl.preset("probe-point", set={"federation.clients_per_round": 4})
    wrapped = Without(fedkl.local_engine(config), gone=(1, 2))
    assert isinstance(wrapped, Engine)
    whole, rest = fedkl.Federation(config), fedkl.Federation(config, engine=wrapped)
    everybody, some = whole.run_round(), rest.run_round()
    assert {r["client"]: r["reason"] for r in some["rejected"]} == {1: "gone", 2: "gone"}
    assert some["clients"] == [r for r in everybody["clients"] if r["client"] in (0, 3)]
    kept, there = rest.engine.save(), whole.engine.save()
    assert list(kept) == [0, 3]
    jax.tree.map(np.testing.assert_array_equal, kept, {c: there[c] for c in (0, 3)})
