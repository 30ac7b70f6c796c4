"""Train one reinforcement-learning policy across many agents whose worlds differ.

import fedkl

federation = fedkl.Federation(fedkl.preset("demo", algorithm="fedkl"))
for record in federation:
    print(record["round"], record["return_mean"])

# fedkl.train keeps a run on disk, and fedkl.load gives its policy.
"""

import os
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedkl.core.processes import FEWEST_THREADS, cores

# XLA has a thread for each core, unless it is told otherwise before it starts.
if len(cores()) == 1:
    os.environ.setdefault("PJRT_NPROC", str(FEWEST_THREADS))
# LAPACK splits sums by its threads from some 200 unknowns on: the same run would have other bits on
# another machine. Clients are what runs in parallel.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from fedkl.algorithms import (
        Algorithm,
        register_algorithm,
        register_distance,
        register_schedule,
    )
    from fedkl.clients import Learner, register_learner
    from fedkl.clients.upload import Upload, register_upload
    from fedkl.config.config import Config, preset
    from fedkl.config.one_client import only_client
    from fedkl.core.errors import StalledError, UserError
    from fedkl.core.settings import setting
    from fedkl.experiments.api import compare, tune
    from fedkl.policies import Policy, load
    from fedkl.policies.export import export
    from fedkl.report.api import report
    from fedkl.server.aggregation import (
        Reducer,
        Step,
        Transform,
        register_reducer,
        register_step,
        register_transform,
    )
    from fedkl.server.loop import Federation
    from fedkl.server.records import Record
    from fedkl.server.selection import Pool, Selector, register_selector
    from fedkl.server.setup import local_engine
    from fedkl.training.api import evaluate, resume, train
    from fedkl.training.callbacks import Callback, TensorBoardSink
    from fedkl.training.checkpoints import Checkpoints
    from fedkl.training.pretrained import start_from
    from fedkl.training.records import records
    from fedkl.worlds import (
        Continuous,
        Discrete,
        Parameter,
        SharedWorld,
        SoloWorld,
        Transition,
        World,
        register_world,
    )

    __version__: str

# What is asked for is imported then, so that `fedkl.load`, `fedkl.tabular` and `fedkl theory` do
# without JAX.
_HOMES = {
    "Algorithm": "fedkl.algorithms",
    "Callback": "fedkl.training.callbacks",
    "Checkpoints": "fedkl.training.checkpoints",
    "Config": "fedkl.config.config",
    "Continuous": "fedkl.worlds",
    "Discrete": "fedkl.worlds",
    "Federation": "fedkl.server.loop",
    "Learner": "fedkl.clients",
    "Policy": "fedkl.policies",
    "Pool": "fedkl.server.selection",
    "Record": "fedkl.server.records",
    "Reducer": "fedkl.server.aggregation",
    "Selector": "fedkl.server.selection",
    "SharedWorld": "fedkl.worlds",
    "SoloWorld": "fedkl.worlds",
    "StalledError": "fedkl.core.errors",
    "Step": "fedkl.server.aggregation",
    "TensorBoardSink": "fedkl.training.callbacks",
    "Transform": "fedkl.server.aggregation",
    "Transition": "fedkl.worlds",
    "Upload": "fedkl.clients.upload",
    "UserError": "fedkl.core.errors",
    "Parameter": "fedkl.worlds",
    "World": "fedkl.worlds",
    "compare": "fedkl.experiments.api",
    "evaluate": "fedkl.training.api",
    "export": "fedkl.policies.export",
    "load": "fedkl.policies",
    "local_engine": "fedkl.server.setup",
    "only_client": "fedkl.config.one_client",
    "preset": "fedkl.config.config",
    "records": "fedkl.training.records",
    "register_algorithm": "fedkl.algorithms",
    "register_distance": "fedkl.algorithms",
    "register_learner": "fedkl.clients",
    "register_reducer": "fedkl.server.aggregation",
    "register_schedule": "fedkl.algorithms",
    "register_selector": "fedkl.server.selection",
    "register_step": "fedkl.server.aggregation",
    "register_transform": "fedkl.server.aggregation",
    "register_upload": "fedkl.clients.upload",
    "register_world": "fedkl.worlds",
    "report": "fedkl.report",
    "resume": "fedkl.training.api",
    "setting": "fedkl.core.settings",
    "start_from": "fedkl.training.pretrained",
    "train": "fedkl.training.api",
    "tune": "fedkl.experiments.api",
}

_FORMER = {"Word": "Parameter"}

__all__ = [
    "Algorithm",
    "Callback",
    "Checkpoints",
    "Config",
    "Continuous",
    "Discrete",
    "Federation",
    "Learner",
    "Parameter",
    "Policy",
    "Pool",
    "Record",
    "Reducer",
    "Selector",
    "SharedWorld",
    "SoloWorld",
    "StalledError",
    "Step",
    "TensorBoardSink",
    "Transform",
    "Transition",
    "Upload",
    "UserError",
    "World",
    "compare",
    "evaluate",
    "export",
    "load",
    "local_engine",
    "only_client",
    "preset",
    "records",
    "register_algorithm",
    "register_distance",
    "register_learner",
    "register_reducer",
    "register_schedule",
    "register_selector",
    "register_step",
    "register_transform",
    "register_upload",
    "register_world",
    "report",
    "resume",
    "setting",
    "start_from",
    "train",
    "tune",
]


if not TYPE_CHECKING:  # else a type checker would believe in every name

    def __getattr__(name):
        """Return a public name, or a subpackage: `fedkl.tabular` needs no import of its own."""
        if name in _FORMER:
            message = f"fedkl.{name} is called fedkl.{_FORMER[name]} now"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            name = _FORMER[name]
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        if name == "__version__":
            return import_module("importlib.metadata").version("fedkl")
        if not name.startswith("_") and find_spec(f"fedkl.{name}") is not None:
            return import_module(f"fedkl.{name}")
        raise AttributeError(f"module 'fedkl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
