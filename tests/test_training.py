"""Runs survive: killed at any moment, they end as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fedkl
from fedkl import training
from fedkl.federation.loop import Federation
from fedkl.runs import RunDirectory

ALGORITHMS = ("fedkl", "fedavg", "fedprox", "fmarl")


def silent(_):
    """Watches and warns of nothing."""


def loud(message):
    raise AssertionError(message)


def comparable(run):
    """Every metric but the time it took."""
    return [{k: v for k, v in record.items() if k != "seconds"} for record in run.metrics.read()]


def parameters(run):
    return run.checkpoints.latest(loud)


def assert_same_run(a, b):
    assert comparable(a) == comparable(b)
    (round_a, arrays_a), (round_b, arrays_b) = parameters(a), parameters(b)
    assert round_a == round_b
    assert arrays_a.keys() == arrays_b.keys()
    for name in arrays_a:
        assert arrays_a[name].dtype == arrays_b[name].dtype
        assert np.array_equal(arrays_a[name], arrays_b[name]), name


def unbroken(config, path):
    run = training.create(config, path)
    training.go_on(run, silent, loud)
    return run


class UnpluggedError(Exception):
    pass


def stop_after(rounds):
    def watch(record):
        if record["round"] == rounds:
            raise UnpluggedError

    return watch


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kept", ["federated", "local"])
def test_a_resumed_run_equals_an_unbroken_one(tiny, tmp_path, algorithm, kept):
    config = tiny(
        algorithm,
        federation__critic=kept,
        federation__observation_statistics=kept,
        federation__reward_statistics=kept,
        federation__rounds=4,
    )
    whole = unbroken(config, tmp_path / "whole")
    broken = training.create(config, tmp_path / "broken")
    for rounds in (1, 3):
        with pytest.raises(UnpluggedError):
            training.go_on(broken, stop_after(rounds), loud)
    training.go_on(broken, silent, loud)
    assert_same_run(whole, broken)


def test_rounds_after_the_last_checkpoint_are_made_again(tiny, tmp_path):
    config = tiny(federation__rounds=5, checkpoint__every=3)
    whole = unbroken(config, tmp_path / "whole")
    broken = training.create(config, tmp_path / "broken")
    with pytest.raises(UnpluggedError):
        training.go_on(broken, stop_after(2), loud)
    assert broken.checkpoints.rounds() == []
    with pytest.raises(UnpluggedError):
        training.go_on(broken, stop_after(4), loud)
    training.go_on(broken, silent, loud)
    assert_same_run(whole, broken)


def test_a_damaged_checkpoint_is_passed_over_loudly(tiny, tmp_path):
    config = tiny(federation__rounds=4)
    whole = unbroken(config, tmp_path / "whole")
    broken = training.create(config, tmp_path / "broken")
    with pytest.raises(UnpluggedError):
        training.go_on(broken, stop_after(3), loud)
    newest = max((tmp_path / "broken" / "checkpoints").iterdir())
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    warnings = []
    training.go_on(broken, silent, warnings.append)
    assert len(warnings) == 1
    assert newest.name in warnings[0]
    assert_same_run(whole, broken)


def test_a_finished_run_stays_as_it_is(tiny, tmp_path):
    run = unbroken(tiny(), tmp_path / "run")
    before = (comparable(run), run.summary())
    training.go_on(run, loud, loud)
    assert (comparable(run), run.summary()) == before


def test_a_checkpoint_of_another_config_is_refused(tiny, tmp_path):
    run = unbroken(tiny(), tmp_path / "run")
    text = (run.path / "config.toml").read_text()
    assert "clients = 4" in text
    (run.path / "config.toml").write_text(text.replace("clients = 4", "clients = 5"))
    with pytest.raises(fedkl.UserError, match=r"does not fit config\.toml"):
        training.load(run, loud)


def test_two_processes_cannot_train_the_same_run(tiny, tmp_path):
    run = training.create(tiny(), tmp_path / "run")
    with run.lock(), pytest.raises(fedkl.UserError, match="in use by process"):
        training.go_on(RunDirectory.open(run.path), silent, loud)


def test_a_full_disk_loses_nothing(tiny, tmp_path, monkeypatch):
    config = tiny(federation__rounds=4)
    whole = unbroken(config, tmp_path / "whole")
    broken = training.create(config, tmp_path / "broken")
    fsync, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 8:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(fedkl.UserError, match="the disk is full"):
            training.go_on(broken, silent, loud)
    training.go_on(broken, silent, loud)
    assert_same_run(whole, broken)


def test_the_summary_says_what_the_run_came_to(tiny, tmp_path):
    run = unbroken(tiny(), tmp_path / "run")
    records, summary = run.metrics.read(), run.summary()
    assert summary["return_mean"] == records[-1]["return_mean"]
    assert summary["best_return_mean"] == max(r["return_mean"] for r in records)
    assert summary["bytes_up"] == sum(r["bytes_up"] for r in records)
    assert summary["versions"]["fedkl"]


def kill_until_finished(run, kills, generator):
    """Runs `fedkl resume` and kills it at random moments, `kills` times; returns how many hit."""
    log = run.path / "metrics.jsonl"
    hits = 0
    for left in range(kills, -1, -1):
        process = subprocess.Popen(
            [sys.executable, "-m", "fedkl", "resume", str(run.path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if left:
            size = log.stat().st_size if log.exists() else 0
            while process.poll() is None and (log.stat().st_size if log.exists() else 0) <= size:
                time.sleep(0.001)
            time.sleep(generator.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
        hits += process.wait() == -signal.SIGKILL
    return hits


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_killed_twice_at_random_moments_a_run_ends_the_same(tiny, tmp_path, algorithm):
    _killed_run_ends_the_same(tiny, tmp_path, algorithm, kills=2, rounds=100)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_killed_twenty_times_at_random_moments_a_run_ends_the_same(tiny, tmp_path, algorithm):
    _killed_run_ends_the_same(tiny, tmp_path, algorithm, kills=20, rounds=600)


def _killed_run_ends_the_same(tiny, tmp_path, algorithm, kills, rounds):
    config = tiny(algorithm, federation__rounds=rounds)
    whole = unbroken(config, tmp_path / "whole")
    broken = training.create(config, tmp_path / "broken")
    hits = kill_until_finished(broken, kills, random.Random(algorithm))
    assert hits == kills
    assert_same_run(whole, broken)
    assert json.loads((broken.path / "summary.json").read_text())["rounds"] == rounds


def test_a_federation_can_be_taken_up_in_memory_too(tiny):
    whole = Federation(tiny())
    records = list(whole)
    first = Federation(tiny())
    first.run_round()
    second = Federation(tiny(), state=first.state)
    rest = list(second)
    strip = [{**r, "seconds": 0} for r in rest]
    assert strip == [{**r, "seconds": 0} for r in records[1:]]
