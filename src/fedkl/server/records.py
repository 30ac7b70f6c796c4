"""The record of a round: what is logged, and what iterating over a federation yields.

docs/metrics.md says what each key means; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from jaxtyping import Float

from fedkl.clients.records import METRICS, Trained
from fedkl.engines import Failure
from fedkl.server.heterogeneity import LevelRecord
from fedkl.server.mixture import AveragingRecord
from fedkl.server.validation import LARGEST_RETURN


class Rejected(TypedDict):
    """A client whose answer does not count, and why."""

    client: int
    reason: str


class Broken(TypedDict):
    """A client whose sensors gave readings that no world means."""

    client: int
    share: float
    """Of its steps."""


class ClientRecord(TypedDict):
    """The round of an accepted client."""

    client: int
    kl_local: float
    distance_global: float
    guarded: int
    step_scale: float
    train_return: float | None
    steps: int
    outliers: int
    coefficients: dict[str, float]
    learner: NotRequired[dict[str, float | None]]
    """Metrics of the learner's own (`Learner.logged`), if it has any."""


class Returns(TypedDict):
    """The global policy's returns; all None in a round that was not evaluated."""

    return_mean: float | None
    return_min: float | None
    return_std: float | None
    return_per_client: list[float] | None
    deterministic_return_mean: float | None
    evaluated: list[int] | None
    unevaluated: NotRequired[list[Rejected]]


class Evaluated(NamedTuple):
    """Clients' returns over some episodes, and who gave none."""

    returns: Float[np.ndarray, "n e"]
    """A row for each client that was asked; NaN if it gave none that count."""
    failures: dict[int, str]
    """The reason for each client that gave none."""


class Diagnostics(TypedDict):
    """Diagnostics of training, over all accepted clients and for each."""

    kl_local: float | None
    distance_global: float | None
    coefficients: dict[str, float]
    guarded: int
    learner: NotRequired[dict[str, float | None]]
    """As in `ClientRecord`, over all clients."""
    clients: list[ClientRecord]


class Record(Returns, Diagnostics):
    """A round."""

    round: int
    selected: list[int]
    rejected: list[Rejected]
    retried: NotRequired[list[Rejected]]
    held_back: NotRequired[list[Rejected]]
    outliers: NotRequired[list[Broken]]
    note: str | None
    env_steps: int
    bytes_down: int
    bytes_up: int
    bytes_down_regions: int
    bytes_up_regions: int
    observations_shared: int
    heterogeneity: list[LevelRecord] | None
    steps_measured: int
    bytes_measured: int
    averaging: NotRequired[AveragingRecord]
    seconds: float
    simulators_replaced: NotRequired[int]
    actors_replaced: NotRequired[int]
    traffic_received: NotRequired[int]
    traffic_sent: NotRequired[int]


NAMED_FROM = 1e-3
"""Share of a client's steps with broken readings above which a record names it."""

NOT_EVALUATED: Returns = {
    "return_mean": None,
    "return_min": None,
    "return_std": None,
    "return_per_client": None,
    "deterministic_return_mean": None,
    "evaluated": None,
}


def evaluated(answers: Mapping[int, Any], asked: Sequence[int], episodes: int) -> Evaluated:
    """Collect clients' answers to an evaluation.

    An infinite return of one would be the mean over all, and for ever the best there was; so would
    returns be that no world pays. Those that count are in float64, for sums and squares of them.

    Args:
        answers: returns of each client's episodes, or its failure.
        asked: the clients.
        episodes: of each.
    """
    rows, failures = [], {}
    for client in asked:
        row = answers.get(client, Failure("it gave no answer"))
        if isinstance(row, Failure):
            failures[client] = row.reason
        elif not np.isfinite(row).all():
            failures[client] = "its returns are not finite numbers"
        elif np.max(np.abs(row)) > LARGEST_RETURN:
            failures[client] = f"its returns are beyond {LARGEST_RETURN:g}"
        known = np.full(episodes, np.nan) if client in failures else row
        rows.append(np.asarray(known, np.float64))
    return Evaluated(np.stack(rows), failures)


def returns(
    stochastic: Evaluated, deterministic: Evaluated, sample: Sequence[int] | None
) -> Returns:
    """Summarise the global policy's returns for a record.

    Args:
        stochastic: returns of each client's episodes.
        deterministic: likewise, with the mode of the policy.
        sample: whose they are; None: everybody's.
    """
    failures = deterministic.failures | stochastic.failures
    asked = range(len(stochastic.returns)) if sample is None else sample
    known = [row for row, client in enumerate(asked) if client not in failures]
    if not known:
        return {**NOT_EVALUATED, **_unevaluated(failures)}
    if failures:
        sample = [asked[row] for row in known]
    per_client = stochastic.returns[known].mean(axis=1)
    return {
        "return_mean": float(per_client.mean()),
        "return_min": float(per_client.min()),
        "return_std": float(per_client.std()),
        "return_per_client": per_client.tolist(),
        "deterministic_return_mean": float(deterministic.returns[known].mean()),
        "evaluated": None if sample is None else list(sample),
        **_unevaluated(failures),
    }


class _Retried(TypedDict, total=False):
    retried: list[Rejected]


def retried(clients: Sequence[tuple[int, str]]) -> _Retried:
    """Return who was asked again in a round, and why; nothing, if all went well."""
    return {"retried": [{"client": c, "reason": r} for c, r in clients]} if clients else {}


class _HeldBack(TypedDict, total=False):
    held_back: list[Rejected]


def held_back(clients: Mapping[int, str]) -> _HeldBack:
    """Return whose statistics did not count in a round, and why; nothing, if all did."""
    rows: list[Rejected] = [{"client": c, "reason": r} for c, r in sorted(clients.items())]
    return {"held_back": rows} if rows else {}


class _Outliers(TypedDict, total=False):
    outliers: list[Broken]


def outliers(rows: Sequence[ClientRecord]) -> _Outliers:
    """Return the clients with more than a few broken readings; nothing, if there are none."""
    shares = {row["client"]: row["outliers"] / row["steps"] for row in rows}
    named: list[Broken] = [
        {"client": client, "share": share} for client, share in shares.items() if share > NAMED_FROM
    ]
    return {"outliers": named} if named else {}


def no_move(accepted: Mapping[int, Trained]) -> str | None:
    """Return why no policy moved in a round, if the guard rolled back all that was tried; None if
    one did, or none was accepted.

    What else clients sent was taken, and their steps are shorter in the next round.
    """
    guarded = [trained.metrics["guarded"] for trained in accepted.values()]
    if not guarded or not np.all(guarded):
        return None
    divergences = np.concatenate([t.metrics["kl_local"] for t in accepted.values()])
    broken = int(np.sum(~np.isfinite(divergences)))
    why = (
        f"{broken} of them because kl_local was not finite (is learner.learning_rate too large, or "
        "a gradient NaN?)"
        if broken
        else "because kl_local was too large (is learner.learning_rate too large?)"
    )
    return (
        f"no client's policy moved: all {len(divergences)} local iterations were rolled back, {why}"
    )


class _Unevaluated(TypedDict, total=False):
    unevaluated: list[Rejected]


def _unevaluated(failures: Mapping[int, str]) -> _Unevaluated:
    """Nothing, if all is well."""
    if not failures:
        return {}
    return {"unevaluated": [{"client": c, "reason": r} for c, r in sorted(failures.items())]}


def diagnostics(accepted: Mapping[int, Trained]) -> Diagnostics:
    """Return divergences and coefficients, for each client and over all."""
    rows = [_client(client, trained) for client, trained in sorted(accepted.items())]
    names = {name: None for row in rows for name in row["coefficients"]}
    found: Diagnostics = {
        "kl_local": _mean([row["kl_local"] for row in rows]),
        "distance_global": _mean([row["distance_global"] for row in rows]),
        "coefficients": {
            name: float(np.mean([row["coefficients"][name] for row in rows])) for name in names
        },
        "guarded": sum(row["guarded"] for row in rows),
        "clients": rows,
    }
    if own := [row["learner"] for row in rows if "learner" in row]:
        found["learner"] = {
            name: _mean([known for each in own if (known := each[name]) is not None])
            for name in own[0]
        }
    return found


def _client(client: int, trained: Trained) -> ClientRecord:
    metrics = trained.metrics
    # An iteration that the guard rolled back moved nothing and says nothing of divergences.
    kept = ~metrics["guarded"]
    record: ClientRecord = {
        "client": client,
        "kl_local": float(metrics["kl_local"][kept].mean()) if kept.any() else 0.0,
        "distance_global": float(metrics["distance_global"][kept][-1]) if kept.any() else 0.0,
        "guarded": int(metrics["guarded"].sum()),
        "step_scale": float(metrics["step_scale"]),
        "train_return": None if np.isnan(last := metrics["train_return"][-1]) else float(last),
        "steps": int(trained.update.weight),
        "outliers": int(metrics["outliers"].sum()),
        "coefficients": {name: float(c) for name, c in metrics["coefficients"].items()},
    }
    if own := sorted(metrics.keys() - METRICS):
        each = ((name, metrics[name][kept]) for name in own)
        record["learner"] = {name: _mean(x[~np.isnan(x)].tolist()) for name, x in each}
    return record


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
