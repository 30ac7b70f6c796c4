"""The tabular lab: FedKL's theory on finite MDPs, computed exactly. Needs no JAX."""

from fedkl.tabular import bounds, families, linear_programme, objectives
from fedkl.tabular.best_response import best_response
from fedkl.tabular.exact import Exact
from fedkl.tabular.family import Family, InvalidFamily, load, save
from fedkl.tabular.step import Step

__all__ = [
    "Exact",
    "Family",
    "InvalidFamily",
    "Step",
    "best_response",
    "bounds",
    "families",
    "linear_programme",
    "load",
    "objectives",
    "save",
]
