"""What processes are there of something that a test has started."""

import os
import time
from pathlib import Path

from waiting import PATIENCE


def about(folder: Path) -> list[str]:
    """Commands of the processes that know a folder, or write there what they say."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                command = (process / "cmdline").read_bytes()
                knows = command + (process / "environ").read_bytes()
                knows += os.readlink(process / "fd" / "1").encode()
                if str(folder).encode() in knows:
                    found.append(command.replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def nothing_is_left_of(folder: Path) -> None:
    """Fails if such processes are still there after some time."""
    end = time.monotonic() + PATIENCE
    while (left := about(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, "\n".join(left)
