"""Selection of the clients of a round, one short file for each way to choose."""

from fedkl.server.selection.base import (
    SELECTORS,
    Pool,
    Selector,
    observe,
    register_selector,
    select,
)
from fedkl.server.selection.selectors import Alignment, Potential, RoundRobin, Uniform, Weighted

__all__ = [
    "SELECTORS",
    "Alignment",
    "Pool",
    "Potential",
    "RoundRobin",
    "Selector",
    "Uniform",
    "Weighted",
    "observe",
    "register_selector",
    "select",
]
