"""Stands in for a command of Flower's: hands its arguments to the process that has Flower loaded.

Run as `python -ISs shim.py FOLDER COMMAND [ARGUMENT ...]`, so it starts in no time and can import
nothing but the standard library. `FOLDER` has the socket. If nobody takes the arguments, this
becomes the command that they are for, as `entry` runs it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

SOCKET = "zygote.sock"
APP = "flwr-clientapp"
"""What runs an app that the server sent; it must be guarded."""
FULL_PATH = "FEDKL_PATH"
"""Of the environment: the PATH of apps. That of Flower's own processes has the shims alone, so they
can start nothing else."""
TIMEOUT = 10.0


def hand_over(folder: str, arguments: list[str]) -> bool:
    """Whether the process that listens in a folder took the arguments."""
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
    """Hands the arguments over, or runs the command itself."""
    if hand_over(folder, arguments):
        return
    # Another's PATH stays as it is: what it starts is to be found among the shims.
    if arguments[0] == APP:
        os.environ["PATH"] = os.environ[FULL_PATH]
    entry = [sys.executable, "-P", "-m", "fedkl.network.flower.entry"]
    os.execv(sys.executable, [*entry, *arguments])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
