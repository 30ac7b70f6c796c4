"""Cores, and processes that do not outlive their parent."""

import os
import resource
import signal
import subprocess
import sys

import pytest

from fedkl.core.errors import UserError
from fedkl.core.processes import cores, require_address_space, signals_held

CHILD = """
import os, sys, time
from fedkl.core.processes import die_with
die_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
time.sleep(60)
"""


def test_cores_are_those_that_this_process_may_use():
    assert cores() == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("limit", "threads", "fits"),
    [
        (resource.RLIM_INFINITY, "2", True),
        (3 << 30, "2", True),
        (2232 << 20, "2", True),
        (2231 << 20, "2", False),
        (3 << 30, "64", False),
        (4 << 30, "64", True),
        (1 << 30, "many", False),
    ],
)
def test_a_limit_of_addresses_under_which_jax_would_abort_is_refused(
    monkeypatch, limit, threads, fits
):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    monkeypatch.setenv("PJRT_NPROC", threads)
    if fits:
        require_address_space()
        return
    with pytest.raises(UserError, match=rf"may take {limit >> 20:,} MiB of .*`ulimit -v`"):
        require_address_space()


def test_where_a_system_cannot_say_there_is_at_least_one_core(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == list(range(os.cpu_count()))
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == [0]


TAKES = """
import os, sys
from fedkl.core.processes import cores, take_cores
take_cores(int(sys.argv[1]))
print(len(cores()), os.environ.get("PJRT_NPROC"), os.sched_getscheduler(0) == os.SCHED_BATCH)
"""


@pytest.mark.parametrize(
    ("number", "threads", "said"),
    [(1, None, "1 2 True"), (1, "5", "1 5 True"), (2, None, "2 None False")],
)
def test_who_takes_one_core_has_two_threads_that_do_not_interrupt_each_other(number, threads, said):
    environment = {k: v for k, v in os.environ.items() if k != "PJRT_NPROC"}
    environment |= {} if threads is None else {"PJRT_NPROC": threads}
    command = [sys.executable, "-c", TAKES, str(number)]
    ended = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert ended.stdout.strip() == said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_are_held_are_heard_at_the_end_of_the_block(number):
    before, done = signal.getsignal(number), []

    def work():
        signal.raise_signal(number)
        done.append("all of it")

    with pytest.raises(KeyboardInterrupt), signals_held():
        work()
    assert done == ["all of it"]
    assert signal.getsignal(number) is before


def test_an_error_that_a_held_signal_may_have_led_to_does_not_hide_it():
    def fail():
        signal.raise_signal(signal.SIGINT)
        raise RuntimeError("a child has died")

    with pytest.raises(KeyboardInterrupt), signals_held():
        fail()


def test_what_was_ignored_is_ignored_in_a_block_that_holds_signals():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_held():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own service")
def test_a_child_ends_with_its_parent_even_by_sigkill():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    with open(f"/proc/{child}/status"):
        parent.send_signal(signal.SIGKILL)
    # The child holds the other end of the pipe: it closes when the child is gone.
    assert parent.stdout.read() == ""
    parent.communicate()


def test_a_child_whose_parent_is_gone_already_does_not_start():
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (1, b"")
