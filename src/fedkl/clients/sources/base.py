"""What a source of episodes is."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float, PRNGKeyArray, PyTree

from fedkl.arrays import AnyArray
from fedkl.clients.acting import Behaviour
from fedkl.learning.trajectories import Trajectories


class Recording(NamedTuple):
    """One episode to look at: its states from the first to the last, and the rewards between."""

    states: PyTree
    """Every leaf with the h + 1 states along its first axis."""
    reward: Float[AnyArray, " h"]
    mask: Bool[AnyArray, " h"]
    """Which steps were before its end."""
    params: PyTree
    """Of the world it happened in (None in a shared one)."""


@runtime_checkable
class Source(Protocol):
    """Episodes of one client's world."""

    def collect(self, behaviour: Behaviour, episodes: int, key: PRNGKeyArray) -> Trajectories:
        """Runs `episodes` whole episodes; `key` is for everything random in them."""

    def fill(self, behaviour: Behaviour, steps: int, key: PRNGKeyArray) -> Trajectories:
        """Runs exactly `steps` steps, in columns as long as the time limit, one after the other.

        After an episode's end the next one begins in the same column; where the column or the steps
        end, it is cut.
        """

    def record(self, behaviour: Behaviour, key: PRNGKeyArray) -> Recording:
        """One episode with all its states."""
