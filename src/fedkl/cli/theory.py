"""The commands about theory: `fedkl theory verify`, `iterate` and `report`. They need no JAX."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkl.cli import console
from fedkl.errors import UserError
from fedkl.progress import bar
from fedkl.runs import strict_json
from fedkl.tabular import Family, families, load, optimum, verification
from fedkl.tabular.iteration import ALGORITHMS, Trajectory
from fedkl.tabular.iteration import iterate as run_rounds
from fedkl.tabular.selection import draw_participants
from fedkl.tabular.validation import FloatArray
from fedkl.tabular.verification import Result

# Which options of `iterate` each kind of family takes, and what they are if not given.
_FAMILIES: dict[str, dict[str, Any]] = {
    "random": {
        "agents": 5,
        "states": 10,
        "actions": 4,
        "gamma": 0.9,
        "heterogeneity": "all",
        "level": 1.0,
        "concentration": 1.0,
    },
    "grid": {"agents": 5, "gamma": 0.9, "level": 1.0},
    "chain": {"agents": 5, "states": 6, "gamma": 0.9, "level": 1.0},
    "file": {},
}

# Their step is along M, which only all agents together know.
_NEED_EVERYBODY = ("second-order-exact", "line-search")


def verify(options: argparse.Namespace) -> None:
    _check_families(options)
    with bar(console.err, "families", options.families) as show:
        results = verification.verify(options.families, options.seed, show=show)
    if options.json:
        record = {
            "families": options.families,
            "seed": options.seed,
            "claims": [result.record() for result in results],
        }
        console.out.print(strict_json.encode(record, indent=2).decode(), soft_wrap=True)
    else:
        _print_claims(results)
    if wrong := [result.claim.name for result in results if result.contradicts]:
        console.say(f"this contradicts docs/theory.md: {', '.join(wrong)}")
        sys.exit(1)


def iterate(options: argparse.Namespace) -> None:
    if options.algorithm not in ALGORITHMS:
        raise UserError(f"--algorithm must be one of {', '.join(ALGORITHMS)}")
    if options.rounds < 0:
        raise UserError(f"--rounds must be at least 0, not {options.rounds}")
    family = _family(options)
    weights = None
    if options.participants is not None:
        if options.algorithm in _NEED_EVERYBODY:
            raise UserError(
                f"{options.algorithm} needs every agent in every round: no --participants"
            )
        weights = draw_participants(family, options.participants, options.seed)
    path = run_rounds(family, ALGORITHMS[options.algorithm](), options.rounds, weights=weights)
    best = optimum.search(family)
    share = best.share(path.returns[0], path.returns)
    if options.json:
        record = {
            "algorithm": options.algorithm,
            "family": options.family,
            "gamma": float(family.gamma),
            "returns": path.returns,
            "share_of_possible_improvement": share,
            "guarantees": path.guarantees,
            "share_of_agents_that_moved": path.moved,
            "tv_max": path.tv_max,
            "monotone": path.monotone,
            "best_return_found": best.found,
            "ceiling": best.ceiling,
            "policy": path.policy,
        }
        console.out.print(strict_json.encode(record).decode(), soft_wrap=True)
    else:
        _print_rounds(options.algorithm, path, share, best)


def report(options: argparse.Namespace) -> None:
    from fedkl.report.theory import write_theory_report

    _check_families(options)
    page = write_theory_report(
        options.directory,
        options.families,
        options.seed,
        show=lambda line: console.out.print(line, soft_wrap=True),
    )
    console.out.print(f"report: {page}", soft_wrap=True)


def _check_families(options: argparse.Namespace) -> None:
    if options.families < 1:
        raise UserError(f"--families must be at least 1, not {options.families}")
    if options.seed < 0:
        raise UserError(f"--seed must be at least 0, not {options.seed}")


def _family(options: argparse.Namespace) -> Family:
    kind = options.family if options.family in _FAMILIES else "file"
    if options.seed < 0:
        raise UserError(f"--seed must be at least 0, not {options.seed}")
    taken = dict(_FAMILIES[kind])
    for name in _FAMILIES["random"]:
        given = getattr(options, name)
        if given is not None and name not in taken:
            raise UserError(f"--{name} is not an option of --family {options.family}")
        if given is not None:
            taken[name] = given
    if kind == "file":
        if not options.family.endswith(".npz"):
            raise UserError(f"--family must be random, grid, chain or FILE.npz: {options.family}")
        family = load(options.family)
        if family.batch:
            raise UserError(f"{options.family} holds a batch of families; iterate takes one")
        return family
    if kind == "random":
        return families.random(**taken, seed=options.seed)
    return families.windy_grid(**taken) if kind == "grid" else families.chain(**taken)


def _print_claims(results: Sequence[Result]) -> None:
    header = f"{'claim':<28}{'checks':>9}{'violations':>12}{'penalty/gap':>18}  verdict"
    console.out.print(header)
    for result in results:
        claim = result.claim
        tight = "" if result.tightest is None else f"{result.tightest:.2f} | {result.typical:.1f}"
        seed = "" if result.counterexample is None else f" (seed {result.counterexample})"
        console.out.print(
            f"{claim.name:<28}{result.checks:>9,}{result.violations:>12,}{tight:>18}  "
            f"{result.outcome}{seed}",
            soft_wrap=True,
        )
        console.out.print(f"    {claim.source}: {claim.statement}", soft_wrap=True)
    console.out.print(
        "\npenalty/gap: how many times what it covers a bound takes off, least | median; 1 is "
        "attained.\nvacuous: no policy is promised any improvement at gamma >= 2 - sqrt(3).\n"
        "A counterexample of seed S, alone: fedkl theory verify --families 1 --seed S",
        soft_wrap=True,
    )


def _print_rounds(
    algorithm: str, path: Trajectory, share: FloatArray, best: optimum.Optimum
) -> None:
    rounds = len(path.returns) - 1
    columns = f"{'round':>7}{'return':>12}{'share':>9}{'guaranteed':>14}"
    console.out.print(f"{columns}{'agents moved':>14}{'TV max':>10}")
    for index in _shown(rounds):
        line = f"{index:>7}{path.returns[index]:>12.5f}{share[index]:>9.3f}"
        if index:
            promised = path.guarantees[index - 1]
            guarantee = "nothing" if np.isnan(promised) else f"{promised:.3g}"
            line += f"{guarantee:>14}{path.moved[index - 1]:>14.0%}{path.tv_max[index - 1]:>10.4f}"
        console.out.print(line, soft_wrap=True)
    kept = "no round lost anything" if path.monotone else "some rounds lost"
    console.out.print(
        f"{algorithm}: return {path.returns[0]:.5f} to {path.returns[-1]:.5f} in {rounds} rounds, "
        f"{share[-1]:.1%} of the possible improvement; {kept}.\n"
        f"Best return found from many starts {best.found:.5f}; no policy for all agents can exceed "
        f"{best.ceiling:.5f}.",
        soft_wrap=True,
    )


def _shown(rounds: int) -> list[int]:
    """0, 1, 2, 5, 10, 20, 50, ... and the last."""
    steps = [m * 10**e for e in range(len(str(rounds))) for m in (1, 2, 5)]
    return sorted({0, rounds, *(s for s in steps if s < rounds)})
