"""Load a client's own files: `python -m fedkl.network.preflight [--world FILE] [--plugin FILE]`.

This runs in a process of its own, because a plugin is user code and may need JAX. The last line of
stderr is the error.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.core.own_code import explained
from fedkl.core.plugins import load_plugin
from fedkl.network.worker import read_own_world

TIMEOUT = 120.0


def try_files(world: Path | None, plugins: Sequence[Path]) -> None:
    """Check that a client can load its world and its plugins.

    Args:
        world: a TOML file with the client's own `[world]`.
        plugins: Python files.

    Raises:
        UserError: it cannot.
    """
    read_own_world(world)
    for plugin in plugins:
        if not plugin.is_file():
            raise UserError(f"the plugin {plugin} is not a file")
    if world is None and not plugins:
        return
    command = [sys.executable, "-P", "-m", "fedkl.network.preflight"]
    command += [f"--world={world.resolve()}"] if world else []
    command += [f"--plugin={plugin.resolve()}" for plugin in plugins]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"the plugins took longer than {TIMEOUT:g} s to load") from error
    if done.returncode:
        lines = done.stderr.split("\n")
        raise UserError(next((x for x in reversed(lines) if x.strip()), "the plugins cannot run"))


def main(arguments: list[str]) -> int:
    """Load the files and return the exit code: 0, or 2 if one fails."""
    parser = argparse.ArgumentParser("python -m fedkl.network.preflight", description=__doc__)
    parser.add_argument("--world", type=Path)
    parser.add_argument("--plugin", type=Path, action="append", default=[])
    options = parser.parse_args(arguments)
    for plugin in options.plugin:
        try:
            load_plugin(plugin)
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            sentence = f"the plugin {plugin} fails: {type(error).__name__}: {error}"
            print(explained(sentence, error), file=sys.stderr)
            return 2
    return _try_world(options.world)


def _try_world(path: Path | None) -> int:
    table = read_own_world(path)
    if table is None:
        return 0
    from fedkl.core.settings import build
    from fedkl.worlds import WORLDS

    try:
        name = table.pop("name", None)
        if not isinstance(name, str):
            raise UserError("world.name must say which world")
        build(WORLDS.find(name, "world.name"), table, "world")
    except UserError as error:
        print(f"the client's world {path}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
