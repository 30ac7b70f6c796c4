"""Ctrl-C, as a command hears it."""

LOST = """
import gc, signal, time
from fedkl.cli import command

def collected(phase, info):
    gc.callbacks.remove(collected)
    signal.raise_signal(signal.SIGINT)

command._hear_interrupts()
gc.callbacks.append(collected)
try:
    gc.collect()
    time.sleep(60)
    print("lost")
except KeyboardInterrupt:
    print("heard")
"""
"""An exception in a callback of the garbage collector is thrown away."""


def test_ctrl_c_is_heard_where_python_throws_exceptions_away(child):
    out, err = child("-c", LOST).communicate(timeout=50)
    assert (out, err) == ("heard\n", "")
