"""Trained policies: loaded from a run, called, exported; without JAX."""

from fedkl.policies.loader import load
from fedkl.simulators.policy import Policy

__all__ = ["Policy", "load"]
