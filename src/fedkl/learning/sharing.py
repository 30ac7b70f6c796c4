"""Who keeps which part of what is learnt: the server, each client, or nobody."""

from __future__ import annotations

from typing import NamedTuple

FEDERATED, LOCAL, NONE, ALL = "federated", "local", "none", "all"

PERSONAL = (NONE, "action-bias", "last-layer", ALL)
"""Which part of the policy may stay on its client: nothing; what is added to every action (or to
the logits of discrete ones); the last layer; or all of it, so that each client learns alone."""


class Sharing(NamedTuple):
    """Who keeps the parts that a config may place: the server (federated), each client (local), or
    nobody (none). The rest of the policy and what an algorithm shares are always the server's; a
    coefficient follows its rule: kept on the client, averaged by the server, or reset."""

    critic: str = FEDERATED
    observations: str = FEDERATED
    rewards: str = FEDERATED
    personal: str = NONE
    """The part of the policy that each client keeps, one of `PERSONAL`."""
