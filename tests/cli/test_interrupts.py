"""Ctrl-C, as a command hears it."""

import os
import signal

from waiting import PATIENCE

LOST = """
import gc, signal, time
from fedkl.cli import interrupts

def collected(phase, info):
    gc.callbacks.remove(collected)
    signal.raise_signal(signal.SIGINT)

interrupts.install_sigint_handler()
gc.callbacks.append(collected)
try:
    gc.collect()
    time.sleep(600)
    print("lost")
except KeyboardInterrupt:
    print("heard")
"""
"""An exception in a callback of the garbage collector is thrown away."""


def test_ctrl_c_is_heard_where_python_throws_exceptions_away(child):
    out, err = child("-c", LOST).communicate(timeout=PATIENCE)
    assert (out, err) == ("heard\n", "")


LAST_MOMENT = """
import gc, signal, time
from fedkl.cli import interrupts

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)

def collected(phase, info):
    gc.callbacks.remove(collected)
    signal.raise_signal(signal.SIGINT)

kept = Slow()
interrupts.install_sigint_handler()
gc.callbacks.append(collected)
gc.collect()
"""
"""Python ends, without handlers of signals, before the exception is raised again."""


def test_ctrl_c_in_the_last_moments_of_a_command_is_no_other_signal(child):
    process = child("-c", LAST_MOMENT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")


ENDING = """
import atexit, signal
from fedkl.cli import interrupts

atexit.register(signal.raise_signal, signal.SIGINT)
interrupts.install_sigint_handler()
"""


def test_ctrl_c_while_python_ends_is_no_traceback(child):
    process = child("-c", ENDING)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.strip()) == (130, "")


IMPORTED = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt as error:
    raise ImportError("initialization failed") from error
"""
"""Stands for JAX: C extensions make something else of an exception while they are imported."""


def test_ctrl_c_while_a_command_is_imported_ends_it_wherever_it_comes(tmp_path, child):
    (tmp_path / "jax.py").write_text(IMPORTED)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = child("-m", "fedkl", "list", env={**os.environ, "PYTHONPATH": paths})
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "", "fedkl: interrupted\n")


COMPUTING = """
import threading, time
from fedkl.cli import console, interrupts

console.open_streams()
interrupts.install_sigint_handler()
threading.Thread(target=time.sleep, args=[600]).start()
print("computing", flush=True)
time.sleep(600)
"""
"""Stands for a client's training, which no exception ends."""


def test_who_waits_after_ctrl_c_is_told_why_and_ends_it_with_another(child):
    process = child("-c", COMPUTING)
    assert process.stdout.readline() == "computing\n"
    process.send_signal(signal.SIGINT)
    said = next(line for line in process.stderr if line.startswith("fedkl: "))
    assert said == "fedkl: stopping; Ctrl-C again ends it at once\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130
