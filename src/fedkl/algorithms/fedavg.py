"""FedAvg: local policy optimisation with the local KL penalty, and nothing more."""

from __future__ import annotations

from typing import ClassVar

from fedkl.algorithms.base import Algorithm, register_algorithm


@register_algorithm
class FedAvg(Algorithm):
    """The baseline every other algorithm adds to (McMahan et al. 2017, with the paper's local
    training)."""

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "local KL penalty only; the server averages"
