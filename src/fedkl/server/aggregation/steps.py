"""The server's optimiser: from the old model and the reduced one to the next.

The reduced model is taken as a hint of a direction: old minus reduced is a pseudo-gradient, and
any optimiser of optax can follow it (Reddi et al. 2021, FedOpt).
"""

from __future__ import annotations

from typing import ClassVar

import optax

from fedkl.core.settings import setting
from fedkl.server.aggregation.base import Step, register_step


@register_step
class NoStep(Step):
    """The next model is the reduced one, to the bit: FedAvg (McMahan et al. 2017)."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "take the reduced model as it is"

    def optimiser(self) -> None:
        return None


@register_step
class SGD(Step):
    """FedAvgM (Hsu et al. 2019): v <- momentum v + (old - reduced); new = old - rate v. The
    defaults are `none` up to rounding."""

    name: ClassVar[str] = "sgd"
    summary: ClassVar[str] = "FedAvgM: follow the reduced model with momentum"

    server_learning_rate: float = setting(1.0, "the server's step size", above=0)
    server_momentum: float = setting(
        0.0, "share of the last step that is kept in the next", low=0, high=0.9999
    )

    def optimiser(self) -> optax.GradientTransformation:
        return optax.sgd(self.server_learning_rate, momentum=self.server_momentum)


class Adaptive(Step):
    """The common part of FedOpt's adaptive steps (Reddi et al. 2021).

    Unlike theirs, optax's moments start at 0 and are corrected for it.
    """

    server_learning_rate: float = setting(0.01, "the server's step size", above=0)
    b1: float = setting(0.9, "decay of the mean of past moves", low=0, high=0.9999)
    b2: float = setting(0.99, "decay of the mean of their squares", low=0, high=0.9999)
    tau: float = setting(
        1e-3, "added to the root of the mean square; a larger one adapts less", above=0
    )


@register_step
class Adam(Adaptive):
    """FedAdam (Reddi et al. 2021): coordinates that move little take larger steps."""

    name: ClassVar[str] = "adam"
    summary: ClassVar[str] = "FedAdam: a step size for each coordinate"

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.server_learning_rate, b1=self.b1, b2=self.b2, eps=self.tau)


@register_step
class Yogi(Adaptive):
    """FedYogi (Reddi et al. 2021): like Adam, but the mean square changes by a fixed share of the
    new square, so it forgets large moves slowly."""

    name: ClassVar[str] = "yogi"
    summary: ClassVar[str] = "FedYogi: FedAdam whose step sizes grow again slowly"

    def optimiser(self) -> optax.GradientTransformation:
        # optax.yogi starts both moments at 1e-6, which moves what no client moved.
        scaled = optax.scale_by_yogi(
            b1=self.b1, b2=self.b2, eps=self.tau, initial_accumulator_value=0.0
        )
        return optax.chain(scaled, optax.scale_by_learning_rate(self.server_learning_rate))
