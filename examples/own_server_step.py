"""A server step of your own: Lion (Chen et al. 2023), which goes by signs alone.

Every parameter moves by the same amount in a round, up or down as the reduced moves of late say.
How long those moves were does not matter, so the server's pace is the learning rate's alone.

    fedkl train demo --plugin examples/own_server_step.py --set aggregation.step=lion
"""

from typing import ClassVar

import optax

import fedkl


@fedkl.register_step
class Lion(fedkl.Step):
    """Follows the sign of a mixture of past moves and the present one."""

    name: ClassVar[str] = "lion"
    summary: ClassVar[str] = "every parameter moves by the same amount, up or down"

    server_learning_rate: float = fedkl.setting(1e-3, "how far each parameter moves", above=0)
    b1: float = fedkl.setting(0.9, "share of past moves in the direction", low=0, high=1)
    b2: float = fedkl.setting(0.99, "share of past moves that is remembered", low=0, high=0.9999)

    def optimiser(self) -> optax.GradientTransformation:
        signs = optax.scale_by_lion(self.b1, self.b2)
        return optax.chain(signs, optax.scale_by_learning_rate(self.server_learning_rate))
