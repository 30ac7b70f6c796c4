"""The tabular lab: the argmax in closed form against HiGHS, and how far each algorithm gets.

See README.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from measuring import emit, machine, run_on_cores, spread

from fedkl.tabular import (
    Exact,
    Family,
    best_response,
    families,
    iterate,
    linear_programme,
    objectives,
    optimum,
)
from fedkl.tabular.iteration import ALGORITHMS
from fedkl.tabular.objectives import Objective

SIZES = ((10, 4), (100, 4), (100, 20))
CASES = 20
"""Objectives for each size; half of them are far from stationary."""

GAMMAS = (0.9, 0.99)
ROUNDS = {
    "paper": 100,
    "second-order": 5000,
    "second-order-exact": 5000,
    "common-radius": 500,
    "line-search": 20,
    "qavg": 2000,
    "pavg": 100,
}


def compare_argmax(states: int, actions: int, repetitions: int) -> dict[str, Any]:
    """Both ways to one argmax, in turn, on objectives of the paper."""
    cases = [_objective(states, actions, seed) for seed in range(CASES)]
    closed, programme, off = [], [], []
    for _ in range(repetitions):
        for objective in cases:
            seconds, ours = _timed(best_response, objective)
            closed.append(seconds)
            seconds, theirs = _timed(linear_programme.best_response, objective)
            programme.append(seconds)
            off.append(float(abs(objective(ours) - objective(theirs))))
    moved = [bool((best_response(objective) != objective.policy).any()) for objective in cases]
    batch = Objective(*(np.stack([getattr(o, f.name) for o in cases]) for f in fields(Objective)))
    batched = [_timed(best_response, batch)[0] / CASES for _ in range(repetitions)]
    return {
        "states": states,
        "actions": actions,
        "agents_that_move": sum(moved),
        "agents": CASES,
        "closed_form_ms": spread([1e3 * t for t in closed]),
        "closed_form_in_a_batch_ms": spread([1e3 * t for t in batched]),
        "linear_programme_ms": spread([1e3 * t for t in programme]),
        "times_faster": spread([b / a for a, b in zip(closed, programme, strict=True)]),
        "largest_difference": max(off),
    }


def _objective(states: int, actions: int, seed: int) -> Objective:
    """An agent's h_n: of one that moves for even seeds, and of one that stays for odd ones."""
    gamma = 0.1 if seed % 2 == 0 else 0.9
    family = families.random(
        agents=2, states=states, actions=actions, gamma=gamma, seed=seed, level=0.001
    )
    policy = np.random.default_rng([seed, 1]).dirichlet(np.ones(actions), states)
    objective = objectives.paper(Exact(family, policy))
    return objective[0]


def race(gamma: float, heterogeneity: Any, count: int, most_rounds: int) -> dict[str, Any]:
    """The share of the possible improvement that each algorithm reaches."""
    batch = Family.stack(
        [
            families.random(
                agents=5, states=10, actions=4, gamma=gamma, seed=seed, heterogeneity=heterogeneity
            )
            for seed in range(count)
        ]
    )
    best = optimum.search(batch)
    result: dict[str, Any] = {"gamma": gamma, "heterogeneity": heterogeneity, "families": count}
    for name, usual in ROUNDS.items():
        rounds = min(usual, most_rounds)
        seconds, path = _timed(iterate, batch, ALGORITHMS[name], rounds)
        shares = best.share(path.returns[0], path.returns)
        reached = shares.mean(axis=1) >= 0.9
        result[name] = {
            "rounds": rounds,
            "share": spread([float(share) for share in shares[-1]]),
            "share_mean": float(shares[-1].mean()),
            "rounds_to_90_percent_on_average": int(reached.argmax()) if reached.any() else None,
            "monotone": path.monotone,
            "milliseconds_a_round_and_family": 1e3 * seconds / rounds / count,
        }
    return result


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds that a call takes, and what it returns."""
    started = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--families", type=int, default=20, help="in each race")
    parser.add_argument(
        "--rounds", type=int, default=max(ROUNDS.values()), help="of an algorithm at most"
    )
    parser.add_argument("--out", type=Path, help="where to write the JSON too")
    options = parser.parse_args()
    run_on_cores(1)
    argmax = [compare_argmax(*size, options.repetitions) for size in SIZES]
    races = [
        race(gamma, heterogeneity, options.families, options.rounds)
        for gamma in GAMMAS
        for heterogeneity in ("P", "all")
    ]
    lines = [
        f"|S| = {a['states']}, |A| = {a['actions']}: closed form "
        f"{a['closed_form_ms']['median']:.3f} ms, HiGHS "
        f"{a['linear_programme_ms']['median']:.2f} ms, {a['times_faster']['median']:.0f} times "
        f"as fast, objectives within {a['largest_difference']:.0e}"
        for a in argmax
    ]
    for r in races:
        shares = ", ".join(f"{name} {r[name]['share_mean']:.3f}" for name in ROUNDS)
        lines.append(f"gamma {r['gamma']}, {r['heterogeneity']} differs: {shares}")
    packages = ("numpy", "scipy")
    emit(
        {"argmax": argmax, "races": races, "machine": machine(*packages)},
        "\n".join(lines),
        options.out,
    )


if __name__ == "__main__":
    main()
