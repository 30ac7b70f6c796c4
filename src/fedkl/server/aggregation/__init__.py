"""From what the clients sent to the next global model: transform each, reduce, step."""

from fedkl.server.aggregation.base import (
    REDUCERS,
    STEPS,
    TRANSFORMS,
    Reducer,
    Step,
    Transform,
    register_reducer,
    register_step,
    register_transform,
)
from fedkl.server.aggregation.chain import Aggregated, Aggregation, AggregationChain
from fedkl.server.aggregation.grouped import Grouped, Regions
from fedkl.server.aggregation.reducers import (
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    TrimmedMean,
)
from fedkl.server.aggregation.settings import AggregationSettings, build_aggregation
from fedkl.server.aggregation.steps import SGD, Adam, NoStep, Yogi
from fedkl.server.aggregation.transforms import Clip

__all__ = [
    "REDUCERS",
    "SGD",
    "STEPS",
    "TRANSFORMS",
    "Adam",
    "Aggregated",
    "Aggregation",
    "AggregationChain",
    "AggregationSettings",
    "Clip",
    "GeometricMedian",
    "Grouped",
    "Krum",
    "Mean",
    "Median",
    "MultiKrum",
    "NoStep",
    "Reducer",
    "Regions",
    "Step",
    "Transform",
    "TrimmedMean",
    "Yogi",
    "build_aggregation",
    "register_reducer",
    "register_step",
    "register_transform",
]
