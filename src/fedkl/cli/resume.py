"""`fedkl resume`: resume a run, a comparison, a tuning or an experiment that was stopped."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from fedkl.cli import cluster, common, console, interrupts
from fedkl.core.errors import UserError
from fedkl.network.flower.environment import require_flower

if TYPE_CHECKING:
    from fedkl.training.directory import RunDirectory
    from fedkl.training.plans import RunsPlan


_ADDS = {
    "compare.toml": "fedkl compare PRESET --run",
    "tune.toml": "fedkl tune PRESET --run",
    "reproduce.toml": "fedkl reproduce NAME --run",
}
"""Commands that make all runs of a plan longer, by its file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_run(parser)
    common.add_rounds(
        parser, "train a run to this round, also a finished one; default: its config's"
    )
    parser.add_argument(
        "--until", type=int, metavar="N", help="stop a run after this round; default: its last"
    )
    common.add_accept_changes(parser)
    common.add_consent(parser)
    common.add_tensorboard(parser)
    common.add_ray(parser, "go on")
    common.add_actors(parser)
    parser.set_defaults(engine=None, trains=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.core.processes import cores, take_cores
        from fedkl.io import compilation
        from fedkl.training.directory import RunDirectory, is_served

    compilation.enable_cache()
    if options.until is not None and options.until < 1:
        raise UserError(f"--until must be at least 1, not {options.until}")
    if None not in (options.until, options.rounds) and options.until > options.rounds:
        raise UserError(f"--until {options.until} is beyond --rounds {options.rounds}")
    if common.complete_addition(options.run):
        console.warn(f"{options.run} was being added to when that was interrupted: it is completed")
    plan = common.plan_in(options.run)
    if plan is None and not (options.run / "config.toml").is_file():
        plan = common.recall_plan(options.run)
        if plan is not None:
            plan.write(options.run)
            console.warn(f"{options.run / plan.FILE} was missing: it is as its runs know it")
    if plan is not None:
        return _resume_several(plan, options)
    take_cores(len(cores()))
    run = RunDirectory.open(options.run)
    common.require_consent(run, options)
    if is_served(run.path):
        cluster.refuse(options)
        _resume_served(run, options)
    else:
        _resume_here(run, options)


def _resume_several(plan: RunsPlan, options: argparse.Namespace) -> None:
    """Resume the runs of a plan, once it is known to be theirs."""
    from fedkl.cli import compare, reproduce, tune, tune_d_global
    from fedkl.training import binding
    from fedkl.training.comparison import runs_in
    from fedkl.training.directory import RunDirectory

    for name, given in (
        ("--until", options.until is not None),
        ("--rounds", options.rounds is not None),
        ("--actors", options.actors is not None),
        ("--accept-changes", options.accept_changes),
    ):
        if given:
            adds = _ADDS.get(plan.FILE) if name == "--rounds" else None
            longer = f"{adds} {options.run} --add --rounds {options.rounds}"
            how = f"; `{longer}` makes all of them longer" if adds else ""
            raise UserError(f"{name} is for a run, and {options.run} holds several{how}")
    for one in runs_in(options.run):
        common.require_consent(RunDirectory.open(one), options)
    binding.require(plan, options.run, console.warn)
    binding.bind_all(plan, options.run)
    resume = {
        "compare.toml": compare.resume_comparison,
        "tune.toml": tune.resume_tuning,
        "tune-d-global.toml": tune_d_global.resume_measurement,
        "reproduce.toml": reproduce.resume_reproduction,
    }[plan.FILE]
    with cluster.place(options) as place:
        resume(options.run, place)


def _resume_here(run: RunDirectory, options: argparse.Namespace) -> None:
    from fedkl.cli.progress import conclude, screen_bar, sinks_of
    from fedkl.server.loop import Federation
    from fedkl.training import lifecycle
    from fedkl.training.callbacks import notify

    with cluster.engine(options) as engine_for:
        chosen = lifecycle.config_of(run, options.rounds)
        callbacks = [bar := screen_bar(options.until), *sinks_of(options)]
        with (
            Federation(chosen, engine_for(chosen)) as federation,
            notify(callbacks, run, chosen.mapping()) as watch,
        ):
            until, accept = options.until, options.accept_changes
            longer = options.rounds is not None
            lifecycle.run_remaining(run, watch, console.warn, federation, until, accept, longer)
    conclude(run, bar.moved)


def _resume_served(run: RunDirectory, options: argparse.Namespace) -> None:
    """Serve what is left of a run to clients over a network."""
    # Only such a run needs Flower.
    require_flower()
    from fedkl.cli.network import Watched, check_servable, connecting, say_farewell
    from fedkl.cli.progress import conclude, screen_bar, sinks_of, summary_of
    from fedkl.network.flower.engine import Flower
    from fedkl.network.flower.serve_settings import ServeSettings
    from fedkl.server.loop import Federation
    from fedkl.training import lifecycle
    from fedkl.training.callbacks import notify

    serving = ServeSettings.read(run.path)
    chosen = lifecycle.config_of(run, options.rounds)
    watched = Watched()
    engine = Flower(chosen, serving.federation, serving.wait, watched.screen)
    # Other processes are not disturbed by ours, up to the end of the last of them.
    with run.lock(), Federation(chosen, engine) as federation, contextlib.ExitStack() as stack:
        bar = screen_bar(options.until, watched.show)
        callbacks = [bar, *sinks_of(options)]
        summary = summary_of(run)
        rounds = chosen.federation.rounds
        # A finished run has nothing left to do, unless it was made longer.
        if summary is None or summary.get("stalled") or summary["rounds"] < rounds:
            check_servable(serving, chosen)
            stack.enter_context(connecting(run, serving, engine, chosen))
        with notify(callbacks, run, chosen.mapping()) as watch:
            until, accept = options.until, options.accept_changes
            longer = options.rounds is not None
            lifecycle.run_remaining(run, watch, console.warn, federation, until, accept, longer)
        if bar.moved:
            say_farewell(run, engine)
    conclude(run, bar.moved)
