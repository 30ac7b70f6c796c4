"""Trained policies for whoever acts with them: loaded from a run, called, exported; without JAX."""

from fedkl.policies.loader import load
from fedkl.policies.policy import Policy

__all__ = ["Policy", "load"]
