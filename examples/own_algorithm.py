"""An algorithm of your own: FedKL with the penalty's direction reversed.

FedKL's KL(pi^t || pi) is large where the local policy gives up actions that the global policy
takes. The reverse, KL(pi || pi^t), is large where the local policy takes actions that the global
policy would hardly ever take. The coefficient adapts as in the paper. Try it either way:

    python examples/own_algorithm.py
    fedkl train demo --plugin examples/own_algorithm.py --algorithm fedkl-reverse
"""

import sys
from typing import ClassVar

from jax import Array

import fedkl
from fedkl import algorithms


@fedkl.register_algorithm
class ReverseFedKL(fedkl.Algorithm):
    """Adds c1 E_s[ sqrt(KL(pi || pi^t) / 2) ] to the local penalty."""

    name: ClassVar[str] = "fedkl-reverse"
    summary: ClassVar[str] = "adds c1 sqrt(KL(pi || pi^t) / 2): FedKL, the other way round"

    d_global: float = fedkl.setting(0.6, "target distance from the global policy", above=0)
    c1: float = fedkl.setting(1e-3, "first coefficient of the penalty", above=0)
    c1_bounds: tuple[float, float] = fedkl.setting((1e-4, 20.0), "range of c1", above=0)

    def coefficients(self) -> dict[str, algorithms.Coefficient]:
        return {"c1": algorithms.Coefficient(self.c1, self.c1_bounds)}

    def distance_to_global(self, at: algorithms.HookInput) -> Array:
        distances = algorithms.DISTANCES[self.distance](at.actions, at.global_actions)
        return algorithms.weighted_mean(distances, at.batch.weight)

    def penalty(self, at: algorithms.HookInput) -> Array:
        return at.coefficients["c1"] * self.distance_to_global(at)

    def adapt(self, at: algorithms.HookInput, measured: algorithms.Measured) -> dict[str, Array]:
        c1, distance = at.coefficients["c1"], measured.distance_global
        c1 = algorithms.towards_target(c1, distance, self.d_global, self.c1_bounds)
        return at.coefficients | {"c1": c1}


def main(preset: str = "demo", rounds: str = "5") -> None:
    """Trains it and prints what it does."""
    config = fedkl.preset(preset, "fedkl-reverse", set={"federation.rounds": int(rounds)})
    for record in fedkl.Federation(config):
        line = "round {round}: return {return_mean:.1f}, c1 {coefficients[c1]:.2g}"
        print(line.format(**record), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
