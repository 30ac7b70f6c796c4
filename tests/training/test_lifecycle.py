"""Runs survive: killed at any moment, they end as if nothing had happened."""

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import fedkl
from fedkl import cli
from fedkl.algorithms import ALGORITHMS
from fedkl.clients.records import Trained
from fedkl.engines import Failure
from fedkl.server.loop import Federation
from fedkl.training import lifecycle, plugin_consent
from fedkl.training.directory import RunDirectory

OURS = sorted(name for name in ALGORITHMS if ALGORITHMS[name].__module__.startswith("fedkl."))


def silent(_):
    """Watches and warns of nothing."""


def loud(message):
    raise AssertionError(message)


def comparable(run):
    """Every metric but the time it took."""
    measured = ("seconds", "time")
    return [{k: v for k, v in r.items() if k not in measured} for r in run.metrics.read()]


def assert_same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert np.array_equal(a[name], b[name]), name


def assert_same_run(a, b):
    """The same metrics, the same server, and the same clients."""
    assert comparable(a) == comparable(b)
    ours, theirs = a.checkpoints.latest(loud), b.checkpoints.latest(loud)
    assert ours.round == theirs.round
    assert_same_arrays(ours.arrays, theirs.arrays)
    assert ours.rows.keys() == theirs.rows.keys() != set()
    for client in ours.rows:
        assert_same_arrays(ours.rows[client], theirs.rows[client])


def unbroken(config, path):
    run = lifecycle.create(config, path)
    lifecycle.run_remaining(run, silent, loud)
    return run


class UnpluggedError(Exception):
    pass


def stop_after(rounds):
    def watch(record):
        if record["round"] == rounds:
            raise UnpluggedError

    return watch


@pytest.mark.parametrize("algorithm", OURS)
@pytest.mark.parametrize("kept", ["federated", "local"])
def test_a_resumed_run_equals_an_unbroken_one(tiny, tmp_path, algorithm, kept):
    # Anchors are drawn from statistics that the server has.
    seen = "federated" if algorithm == "fedkl-anchored" else kept
    config = tiny(
        algorithm,
        federation__critic=kept,
        federation__observation_statistics=seen,
        federation__reward_statistics=kept,
        federation__rounds=4,
    )
    unplugged_run_ends_the_same(config, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"aggregation__step": "sgd", "aggregation__server_momentum": 0.9},
        {"aggregation__step": "adam"},
        {"aggregation__step": "yogi"},
        {"aggregation__reduce": "grouped", "aggregation__region_rounds": 2},
        {
            "aggregation__reduce": "grouped",
            "aggregation__region_rounds": 3,
            "aggregation__step": "adam",
        },
        {"aggregation__reduce": "median", "aggregation__each": ["clip"]},
        {"selection__name": "round-robin", "federation__clients": 5},
        {"selection__name": "weighted", "selection__weights": [1, 2, 3, 4]},
        {"learner__c2_across_rounds": "averaged"},
        {"evaluation__clients": 2},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_what_the_links_of_the_server_remember_survives(tiny, tmp_path, settings):
    unplugged_run_ends_the_same(tiny(federation__rounds=4, **settings), tmp_path)


def unplugged_run_ends_the_same(config, tmp_path):
    """Stopped after the first and the third of four rounds, a run ends as if it were not."""
    whole = unbroken(config, tmp_path / "whole")
    broken = lifecycle.create(config, tmp_path / "broken")
    for rounds in (1, 3):
        with pytest.raises(UnpluggedError):
            lifecycle.run_remaining(broken, stop_after(rounds), loud)
    lifecycle.run_remaining(broken, silent, loud)
    assert_same_run(whole, broken)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("fedkl", {"federation__personal": "action-bias", "algorithm__c1_adapted": "round"}),
        ("scaffold", {"federation__personal": "last-layer"}),
        ("fedkl-anchored", {"world__name": "probe-chain", "learner__iterations": 1}),
        ("fedkl-anchored", {"algorithm__anchors": "shared", "federation__personal": "last-layer"}),
    ],
    ids=["action-bias", "last-layer", "anchors of five features", "shared anchors"],
)
def test_personal_parts_and_anchors_survive(tiny, tmp_path, algorithm, settings):
    small = {"federation__rounds": 4, "learner__hidden": [3], "critic__hidden": [2]}
    unplugged_run_ends_the_same(tiny(algorithm, **small | settings), tmp_path)


@pytest.mark.parametrize("algorithm", OURS)
def test_a_run_stopped_after_a_round_is_resumed_to_the_same_bits(tiny, tmp_path, algorithm):
    config = tiny(algorithm, federation__rounds=5, checkpoint__every=100, evaluation__every=2)
    whole = unbroken(config, tmp_path / "whole")
    rungs = lifecycle.create(config, tmp_path / "rungs")
    said = []
    for until in (1, 3, 3, 2):
        stopped = lifecycle.run_remaining(rungs, silent, said.append, until=until)
        assert stopped.state.round == max(until, rungs.checkpoints.rounds()[-1])
        assert rungs.summary() is None
    assert said == [f"{rungs.path} is at round 3 already, which is beyond round 2"]
    assert rungs.checkpoints.rounds()[-1] == 3
    lifecycle.run_remaining(rungs, silent, loud, until=5)
    assert rungs.summary()["rounds"] == 5
    assert_same_run(whole, rungs)


def test_a_run_that_stalls_where_it_should_stop_ends_there(tiny, tmp_path):
    config = tiny(federation__max_empty_rounds=2, federation__rounds=5)
    run = lifecycle.create(config, tmp_path / "run")
    with pytest.raises(fedkl.StalledError):
        lifecycle.run_remaining(run, silent, loud, refusing(config, {0, 1, 2, 3}), until=2)
    assert run.summary()["stalled"] is True


def test_rounds_after_the_last_checkpoint_are_made_again(tiny, tmp_path):
    config = tiny(federation__rounds=5, checkpoint__every=3)
    whole = unbroken(config, tmp_path / "whole")
    broken = lifecycle.create(config, tmp_path / "broken")
    with pytest.raises(UnpluggedError):
        lifecycle.run_remaining(broken, stop_after(2), loud)
    assert broken.checkpoints.rounds() == []
    with pytest.raises(UnpluggedError):
        lifecycle.run_remaining(broken, stop_after(4), loud)
    lifecycle.run_remaining(broken, silent, loud)
    assert_same_run(whole, broken)


def test_a_damaged_checkpoint_is_passed_over_loudly(tiny, tmp_path):
    config = tiny(federation__rounds=4)
    whole = unbroken(config, tmp_path / "whole")
    broken = lifecycle.create(config, tmp_path / "broken")
    with pytest.raises(UnpluggedError):
        lifecycle.run_remaining(broken, stop_after(3), loud)
    newest = max((tmp_path / "broken" / "checkpoints").iterdir())
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    warnings = []
    lifecycle.run_remaining(broken, silent, warnings.append)
    assert len(warnings) == 1
    assert newest.name in warnings[0]
    assert_same_run(whole, broken)


def test_a_finished_run_stays_as_it_is(tiny, tmp_path):
    run = unbroken(tiny(), tmp_path / "run")
    before = (comparable(run), run.summary())
    lifecycle.run_remaining(run, loud, loud)
    assert (comparable(run), run.summary()) == before


def test_a_checkpoint_of_another_config_is_refused(tiny, tmp_path):
    run = unbroken(tiny(), tmp_path / "run")
    other = tiny(learner__hidden=[9]).mapping()
    (run.path / "config.toml").write_text(tomli_w.dumps(other))
    said = r"of round 3 was made with something else: learner\.hidden was .*, is \[9\]"
    with pytest.raises(fedkl.UserError, match=said):
        lifecycle.load(run, loud)
    with pytest.raises(fedkl.UserError, match=said):
        lifecycle.run_remaining(run, loud, loud)
    # Accepting does not make it fit.
    with pytest.raises(fedkl.UserError, match=r"does not fit config\.toml: model\.policy\."):
        lifecycle.load(run, loud, accept=True)


def test_two_processes_cannot_train_the_same_run(tiny, tmp_path):
    run = lifecycle.create(tiny(), tmp_path / "run")
    with run.lock(), pytest.raises(fedkl.UserError, match="in use by process"):
        lifecycle.run_remaining(RunDirectory.open(run.path), silent, loud)


def test_a_full_disk_loses_nothing(tiny, tmp_path, monkeypatch):
    config = tiny(federation__rounds=4)
    whole = unbroken(config, tmp_path / "whole")
    broken = lifecycle.create(config, tmp_path / "broken")
    fsync, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 8:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(fedkl.UserError, match="the disk is full"):
            lifecycle.run_remaining(broken, silent, loud)
    lifecycle.run_remaining(broken, silent, loud)
    assert_same_run(whole, broken)


def test_the_summary_has_the_results_of_the_run(tiny, tmp_path):
    run = unbroken(tiny(), tmp_path / "run")
    records, summary = run.metrics.read(), run.summary()
    assert summary["return_mean"] == records[-1]["return_mean"]
    assert summary["best_return_mean"] == max(r["return_mean"] for r in records)
    assert summary["bytes_up"] == sum(r["bytes_up"] for r in records)
    assert summary["versions"]["fedkl"]


def test_the_page_on_metrics_has_every_key_of_the_summary_and_no_other(tiny, tmp_path):
    run = unbroken(tiny(federation__rounds=1), tmp_path / "run")
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = page.split("## summary.json")[1].split("| key |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    keys = [key for cell in cells for key in re.findall(r"`(.*?)`", cell)]
    assert sorted(keys) == sorted(run.summary())


def refusing(config, refused):
    """A federation of which some clients never answer."""
    federation = Federation(config)
    run = federation.engine.run

    def without(*args):
        for client, answer in run(*args):
            lost = isinstance(answer, Trained) and client in refused
            yield client, Failure("out of order") if lost else answer

    federation.engine.run = without
    return federation


def test_the_summary_names_clients_that_were_refused_again_and_again(tiny, tmp_path):
    config = tiny(federation__clients=3, federation__clients_per_round=3, federation__rounds=4)
    run = lifecycle.create(config, tmp_path / "run")
    lifecycle.run_remaining(run, silent, loud, refusing(config, {1}))
    summary = run.summary()
    assert summary["rejected"] == 4
    assert summary["refused_again_and_again"] == [{"client": 1, "times": 4}]
    assert summary["empty_rounds"] == 0


def test_a_client_refused_twice_is_not_yet_named(tiny, tmp_path):
    config = tiny(federation__clients=2, federation__rounds=2)
    run = lifecycle.create(config, tmp_path / "run")
    lifecycle.run_remaining(run, silent, loud, refusing(config, {1}))
    summary = run.summary()
    assert summary["rejected"] == 2
    assert summary["refused_again_and_again"] == []


def test_a_run_that_stalls_is_logged_and_saved_and_can_be_resumed(tiny, tmp_path):
    config = tiny(federation__max_empty_rounds=2, federation__rounds=5, checkpoint__every=100)
    run = lifecycle.create(config, tmp_path / "run")
    with pytest.raises(fedkl.StalledError, match="the last 2 rounds"):
        lifecycle.run_remaining(run, silent, loud, refusing(config, {0, 1, 2, 3}))
    assert run.checkpoints.rounds() == [2]
    assert [r["note"] is not None for r in run.metrics.read()] == [True, True]
    assert run.summary()["stalled"] is True
    assert len(run.summary()["refused_again_and_again"]) == 0
    lifecycle.run_remaining(run, silent, loud)
    assert [r["note"] is not None for r in run.metrics.read()] == [True, True] + [False] * 3
    assert run.summary()["stalled"] is False


def test_a_run_that_stalls_before_its_first_round_is_over_has_no_summary(tiny, tmp_path):
    config = tiny()
    run = lifecycle.create(config, tmp_path / "run")
    nobody = Federation(config)

    def gone(*_):
        raise fedkl.StalledError("all clients are gone")

    nobody.engine.run = gone
    with pytest.raises(fedkl.StalledError, match="all clients are gone"):
        lifecycle.run_remaining(run, silent, loud, nobody)
    assert run.summary() is None
    lifecycle.run_remaining(run, silent, loud)
    assert run.summary()["stalled"] is False


def test_a_run_all_of_whose_rounds_were_empty_stays_stalled(tiny, tmp_path):
    config = tiny(federation__rounds=2)
    run = lifecycle.create(config, tmp_path / "run")
    for _ in range(2):
        with pytest.raises(fedkl.StalledError):
            lifecycle.run_remaining(run, silent, loud, refusing(config, {0, 1, 2, 3}))
    assert len(run.metrics.read()) == 2


def test_returns_of_very_many_clients_go_to_a_file_that_the_line_names(tiny, tmp_path, monkeypatch):
    config = tiny(federation__rounds=2)
    usual = unbroken(config, tmp_path / "usual")
    monkeypatch.setattr(lifecycle, "IN_A_LINE", 3)
    many = unbroken(config, tmp_path / "many")
    for before, now in zip(usual.metrics.read(), many.metrics.read(), strict=True):
        assert "returns_file" not in before
        assert now["return_per_client"] is None
        assert now["returns_file"] == f"returns/{now['round']:06d}.npy"
        returns = np.load(many.path / now["returns_file"])
        assert returns.tolist() == before["return_per_client"]
        assert now["return_mean"] == before["return_mean"]


def test_as_many_returns_as_fit_stay_in_the_line(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(lifecycle, "IN_A_LINE", 4)
    run = unbroken(tiny(federation__rounds=1), tmp_path / "run")
    assert len(run.metrics.read()[0]["return_per_client"]) == 4
    assert not (run.path / "returns").exists()


@pytest.fixture
def counted(monkeypatch):
    """How often configs were checked and federations made."""
    counts = {"configs": 0, "federations": 0}

    def counting(name, function):
        def wrapped(*args, **kwargs):
            counts[name] += 1
            return function(*args, **kwargs)

        return wrapped

    # The command reads a config again to show it, which is not training.
    monkeypatch.setattr("fedkl.cli.progress.from_mapping", fedkl.config.config.from_mapping)
    from_mapping = counting("configs", fedkl.config.config.from_mapping)
    monkeypatch.setattr(fedkl.config.config, "from_mapping", from_mapping)
    monkeypatch.setattr(plugin_consent, "from_mapping", from_mapping)
    monkeypatch.setattr(Federation, "__init__", counting("federations", Federation.__init__))
    return counts


def test_training_reads_its_config_once_and_builds_one_federation(tmp_path, counted):
    path = str(tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "probe-point", "--rounds", "1", "--run", path])
    assert ended.value.code == 0
    # One to train, and one for the bar, which shows what the run has.
    assert counted == {"configs": 2, "federations": 1}
    with pytest.raises(SystemExit):
        cli.main(["resume", path])
    assert counted == {"configs": 4, "federations": 2}


def kill_until_finished(start, run, kills, generator):
    """Runs `fedkl resume` and kills it at random moments, `kills` times; returns how many hit."""
    log = run.path / "metrics.jsonl"
    hits = 0
    for left in range(kills, -1, -1):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = start("-m", "fedkl", "resume", run.path, **quiet)
        if left:
            size = log.stat().st_size if log.exists() else 0
            while process.poll() is None and (log.stat().st_size if log.exists() else 0) <= size:
                time.sleep(0.001)
            time.sleep(generator.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
        hits += process.wait() == -signal.SIGKILL
    return hits


# The one adapts coefficients, the other keeps state on both sides; all of them are among the slow.
@pytest.mark.parametrize("algorithm", ["fedkl", "scaffold"])
def test_killed_twice_at_random_moments_a_run_ends_the_same(tiny, tmp_path, child, algorithm):
    _killed_run_ends_the_same(tiny, tmp_path, child, algorithm, kills=2, rounds=100)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", OURS)
def test_killed_twenty_times_at_random_moments_a_run_ends_the_same(
    tiny, tmp_path, child, algorithm
):
    _killed_run_ends_the_same(tiny, tmp_path, child, algorithm, kills=20, rounds=600)


def _killed_run_ends_the_same(tiny, tmp_path, child, algorithm, kills, rounds):
    config = tiny(algorithm, federation__rounds=rounds)
    whole = unbroken(config, tmp_path / "whole")
    broken = lifecycle.create(config, tmp_path / "broken")
    hits = kill_until_finished(child, broken, kills, random.Random(algorithm))
    assert hits  # on a busy machine, a run may be over before it is killed once more
    assert_same_run(whole, broken)
    assert json.loads((broken.path / "summary.json").read_text())["rounds"] == rounds
