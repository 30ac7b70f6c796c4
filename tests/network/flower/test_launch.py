"""Flower's own command runs as it is, only more often awake."""

import subprocess
import sys
import time
from types import ModuleType

import pytest

from fedkl.network.flower import launch


@pytest.fixture
def module(monkeypatch):
    module = ModuleType("somebodys_module")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_module_sleeps_less_while_there_are_messages_and_longer_where_there_are_none(
    module, monkeypatch
):
    slept = []
    module.time = time
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert launch.shorten_sleeps("somebodys_module")
    monkeypatch.setattr(time, "sleep", slept.append)
    for later, seconds in (
        (0, 3),
        (0, 0.01),
        (4, 3),
        (10, 3),
        (60, 3),
        (9999, 3),
        (0, 0.5),
        (4, 3),
    ):
        now += later
        module.time.sleep(seconds)
    assert slept == pytest.approx([0.2, 0.01, 0.2, 0.7, 3.0, 3.0, 0.2, 0.2])
    assert module.time.monotonic is time.monotonic


def test_a_client_that_waits_polls_at_most_a_tenth_as_often_as_one_that_trains(module, monkeypatch):
    module.time = time
    now, polls = time.monotonic(), 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert launch.shorten_sleeps("somebodys_module")

    def sleep(seconds):
        nonlocal now, polls
        now, polls = now + seconds, polls + 1

    monkeypatch.setattr(time, "sleep", sleep)
    end = now + 3600
    while now < end:
        module.time.sleep(3)
    assert polls < 0.1 * 3600 / launch.MIN_SLEEP


def test_where_the_name_is_gone_it_is_only_slower(module):
    assert not launch.shorten_sleeps("somebodys_module")
    module.time = 3
    assert not launch.shorten_sleeps("somebodys_module")
    assert module.time == 3
    assert not launch.shorten_sleeps("no_such_module_anywhere")


def test_this_flower_still_has_the_name():
    pytest.importorskip("flwr")
    code = "from fedkl.network.flower.launch import shorten_sleeps as s; print(s())"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == "True"
