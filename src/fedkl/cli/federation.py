"""The commands that train, go on and evaluate."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.cli import cluster, comparing, console, filming, output, reproduce, tuning
from fedkl.cli.console import warn
from fedkl.cli.options import run_named, settings_of
from fedkl.clients.work import Evaluate
from fedkl.config import config, presets
from fedkl.config.config import from_mapping
from fedkl.core.errors import UserError
from fedkl.core.processes import cores, take_cores
from fedkl.core.text import counted, digits
from fedkl.experiments import compare
from fedkl.experiments.d_global import is_measurement
from fedkl.experiments.reproduce.plan import is_reproduction
from fedkl.experiments.tune import is_tuning
from fedkl.io import compilation
from fedkl.io.progress import RoundProgress, is_live, number
from fedkl.server.loop import Federation
from fedkl.training import api, lifecycle, plugin_consent
from fedkl.training.callbacks import Callback, TensorBoardSink, notify
from fedkl.training.comparison import runs_in
from fedkl.training.directory import RunDirectory, is_served
from fedkl.training.plugin_consent import of_run
from fedkl.training.records import is_number
from fedkl.worlds import SharedWorld


def train(options: argparse.Namespace) -> None:
    with cluster.engine(options) as engine_for:
        _train(options, engine_for)


def _train(options: argparse.Namespace, engine_for: cluster.EngineFor) -> None:
    take_cores(len(cores()))
    compilation.enable_cache()
    chosen = config.preset(
        options.preset, options.algorithm, options.seed, settings_of(options), options.plugin
    )
    options.run = options.run or run_named(options, chosen)
    callbacks = [Bar(), *sinks_of(options)]
    conclude(RunDirectory(api.train(chosen, options.run, callbacks, warn, engine_for)))


def resume(options: argparse.Namespace) -> None:
    compilation.enable_cache()
    if options.until is not None and options.until < 1:
        raise UserError(f"--until must be at least 1, not {options.until}")
    if None not in (options.until, options.rounds) and options.until > options.rounds:
        raise UserError(f"--until {options.until} is beyond --rounds {options.rounds}")
    for holds, proceed in (
        (compare.is_comparison, comparing.go_on_comparison),
        (is_tuning, tuning.go_on_tuning),
        (is_measurement, tuning.go_on_measurement),
        (is_reproduction, reproduce.resume_reproduction),
    ):
        if holds(options.run):
            for name, given in (
                ("--until", options.until is not None),
                ("--rounds", options.rounds is not None),
                ("--actors", options.actors is not None),
                ("--accept-changes", options.accept_changes),
            ):
                if given:
                    raise UserError(f"{name} is for a run, and {options.run} holds several")
            for one in runs_in(options.run):
                require_trust(RunDirectory.open(one), options)
            with cluster.place(options) as place:
                return proceed(options.run, place)
    take_cores(len(cores()))
    run = RunDirectory.open(options.run)
    require_trust(run, options)
    if is_served(run.path):
        # Only such a run needs Flower.
        from fedkl.cli import network

        cluster.refuse(options)
        return network.resume(run, options)
    with cluster.engine(options) as engine_for:
        lengthened = lengthen(run, options)
        chosen = of_run(run)
        callbacks = [bar := Bar(options.until), *sinks_of(options)]
        with Federation(chosen, engine_for(chosen)) as federation, notify(callbacks, run) as watch:
            until, accept = options.until, options.accept_changes
            lifecycle.run_remaining(run, watch, warn, federation, until, accept, lengthened)
    conclude(run, bar.moved)


def lengthen(run: RunDirectory, options: argparse.Namespace) -> bool:
    """Make a run as long as the options ask for, if they do."""
    if options.rounds is not None:
        lifecycle.lengthen(run, options.rounds)
    return options.rounds is not None


def require_trust(run: RunDirectory, options: argparse.Namespace) -> None:
    """Sees to it that somebody has agreed to the code that a run names, before it is run, and to
    the port that it opens."""
    if options.trust_plugins:
        plugin_consent.agree(run.path)
    plugin_consent.require(run.config(), run.path)
    plugin_consent.require_served(run.path)


def evaluate(options: argparse.Namespace) -> None:
    compilation.enable_cache()
    run = RunDirectory.open(options.run)
    require_trust(run, options)
    if not is_served(run.path):
        accept = options.accept_changes
        return _evaluate(lifecycle.load(run, warn, best=options.best, accept=accept), options)
    # Only such a run needs Flower.
    from fedkl.cli import network

    with network.connected(run, options.best, options.accept_changes) as federation:
        _evaluate(federation, options)


def _evaluate(federation: Federation, options: argparse.Namespace) -> None:
    if federation.state.round == 0:
        raise UserError(f"{options.run} has no finished round to evaluate yet")
    if options.episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {options.episodes}")
    clients = federation.config.federation.clients
    films = filming.films(options, federation, filming.chosen(options, federation))
    asked = Evaluate(options.episodes, options.deterministic)
    returns, failures = federation.evaluation(asked)()
    per_client = returns.mean(axis=1)
    if failures:
        reasons = "; ".join(f"client {client}: {why}" for client, why in [*failures.items()][:5])
        if len(failures) == clients:
            raise UserError(f"no client has given a return ({reasons})")
        warn(f"{len(failures)} of {clients} clients gave no return, and do not count ({reasons})")
    result = {
        "round": int(federation.state.round),
        "episodes": options.episodes,
        "deterministic": options.deterministic,
        "return_mean": float(np.nanmean(per_client)),
        "return_min": float(np.nanmin(per_client)),
        "return_std": float(np.nanstd(per_client)),
        "return_per_client": [float(r) for r in per_client],
    }
    if films:
        result["video"] = filming.write(options, federation, films)
    rows = [{"client": client, "return": float(r)} for client, r in enumerate(per_client)]
    if output.answered(options, result, rows):
        return
    kind = "deterministic" if options.deterministic else "stochastic"
    worst = int(np.nanargmin(per_client))
    shared = isinstance(federation.config.world, SharedWorld)
    console.out.print(
        f"{kind} global policy after round {result['round']}, "
        f"{counted(options.episodes, 'episode')} {'shared by' if shared else 'on each of'} "
        f"{counted(clients - len(failures), 'client')}:\n"
        f"  mean return            {digits(result['return_mean'], 3)}\n"
        f"  worst client           {digits(result['return_min'], 3)} (client {worst})\n"
        f"  deviation over clients {digits(result['return_std'], 3)}"
    )
    if films:
        console.out.print(filming.in_words(result["video"]), soft_wrap=True)


def sinks_of(options: argparse.Namespace) -> list[Callback]:
    """Where metrics go beside the log."""
    return [TensorBoardSink(options.run / "tensorboard")] if options.tensorboard else []


class Bar(Callback):
    """Shows a run as it trains.

    Attributes:
        moved: whether there was a round to show.
    """

    def __init__(
        self,
        until: int | None = None,
        shown: Callable[[RoundProgress], None] = lambda progress: None,
    ) -> None:
        """Args:
        until: the round after which training stops.
        shown: is given the bar, for whoever has something to show beside it.
        """
        self.moved = False
        self._until = until
        self._shown = shown
        self._open = contextlib.ExitStack()
        self._progress: RoundProgress | None = None

    def on_start(self, run: Path, config: Mapping[str, Any]) -> None:
        screen = console.err if is_live(console.err) else console.talk
        chosen = from_mapping(config)  # a line may be missing that has a default
        rounds = chosen.federation.rounds
        last = rounds if self._until is None else min(self._until, rounds)
        distance = chosen.algorithm.distance
        self._progress = self._open.enter_context(RoundProgress(screen, last, distance))
        self._shown(self._progress)

    def on_round(self, record: Mapping[str, Any]) -> None:
        assert self._progress is not None
        self.moved = True
        self._progress.show(record)

    def on_end(self, summary: Mapping[str, Any] | None) -> None:
        self._open.close()


def conclude(run: RunDirectory, moved: bool = True) -> None:
    """Says what a run came to.

    Args:
        run: its directory.
        moved: whether the command has trained any round of it.
    """
    chosen = from_mapping(run.config())
    label = f"{_trained(chosen)} {chosen.algorithm.name} seed {chosen.seed}"
    rounds = chosen.federation.rounds
    if (summary := summary_of(run)) is None:
        console.out.print(
            f"{label}: stopped after round {len(run.metrics.read())} of {rounds}; run directory "
            f"{run.path}",
            soft_wrap=True,
        )
        return
    console.out.print(
        f"{label}: return {number(summary['return_mean'])} after round {summary['rounds']} "
        f"(best {number(summary['best_return_mean'])} after round {summary['best_round']}), "
        f"{summary['seconds']:.0f} s; run directory {run.path}",
        soft_wrap=True,
    )
    if again := summary["refused_again_and_again"]:
        worst = ", ".join(
            f"client {c['client']} ({counted(c['times'], 'round')})" for c in again[:5]
        )
        warn(f"refused again and again: {worst}; see `rejected` in {run.metrics.path}")
    if not moved:
        console.out.print(f"{run.path} is finished; --rounds N trains longer", soft_wrap=True)


def _trained(chosen: config.Config) -> str:
    """The preset of a run, and its world if that is not the preset's own."""
    try:
        own = reduce(presets.merged, presets.layers(chosen.preset).values())
    except UserError:  # a file of the user's that is gone by now
        return chosen.preset
    world = chosen.world.name
    same = presets.table(own, "world").get("name", world) == world
    return chosen.preset if same else f"{world} from {chosen.preset}"


def summary_of(run: RunDirectory) -> dict[str, Any] | None:
    """What a run says that it came to; None if it has not come to its end.

    Raises:
        UserError: it does not say all of it.
    """
    if (summary := run.summary()) is None:
        return None
    if lacking := _SUMMED.keys() - {n for n, fits in _SUMMED.items() if fits(summary.get(n))}:
        raise UserError(
            f"{run.path / 'summary.json'} is incomplete: it has no sensible {min(lacking)}; remove "
            f"it, and resuming writes it again"
        )
    return summary


_SUMMED: dict[str, Callable[[Any], bool]] = {
    "return_mean": lambda value: value is None or is_number(value),
    "best_return_mean": lambda value: value is None or is_number(value),
    "rounds": is_number,
    "best_round": is_number,
    "seconds": is_number,
    "refused_again_and_again": lambda value: (
        isinstance(value, list)
        and all(isinstance(v, dict) and {"client", "times"} <= v.keys() for v in value)
    ),
}
"""What is said of a summary, and what that may be."""
