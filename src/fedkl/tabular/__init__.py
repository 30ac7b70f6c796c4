"""The tabular lab: FedKL's theory on finite MDPs, computed exactly. Needs no JAX."""

from fedkl.tabular import (
    algorithms,
    baselines,
    bounds,
    constants,
    continuity,
    counterexamples,
    families,
    linear_programme,
    objectives,
    optimum,
)
from fedkl.tabular.best_response import best_response, first_order_gap
from fedkl.tabular.exact import Exact
from fedkl.tabular.family import Family, load, save
from fedkl.tabular.iteration import Trajectory, iterate
from fedkl.tabular.step import Step
from fedkl.tabular.validation import InvalidFamily
from fedkl.tabular.verification import verify

__all__ = [
    "Exact",
    "Family",
    "InvalidFamily",
    "Step",
    "Trajectory",
    "algorithms",
    "baselines",
    "best_response",
    "bounds",
    "constants",
    "continuity",
    "counterexamples",
    "families",
    "first_order_gap",
    "iterate",
    "linear_programme",
    "load",
    "objectives",
    "optimum",
    "save",
    "verify",
]
