"""The summary of a run that is over: where it ended, what it cost, what it was made with."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fedkl.training.metrics import MetricsLog
from fedkl.training.origin import Origin
from fedkl.training.provenance import versions
from fedkl.training.records import require_sensible, training_seconds

_SUMMED = (
    "round",
    "return_mean",
    "deterministic_return_mean",
    "env_steps",
    "bytes_down",
    "bytes_up",
    "bytes_down_regions",
    "bytes_up_regions",
    "guarded",
    "rejected",
    "note",
    "seconds",
)
AGAIN_AND_AGAIN = 3
"""Rejections of a client after which the summary names it."""


def summary(log: MetricsLog, origin: Origin) -> dict[str, Any]:
    """Summarise a finished run, and what it was made with.

    Raises:
        UserError: a record cannot be computed with.
    """
    records = log.read()
    for record in records:
        require_sensible(log, record, _SUMMED)
    last = records[-1]
    finite = [r for r in records if r["return_mean"] is not None]
    best = max(finite, key=lambda r: r["return_mean"], default=last)
    refused = Counter(entry["client"] for r in records for entry in r["rejected"])
    return {
        "rounds": last["round"],
        "return_mean": last["return_mean"],
        "deterministic_return_mean": last["deterministic_return_mean"],
        "best_return_mean": best["return_mean"],
        "best_round": best["round"],
        "env_steps": last["env_steps"],
        "bytes_down": sum(r["bytes_down"] for r in records),
        "bytes_up": sum(r["bytes_up"] for r in records),
        "bytes_down_regions": sum(r["bytes_down_regions"] for r in records),
        "bytes_up_regions": sum(r["bytes_up_regions"] for r in records),
        "guarded": sum(r["guarded"] for r in records),
        "rejected": sum(refused.values()),
        "refused_again_and_again": [
            {"client": client, "times": times}
            for client, times in refused.most_common()
            if times >= AGAIN_AND_AGAIN
        ],
        "empty_rounds": sum(r["note"] is not None for r in records),
        "stalled": False,
        "seconds": sum(r["seconds"] for r in records),
        "seconds_training": training_seconds(records),
        "versions": versions(),
        "history": origin.history,
        "log": origin.log,
    }
