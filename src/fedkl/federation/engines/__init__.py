"""Where `local_round` runs. The loop is the same for every engine."""

from fedkl.federation.engines.in_process import InProcess

__all__ = ["InProcess"]
