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


def test_a_module_sleeps_less(module, monkeypatch):
    slept = []
    module.time = time
    assert launch.shorten_sleeps("somebodys_module")
    monkeypatch.setattr(time, "sleep", slept.append)
    module.time.sleep(3)
    module.time.sleep(0.01)
    assert slept == [0.2, 0.01]
    assert module.time.monotonic is time.monotonic


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
