"""Parts of a policy that stay on their client: taken out of what is sent, and put back in.

A policy and its parts are trees of the same shape, in which what is not there is None.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax

from fedkl.learning.policy import Policy
from fedkl.learning.sharing import ALL, NONE


def personal_part(policy: Policy, which: str) -> Policy | None:
    """The part of a policy that stays on its client, everything else None.

    Args:
        policy: a whole one.
        which: one of `sharing.PERSONAL`; there is no such part if it is `NONE`.
    """
    if which == NONE:
        return None
    if which == ALL:
        return policy

    def own(p: Policy) -> list[Any]:
        layer = [p.network.biases[-1], p.network.weights[-1]]
        return layer if which == "last-layer" else layer[:1]

    nothing = jax.tree.map(lambda _: None, policy)
    return eqx.tree_at(own, nothing, own(policy), is_leaf=_is_none)


def without(policy: Policy, personal: Policy | None) -> Policy:
    """What is left of a policy for the server: None where `personal` is something."""
    if personal is None:
        return policy
    return jax.tree.map(
        lambda own, leaf: leaf if own is None else None, personal, policy, is_leaf=_is_none
    )


def only(policy: Policy, personal: Policy | None) -> Policy | None:
    """The part of a policy that `personal` is."""
    if personal is None:
        return None
    return jax.tree.map(
        lambda own, leaf: None if own is None else leaf, personal, policy, is_leaf=_is_none
    )


def whole(shared: Policy, personal: Policy | None) -> Policy:
    """The policy that a client has: what is shared, and its own part."""
    return shared if personal is None else eqx.combine(shared, personal)


def _is_none(x: object) -> bool:
    return x is None
