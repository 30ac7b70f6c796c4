"""Registers clients' public keys: `python -m fedkl.network.flower.registering NAME=FILE ...`.

Flower's own command, called once for each key in one process: what takes it long is to be imported.
What it prints is that of Flower, with a line `MARK NAME` before it; `problems_in` reads it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from importlib.metadata import entry_points

from fedkl.network.flower import secret

CONNECTION = "fedkl"
"""What the SuperLink is called in Flower's settings."""
_MARK = "\x1d"
_KNOWN = "[code: 23]"
"""What Flower says of a key that is registered already."""


def main(arguments: list[str]) -> None:
    """Registers each key."""
    secret.attach()
    (command,) = entry_points(group="console_scripts", name="flwr")
    flwr = command.load()
    for argument in arguments:
        name, _, file = argument.partition("=")
        print(f"{_MARK}{name}", flush=True)
        sys.argv = ["flwr", "supernode", "register", file, CONNECTION, "--name", name]
        sys.argv += ["--format", "json"]
        with contextlib.suppress(SystemExit):  # whose code is 0 also if it failed
            flwr()
        sys.stdout.flush()


def problems_in(said: str) -> dict[str, str]:
    """Why keys are not registered, by name; nothing of those that are, now or since before.

    >>> problems_in('\\x1dclient-0\\n{"success": true}\\n\\x1dclient-1\\n{"success": fal')
    {'client-1': '{"success": fal'}
    """
    found = {}
    for part in said.split(_MARK)[1:]:
        name, _, text = part.partition("\n")
        if reason := _problem(text):
            found[name] = reason
    return found


def _problem(text: str) -> str:
    try:
        result = json.loads(text)
        if result["success"] or _KNOWN in result["error-message"]:
            return ""
        text = str(result["error-message"])
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split()) or "Flower said nothing"


if __name__ == "__main__":
    main(sys.argv[1:])
