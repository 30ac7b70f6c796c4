"""A plugin that makes a client fail in some rounds: which, and how, is drawn by client and round.

Only a client's own process trains by way of `Session`, so the server may load this, too.
"""

import os
import random
import signal
import time

from fedkl.clients.work import Train
from fedkl.network.client import Session

SHARE = 0.3
"""Of the clients in a round."""
KINDS = ("raise", "kill", "hang")


def fault(client: int, round: int) -> str | None:
    """How a client fails in a round (rounds that are over before it), if it does."""
    draw = random.Random(f"faults of client {client} after {round} rounds")
    return draw.choice(KINDS) if draw.random() < SHARE else None


_do = Session.do


def do(self, request, own):
    """As it would be, or not at all."""
    how = fault(request.client, request.round) if isinstance(request.work, Train) else None
    if how == "raise":
        raise RuntimeError("the battery is empty")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(10_000)
    return _do(self, request, own)


Session.do = do
