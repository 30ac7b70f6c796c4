"""Clients that are refused: what becomes of them, of the others, and of a run that is resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import fedkl
from fedkl.clients.records import Model, Trained
from fedkl.io.arrays import to_arrays
from fedkl.server.loop import Federation
from fedkl.training.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_compilation")

LIAR = 1


class StopsAfterARound(fedkl.Callback):
    def on_round(self, record: Any) -> None:
        if record["round"] == 1:
            raise KeyboardInterrupt


def everybody(tiny: Callable[..., fedkl.Config], **settings: Any) -> fedkl.Config:
    """All of four clients take part in every round."""
    usual = {
        "federation__clients_per_round": 4,
        "federation__retries": 0,
        "federation__rounds": 20,
        "evaluation__every": 20,
    }
    return tiny(**usual | settings)


def spoilt(answer: Trained) -> Trained:
    broken = jax.tree.map(lambda x: x * np.nan, answer.update.model.policy)
    return eqx.tree_at(lambda a: a.update.model.policy, answer, broken)


def lies(client: int, attempt: int, answer: Any) -> Any:
    return spoilt(answer) if client == LIAR else answer


def fails(client: int, attempt: int, answer: Any) -> Any:
    return fedkl.engines.Failure("out of order") if client == LIAR else answer


def out(record: Any) -> dict[int, str]:
    return {entry["client"]: entry["reason"] for entry in record["rejected"]}


# A lie in the first round, when the server has seen nothing yet.


def moved(start: Model, answer: Trained, norms: float) -> Trained:
    """An answer whose policy has moved by so many norms, the same way in every parameter."""
    before = jax.tree.leaves(start.policy)
    size = max(1.0, float(np.sqrt(sum(np.sum(np.square(x)) for x in before))))
    each = norms * size / np.sqrt(sum(x.size for x in before))
    far = jax.tree.map(lambda x: np.asarray(x + each, np.float32), start.policy)
    return eqx.tree_at(lambda a: a.update.model.policy, answer, far)


def test_a_move_of_almost_ten_norms_in_the_first_round_is_refused_and_the_honest_stay(
    tiny, between
):
    config = everybody(tiny)
    start = Federation(config).state.model
    federation, _ = between(
        config, lambda client, n, answer: moved(start, answer, 9.9) if client == LIAR else answer
    )
    assert out(federation.run_round())[LIAR].startswith("the move of policy is ")
    for _ in range(3):
        assert out(federation.run_round()).keys() == {LIAR}


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (lambda u: u.model.rewards.squares, 128 * 9e5**2, "rewards deviate "),
        (lambda u: u.model.rewards.mean, -9e5, "rewards.mean is "),
    ],
)
def test_statistics_of_a_liar_in_the_first_round_are_refused(tiny, between, place, value, reason):
    def tamper(client: int, attempt: int, answer: Trained) -> Trained:
        if client != LIAR:
            return answer
        return eqx.tree_at(lambda a: place(a.update), answer, np.asarray(value, np.float32))

    federation, _ = between(everybody(tiny), tamper)
    found = out(federation.run_round())
    assert found.keys() == {LIAR}
    assert found[LIAR].startswith(reason)


def test_a_server_that_believes_whatever_is_finite_believes_it(tiny, between):
    off = {
        "federation__max_relative_norm": 1e30,
        "federation__max_statistics_factor": np.inf,
        "federation__max_move_factor": np.inf,
    }
    config = everybody(tiny, **off)
    start = Federation(config).state.model
    federation, _ = between(
        config, lambda client, n, answer: moved(start, answer, 9.9) if client == LIAR else answer
    )
    assert out(federation.run_round()) == {}


# Refused again and again.


def test_who_was_refused_three_times_in_a_row_is_not_asked_for_ten_rounds_and_named(tiny, between):
    federation, engine = between(everybody(tiny), lies)
    records = [federation.run_round() for _ in range(15)]
    asked = [LIAR in [job.client for job in jobs] for jobs in engine.asked]
    # Rounds 1 to 3, and once more after 10 rounds, when it is refused for the fourth time.
    assert [n for n, was in enumerate(asked, start=1) if was] == [1, 2, 3, 14]
    assert [out(r).keys() == {LIAR} for r in records] == [True] * 15
    assert out(records[3])[LIAR] == (
        "its answers were refused in 3 rounds in a row: it is not asked up to round 13"
    )
    assert out(records[14])[LIAR].endswith("in 4 rounds in a row: it is not asked up to round 24")
    assert all(LIAR in record["selected"] for record in records)


def test_a_client_that_is_believed_once_starts_anew(tiny, between):
    def sometimes(client: int, attempt: int, answer: Any) -> Any:
        return spoilt(answer) if client == LIAR and attempt % 3 else answer

    federation, engine = between(everybody(tiny), sometimes)
    for _ in range(9):
        federation.run_round()
    assert all(LIAR in [job.client for job in jobs] for jobs in engine.asked)


def test_who_does_not_answer_is_not_a_liar(tiny, between):
    federation, engine = between(everybody(tiny), fails)
    for _ in range(5):
        federation.run_round()
    assert all(LIAR in [job.client for job in jobs] for jobs in engine.asked)


def test_everybody_is_asked_if_too_few_were_left(tiny, between):
    federation, engine = between(everybody(tiny, federation__quorum=4), lies)
    for _ in range(5):
        federation.run_round()
    assert all(len(jobs) == 4 for jobs in engine.asked)


def test_with_suspend_after_0_everybody_is_always_asked(tiny, between):
    federation, engine = between(everybody(tiny, federation__suspend_after=0), lies)
    for _ in range(5):
        federation.run_round()
    assert all(len(jobs) == 4 for jobs in engine.asked)


# A liar that is found is one that the reducer need not look for.


def five(tiny: Callable[..., fedkl.Config], byzantine: int) -> fedkl.Config:
    return everybody(
        tiny,
        federation__clients=5,
        federation__clients_per_round=5,
        aggregation__reduce="multi-krum",
        aggregation__byzantine=byzantine,
    )


def test_multi_krum_averages_all_the_others_while_its_liar_is_refused_or_suspended(tiny, between):
    found, _ = between(five(tiny, byzantine=1), lies)
    absent, _ = between(five(tiny, byzantine=0), fails)
    for _ in range(4):  # in the fourth round it is not asked
        assert out(found.run_round()).keys() == {LIAR}
        absent.run_round()
    a, b = to_arrays(found.state.model), to_arrays(absent.state.model)
    assert all(np.array_equal(a[name], b[name]) for name in a)


def test_multi_krum_still_leaves_one_out_where_a_client_was_only_lost(tiny, between):
    lost, _ = between(five(tiny, byzantine=1), fails)
    absent, _ = between(five(tiny, byzantine=0), fails)
    lost.run_round()
    absent.run_round()
    a, b = to_arrays(lost.state.model.policy), to_arrays(absent.state.model.policy)
    assert not all(np.array_equal(a[name], b[name]) for name in a)


# All refused for one reason.


def test_if_all_are_refused_for_one_reason_the_server_says_so_and_keeps_its_statistics(
    tiny, between
):
    config = everybody(tiny, federation__max_relative_norm=1e-9)
    federation, engine = between(config)
    before = to_arrays(federation.state.model)
    for _ in range(4):
        record = federation.run_round()
        assert len(out(record)) == 4
        assert record["note"].startswith(
            "all 4 answers were refused for one reason, and model and statistics stay as they were "
            "(policy moved by "
        )
    after = to_arrays(federation.state.model)
    assert all(np.array_equal(after[name], before[name]) for name in before)
    # Nobody is to blame, and all are asked again.
    assert all(len(jobs) == 4 for jobs in engine.asked)


def test_different_reasons_are_no_common_one(tiny, between):
    def some(client: int, attempt: int, answer: Any) -> Any:
        return spoilt(answer) if client % 2 else None

    federation, _ = between(everybody(tiny), some)
    assert federation.run_round()["note"] == "0 accepted updates, fewer than the quorum of 1"


# Checkpoints.


def test_a_run_that_is_resumed_knows_whom_it_does_not_ask_and_what_was_usual(tiny, between):
    config = everybody(tiny)
    whole, _ = between(config, lies)
    records = [whole.run_round() for _ in range(6)]
    for stop in 2, 4:
        first, _ = between(config, lies)
        for _ in range(stop):
            first.run_round()
        arrays, rows, changed = first.save()
        assert arrays["refusals"][:, 0].tolist() == [LIAR]
        assert LIAR not in changed
        saved = {client: dict(row) for client, row in rows.items()}
        second, _ = between(config, lies)
        second.restore(arrays, saved)
        again = [second.run_round() for _ in range(stop, 6)]
        assert [out(r) for r in again] == [out(r) for r in records[stop:]]
        ours, theirs = to_arrays(second.state), to_arrays(whole.state)
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


def test_a_run_with_a_client_that_was_never_believed_is_saved_and_resumed(tiny, tmp_path):
    """Through files: rows of a checkpoint must be alike, also beside a client that has none."""
    config = tiny(
        federation__clients_per_round=4,
        federation__retries=0,
        federation__rounds=4,
        federation__max_move_factor=1.001,
    )
    fedkl.train(config, tmp_path / "whole")
    log = RunDirectory(tmp_path / "whole").metrics.read()
    assert log[0]["clients"]
    assert out(log[0])
    with pytest.raises(KeyboardInterrupt):
        fedkl.train(config, tmp_path / "parts", callbacks=[StopsAfterARound()])
    fedkl.resume(tmp_path / "parts")
    again = RunDirectory(tmp_path / "parts").metrics.read()
    assert [out(record) for record in again] == [out(record) for record in log]


def test_a_checkpoint_of_before_rounds_were_remembered_is_read_as_if_none_had_been(tiny):
    config = everybody(tiny)
    federation = Federation(config)
    federation.run_round()
    arrays, rows, _ = federation.save()
    older = {name: x for name, x in arrays.items() if not name.startswith("usual.")}
    assert len(older) < len(arrays)
    again = Federation(config)
    again.restore(older, rows)
    assert not again.state.usual.answers.any()
    assert out(again.run_round()) == {}
    with pytest.raises(ValueError, match=r"usual.answers is missing"):
        again.restore({n: x for n, x in arrays.items() if n != "usual.answers"}, rows)
