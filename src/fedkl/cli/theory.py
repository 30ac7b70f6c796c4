"""`fedkl theory`: verify the paper's theory on finite MDPs, iterate, and report, without JAX."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkl.cli import common, console, interrupts, output
from fedkl.core.errors import UserError
from fedkl.core.text import counted, did_you_mean
from fedkl.io import tables

if TYPE_CHECKING:
    from fedkl.cli.parser import Parser
    from fedkl.tabular import Family
    from fedkl.tabular.claims import Claim
    from fedkl.tabular.iteration import Trajectory
    from fedkl.tabular.optimum import Optimum
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

_ONE_STEP_FOR_ALL = ("second-order-exact", "line-search")


def add_arguments(parser: Parser) -> None:
    parser.description = "the paper's theory on finite MDPs, computed exactly"
    commands = parser.add_commands("theory_command")

    sub = commands.add("verify", "check every claim on random families")
    _add_families(sub, 2000)
    sub.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME",
        help="only this, such as theorem-1; may be repeated; default: all, whose names "
        "`fedkl theory verify --families 1` prints",
    )
    sub.add_argument(
        "--family",
        metavar="FILE.npz",
        help="check on this family, drawing only policies and steps, --families times; default: "
        "random families",
    )
    common.add_formats(sub)

    sub = commands.add("iterate", "run a tabular algorithm round by round")
    sub.add_argument(
        "--algorithm",
        default="second-order-exact",
        metavar="NAME",
        help="paper, second-order, second-order-exact (the default), common-radius, line-search, "
        "anchored, own-states, qavg or pavg",
    )
    sub.add_argument("--rounds", type=int, default=100, metavar="R", help="how many")
    sub.add_argument(
        "--family", default="random", metavar="WHICH", help="random, grid, chain or FILE.npz"
    )
    sub.add_argument("--gamma", type=float, metavar="G", help="the discount; default: 0.9")
    sub.add_argument(
        "--heterogeneity",
        metavar="WHAT",
        help="of a random family: none, mu, P, R or all; default: all",
    )
    sub.add_argument(
        "--level", type=float, metavar="L", help="of heterogeneity, 0 to 1; default: 1"
    )
    sub.add_argument("--agents", type=int, metavar="N", help="how many; default: 5")
    sub.add_argument(
        "--states",
        type=int,
        metavar="N",
        help="of a random family or a chain; default: 10 of a random family, 6 of a chain",
    )
    sub.add_argument("--actions", type=int, metavar="N", help="of a random family; default: 4")
    sub.add_argument(
        "--concentration", type=float, metavar="C", help="of random transitions; default: 1"
    )
    sub.add_argument(
        "--participants", type=int, metavar="K", help="agents drawn in each round; default: all"
    )
    _add_seed(sub, "of a random family, and of who takes part")
    common.add_formats(sub)

    sub = commands.add("tables", "print the tables of docs/theory.md, as Markdown")
    sub.add_argument(
        "table",
        nargs="?",
        choices=("claims", "own-states"),
        default="claims",
        help="of the claims (the default), or on whose states a penalty looks at",
    )
    _add_families(sub, 2000)

    sub = commands.add("report", "write a page with figures on all of it")
    sub.add_argument("directory", type=Path, metavar="DIR", help="where the page goes")
    _add_families(sub, 1000)


def _add_seed(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="S", help=help)


def _add_families(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument("--families", type=int, default=default, metavar="N", help="how many")
    _add_seed(parser, "of the first family")


def run(options: argparse.Namespace) -> None:
    commands = {"verify": _verify, "iterate": _iterate, "tables": _tables, "report": _report}
    commands[options.theory_command](options)


def _verify(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.io.progress import bar
        from fedkl.tabular import verification

    claims = _claims(options.claim)
    family = None if options.family is None else _one_family(options.family)
    with bar(console.err, "families", options.families) as show:
        results = verification.verify(options.families, options.seed, claims, show, family)
    claims_of = [result.record() for result in results]
    record = {
        "families": options.families,
        "family": options.family,
        "seed": options.seed,
        "claims": claims_of,
    }
    if not output.answered(options, record, claims_of):
        _print_claims(results, options.family)
    if wrong := [result.claim.name for result in results if result.contradicts]:
        console.say(f"this contradicts docs/theory.md: {', '.join(wrong)}")
        sys.exit(1)


def _iterate(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.tabular import optimum
        from fedkl.tabular.iteration import ALGORITHMS, draw_participants, iterate

    if options.algorithm not in ALGORITHMS:
        hint = did_you_mean(options.algorithm, ALGORITHMS)
        available = ", ".join(ALGORITHMS)
        raise UserError(f"--algorithm must be one of {available}, not {options.algorithm}{hint}")
    family, settings = _family(options)
    weights = None
    if options.participants is not None:
        if options.algorithm in _ONE_STEP_FOR_ALL:
            raise UserError(
                f"{options.algorithm} makes one step for all agents: --participants has no meaning"
            )
        weights = draw_participants(family, options.participants, options.seed)
    path = iterate(family, options.algorithm, options.rounds, weights=weights)
    best = optimum.search(family)
    share = best.share(path.returns[0], path.returns)
    record = {
        "algorithm": options.algorithm,
        "family": options.family,
        "settings": settings,
        "participants": options.participants,
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
    if not output.answered(options, record, _rows(path, share)):
        _print_rounds(options.algorithm, path, share, best)


def _tables(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.report.theory import tables as of_theory

    if options.table == "claims":
        found = [of_theory.claims_table(options.families, options.seed)]
    else:
        found = [of_theory.coefficients_table(), of_theory.race_table()]
    for text in ("\n\n".join(found)).splitlines():
        console.out.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)


def _report(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.report.theory import write_theory_report

    page = write_theory_report(
        options.directory,
        options.families,
        options.seed,
        show=lambda line: console.out.print(line, soft_wrap=True),
    )
    console.out.print(f"report: {page}", soft_wrap=True)


def _family(options: argparse.Namespace) -> tuple[Family, dict[str, Any]]:
    """Make the family that `iterate` runs on, and tell what it was made with."""
    from fedkl.tabular import families

    kind = options.family if options.family in _FAMILIES else "file"
    settings = dict(_FAMILIES[kind])
    for name in _FAMILIES["random"]:
        given = getattr(options, name)
        if given is not None and name not in settings:
            raise UserError(f"--{name} is not an option of --family {options.family}")
        if given is not None:
            settings[name] = given
    if kind == "file":
        if not options.family.endswith(".npz"):
            raise UserError(
                f"--family must be random, grid, chain or FILE.npz, not {options.family}"
            )
        return _one_family(options.family), settings
    if kind == "random":
        settings["seed"] = options.seed
        return families.random(**settings), settings
    make = families.windy_grid if kind == "grid" else families.chain
    return make(**settings), settings


def _one_family(path: str) -> Family:
    from fedkl.tabular import load

    family = load(path)
    if family.batch:
        raise UserError(f"{path} holds a batch of families; one is needed")
    return family


def _claims(names: Sequence[str]) -> Sequence[Claim]:
    from fedkl.tabular.claims import CLAIMS

    known = {claim.name: claim for claim in CLAIMS}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UserError(f"--claim must be one of {', '.join(known)}, not {name}{hint}")
    return [known[name] for name in names] or CLAIMS


def _print_claims(results: Sequence[Result], family: str | None) -> None:
    titles = ("claim", "checks", "violations", "penalty/gap", "verdict")
    rows = [
        (
            result.claim.name,
            f"{result.checks:,}",
            f"{result.violations:,}",
            "" if result.tightest is None else f"{result.tightest:.2f} | {result.typical:.1f}",
            f"{result.outcome}{_remark(result)}",
        )
        for result in results
    ]
    below = [f"{result.claim.source}: {result.claim.statement}" for result in results]
    tables.show(tables.Table(titles, rows, (0, 4), notes=below), console.out)
    console.out.print(
        "\npenalty/gap: what a bound takes off over what it has to cover, least | median; 1 is "
        "attained, less is too little.\npromises: to how many policies a bound promises an "
        "improvement at gamma >= 2 - sqrt(3); vacuous: to none.\nAA_n is agent n's policy "
        "advantage; docs/theory.md has all notation and proofs.\n"
        "A counterexample of seed S, alone: fedkl theory verify --families 1 --seed S"
        + ("" if family is None else f" --family {shlex.quote(family)}"),
        soft_wrap=True,
    )


def _remark(result: Result) -> str:
    if result.counterexample is not None:
        return f" (seed {result.counterexample})"
    return f" (promises {result.promised / result.asked:.0%})" if result.promised else ""


def _print_rounds(algorithm: str, path: Trajectory, share: FloatArray, best: Optimum) -> None:
    rounds = len(path.returns) - 1
    lines = []
    for index in _shown(rounds):
        cells = [str(index), f"{path.returns[index]:.5f}", f"{share[index]:.3f}", "", "", ""]
        if index:
            promised = path.guarantees[index - 1]
            guarantee = "nothing" if math.isnan(promised) else f"{promised:.3g}"
            moved = f"{path.moved[index - 1]:.0%}"
            cells[3:] = [guarantee, moved, f"{path.tv_max[index - 1]:.4f}"]
        lines.append(cells)
    titles = ("round", "return", "share", "guaranteed", "agents moved", "TV max")
    tables.show(tables.Table(titles, lines, ()), console.out)
    kept = "no round lost anything" if path.monotone else "some rounds lost"
    console.out.print(
        f"{algorithm}: return {path.returns[0]:.5f} to {path.returns[-1]:.5f} in "
        f"{counted(rounds, 'round')}, {share[-1]:.1%} of the possible improvement; {kept}.\n"
        f"Best return found from many starts {best.found:.5f}; no policy for all agents can exceed "
        f"{best.ceiling:.5f}.",
        soft_wrap=True,
    )


def _rows(path: Trajectory, share: FloatArray) -> list[dict[str, Any]]:
    """Make a row for each round, for machines."""
    rows = []
    for index, (reached, part) in enumerate(zip(path.returns, share, strict=True)):
        after = {
            "guarantee": path.guarantees,
            "share_of_agents_that_moved": path.moved,
            "tv_max": path.tv_max,
        }
        row: dict[str, Any] = {"round": index, "return": float(reached), "share": float(part)}
        for name, values in after.items():
            known = index > 0 and not math.isnan(values[index - 1])
            row[name] = float(values[index - 1]) if known else None
        rows.append(row)
    return rows


def _shown(rounds: int) -> list[int]:
    """Choose the rounds that are shown: 0, 1, 2, 5, 10, 20, 50, ... and the last."""
    steps = [m * 10**e for e in range(len(str(rounds))) for m in (1, 2, 5)]
    return sorted({0, rounds, *(s for s in steps if s < rounds)})
