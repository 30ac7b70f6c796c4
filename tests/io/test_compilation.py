"""The compilation cache."""

import os
import subprocess
import sys

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
