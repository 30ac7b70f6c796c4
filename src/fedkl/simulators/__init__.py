"""Simulators on the host, in processes of their own, and whole episodes in them; no JAX.

The names here are what a simulator of one's own needs; all else is private.
"""

from fedkl.simulators.base import Recipe, Seed, Simulator, SimulatorError, Step

__all__ = ["Recipe", "Seed", "Simulator", "SimulatorError", "Step"]
