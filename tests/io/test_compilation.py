"""The compilation cache."""

import io
import os
import subprocess
import sys

import pytest

from fedkl.io import compilation

PROGRAM = """
import jax, jax.numpy as jnp
from fedkl.io.compilation import enable_cache
enable_cache()
print(float(jax.jit(lambda x: x * 3 + 1)(jnp.float32(2))))
"""


def test_a_damaged_entry_is_said_once_and_replaced(tmp_path):
    def run():
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True, text=True, env=environment, timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "7.0\n"), done.stderr
        return done.stderr

    assert run() == ""
    entries = list((tmp_path / "fedkl").glob("*-cache"))
    assert entries
    for entry in entries:
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 16
        entry.write_bytes(bytes(data))
    said = run()
    assert said.count("\n") == 1
    assert "was damaged; what was is compiled again and replaced" in said
    assert run() == ""


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"])
def test_a_folder_that_cannot_be_written_is_replaced_and_one_line_says_so(tmp_path, name):
    environment = os.environ | {"TMPDIR": str(tmp_path), name: "/dev/null/nowhere"}
    if name == "HOME":
        environment.pop("XDG_CACHE_HOME", None)
    if name != "JAX_COMPILATION_CACHE_DIR":
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "7.0\n"), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("fedkl: warning: cannot write to /dev/null/nowhere")
    assert list((tmp_path / f"fedkl-{os.getuid()}" / "cache").glob("*-cache"))


@pytest.mark.parametrize("what", ["reading", "writing"])
def test_a_warning_of_a_cache_that_is_gone_is_one_line_and_raises_nothing(
    tmp_path, monkeypatch, capsys, what
):
    monkeypatch.setattr(compilation, "_said", set())
    monkeypatch.setattr(compilation, "_folder", lambda: tmp_path / "gone")
    show = compilation._Replacing(pytest.fail)
    for name in ("jit_step", "jit_reset"):
        entry = f"Error {what} persistent compilation cache entry for '{name}': OSError: {name}"
        show(UserWarning(entry), UserWarning, "compiler.py", 1)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"the compilation cache in {tmp_path / 'gone'} " in said


class Full(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", [Full(), None])
def test_a_warning_that_nobody_can_be_told_of_raises_nothing(monkeypatch, capsys, stream):
    monkeypatch.setattr(compilation, "_said", set())
    monkeypatch.setattr(sys, "stderr", stream)
    entry = "Error reading persistent compilation cache entry for 'jit_step': ValueError"
    compilation._Replacing(pytest.fail)(UserWarning(entry), UserWarning, "compiler.py", 1)
    assert capsys.readouterr().out == ""
