"""A stand-in for a command of Flower's, which passes its arguments to the zygote.

Run as `python -ISs shim.py FOLDER COMMAND [ARGUMENT ...]`, so it starts quickly and can import
nothing but the standard library. `FOLDER` has the zygote's socket. If no zygote takes the
arguments, this process becomes the command, as `entry` runs it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

SOCKET = "zygote.sock"
APP = "flwr-clientapp"
"""Command that runs an app of the server's; it must be guarded."""
FULL_PATH = "FEDKL_PATH"
"""Environment variable with the PATH of apps. Flower's own processes have only the shims on PATH,
so they can start nothing else."""
TIMEOUT = 10.0


def hand_over(folder: str, arguments: list[str]) -> bool:
    """Pass the arguments to the zygote of a folder; return True if it took them."""
    here = os.open(".", os.O_RDONLY)
    try:
        # The name of a socket must be short, and that of a folder may be long.
        os.chdir(folder)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(SOCKET)
            data = json.dumps(arguments).encode()
            connection.sendall(struct.pack(">Q", len(data)) + data)
            return connection.recv(1) == b"!"
    except OSError:
        return False
    finally:
        os.fchdir(here)
        os.close(here)


def main(folder: str, arguments: list[str]) -> None:
    """Pass the arguments on, or run the command itself."""
    if hand_over(folder, arguments):
        return
    # Other commands keep their PATH: what they start must be a shim.
    if arguments[0] == APP:
        os.environ["PATH"] = os.environ[FULL_PATH]
    entry = [sys.executable, "-P", "-m", "fedkl.network.flower.entry"]
    os.execv(sys.executable, [*entry, *arguments])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
