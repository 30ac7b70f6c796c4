"""Which clients take part in a round, one short file for each way to choose."""

from fedkl.server.selection.base import SELECTORS, Pool, Selector, register_selector
from fedkl.server.selection.measured import Alignment, Potential
from fedkl.server.selection.round_robin import RoundRobin
from fedkl.server.selection.uniform import Uniform
from fedkl.server.selection.weighted import Weighted

__all__ = [
    "SELECTORS",
    "Alignment",
    "Pool",
    "Potential",
    "RoundRobin",
    "Selector",
    "Uniform",
    "Weighted",
    "register_selector",
]
