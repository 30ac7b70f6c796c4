"""`fedkl heterogeneity`: measure how heterogeneous the clients of a run are."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from fedkl.cli import common, console, interrupts, output
from fedkl.core.errors import UserError
from fedkl.io import tables

if TYPE_CHECKING:
    from fedkl.config.config import Config
    from fedkl.server.heterogeneity import LevelRecord
    from fedkl.server.loop import Federation
    from fedkl.training.directory import RunDirectory

_FIRST = 8
"""Clients in the table, from either end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_run(parser)
    parser.add_argument(
        "--round", type=int, metavar="R", help="as after round R; default: the last"
    )
    parser.add_argument(
        "--trajectories", type=int, metavar="M", help="episodes of each client; default: its run's"
    )
    common.add_accept_changes(parser)
    common.add_consent(parser)
    common.add_plot(parser)
    common.add_formats(parser)
    parser.set_defaults(computes=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.io import compilation
        from fedkl.server.heterogeneity import rows

    if options.plot is not None:
        from fedkl.report.pictures import check_target

        check_target(options.plot)
    compilation.enable_cache()
    with _federation(options) as federation:
        measured = federation.measure()
        t, n = int(federation.state.round), federation.config.federation.clients
    for client, reason in sorted(measured.refused.items()):
        console.say(f"client {client} is left out: {reason}")
    found = rows(measured.levels())
    if not found:
        raise UserError("no client could be measured")
    result = {
        "round": t,
        "trajectories": federation.config.heterogeneity.trajectories,
        "steps": measured.steps,
        "bytes": measured.bytes,
        "clients": found,
    }
    for_people = not output.answered(options, result, found)
    if for_people:
        _show(found, f"after round {t}, {len(found)} of {n} clients")
    if options.plot is not None:
        from fedkl.report.clients import write_levels

        write_levels(options.plot, found, f"{options.run.name}, after round {t}")
        if for_people:
            console.out.print(f"figure: {options.plot}", soft_wrap=True)


def _federation(options: argparse.Namespace) -> Federation:
    """Restore the run's federation as it was after the round that is asked for."""
    from fedkl.io.progress import RoundProgress
    from fedkl.server.loop import Federation
    from fedkl.training import lifecycle
    from fedkl.training.directory import RunDirectory
    from fedkl.training.records import require_sensible

    run = RunDirectory.open(options.run)
    common.require_consent(run, options)
    config = _config(run, options)
    done = 0
    if finished := run.metrics.read():
        require_sensible(run.metrics, finished[-1])
        done = finished[-1]["round"]
    if options.round is not None and not 0 <= options.round <= done:
        raise UserError(f"--round must be from 0 to {done}, where the run stands")
    if options.round is not None:
        config = replace(config, evaluation=replace(config.evaluation, every=10**9))
    federation = lifecycle.load(
        run, console.say, Federation(config), options.round, accept=options.accept_changes
    )
    # Only the last rounds are kept; the others follow from the config.
    if options.round is not None and int(federation.state.round) < options.round:
        with RoundProgress(console.err, options.round) as progress:
            while int(federation.state.round) < options.round:
                progress.show(federation.run_round())
    return federation


def _config(run: RunDirectory, options: argparse.Namespace) -> Config:
    from fedkl.config.config import from_mapping
    from fedkl.heterogeneity import check_basis
    from fedkl.training.plugin_consent import of_run

    mapping = run.config()
    config = of_run(run)
    check_basis(config.federation.sharing())  # before rounds are trained again
    if options.trajectories is None:
        return config
    given = mapping.get("heterogeneity", {}) | {"trajectories": options.trajectories}
    return from_mapping(mapping | {"heterogeneity": given}, config.pretrained)


def _show(found: list[LevelRecord], title: str) -> None:
    """Print a table of those who differ most and least, and what holds for all."""
    import numpy as np

    titles = ("client", "||DA||", "||DB||", "ratio", "G", "alignment")
    lines: list[tuple[str, ...]] = []
    ordered = sorted(found, key=lambda row: -row["learning_potential"])
    shown = ordered if len(ordered) <= 2 * _FIRST else [*ordered[:_FIRST], *ordered[-_FIRST:]]
    for i, row in enumerate(shown):
        if i == _FIRST and len(shown) < len(ordered):
            lines.append(("...",) * len(titles))
        ratio = row["ratio"]
        lines.append(
            (
                str(row["client"]),
                f"{row['advantage']:.4g}",
                f"{row['heterogeneity']:.4g}",
                "-" if ratio is None or row["heterogeneity"] < 0 else f"{ratio:.3g}",
                f"{row['learning_potential']:.4g}",
                f"{row['alignment']:.4g}",
            )
        )
    tables.show(tables.Table(titles, lines, (), title), console.out)
    measured = {
        "G": np.array([row["learning_potential"] for row in found]),
        "alignment": np.array([row["alignment"] for row in found]),
    }
    noisy = sum(min(row["advantage"], row["heterogeneity"]) < 0 for row in found)
    if noisy:
        console.out.print(
            f"Norms below 0 ({noisy} of {len(found)} clients) are noise around small ones: a "
            "square came out below 0. More --trajectories help.",
            width=min(80, console.out.width),
        )
    for name, values in measured.items():
        below = int((values < 0).sum())
        console.out.print(f"{name}: mean {values.mean():.4g}, below 0 for {below} of {len(found)}")
