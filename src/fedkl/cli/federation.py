"""The commands that train, evaluate, compare and report."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rich.table import Table

from fedkl import compare, compilation, config, training, workers
from fedkl.algorithms import ALGORITHMS
from fedkl.cli import console, tuning
from fedkl.cli.options import seeds_of, settings_of
from fedkl.drawing import check_target, write_video
from fedkl.errors import UserError
from fedkl.plugins import load_plugin
from fedkl.progress import RoundProgress, bar, number
from fedkl.runs import RunDirectory, TensorBoardSink, strict_json
from fedkl.server.aggregation import REDUCERS, STEPS, TRANSFORMS
from fedkl.server.loop import Federation
from fedkl.server.records import Record
from fedkl.server.selection import SELECTORS
from fedkl.tuning.d_global import is_measurement
from fedkl.tuning.plan import is_tuning
from fedkl.worlds import WORLDS, SharedWorld


def train(options: argparse.Namespace) -> None:
    compilation.enable_cache()
    chosen = config.preset(
        options.preset, options.algorithm, options.seed, settings_of(options), options.plugin
    )
    if options.run is None:
        name = Path(options.preset).name.removesuffix(".toml").replace(":", "-")
        options.run = Path("runs") / f"{name}-{chosen.algorithm.name}-seed{chosen.seed}"
    # What cannot work is refused before anything is written.
    with Federation(chosen) as federation:
        sink = _sink(options)
        _go_on(training.create(chosen, options.run), federation, sink)


def resume(options: argparse.Namespace) -> None:
    compilation.enable_cache()
    if options.until is not None and options.until < 1:
        raise UserError(f"--until must be at least 1, not {options.until}")
    for holds, go_on in (
        (compare.is_comparison, _compare),
        (is_tuning, tuning.go_on_tuning),
        (is_measurement, tuning.go_on_measurement),
    ):
        if holds(options.run):
            if options.until is not None:
                raise UserError(f"--until is for a run, and {options.run} holds several")
            return go_on(options.run)
    run = RunDirectory.open(options.run)
    with Federation(config.from_mapping(run.config())) as federation:
        _go_on(run, federation, _sink(options), options.until)


def evaluate(options: argparse.Namespace) -> None:
    compilation.enable_cache()
    run = RunDirectory.open(options.run)
    federation = training.load(run, _warn)
    if federation.state.round == 0:
        raise UserError(f"{options.run} has no finished round to evaluate yet")
    if options.episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {options.episodes}")
    clients = federation.config.federation.clients
    filmed = 0 if options.client is None else options.client
    if options.client is not None and options.video is None:
        raise UserError("--client says whose world is filmed, and needs --video")
    if not 0 <= filmed < clients:
        raise UserError(f"--client must be from 0 to {clients - 1}, not {filmed}")
    film = None
    if options.video is not None:
        check_target(options.video)
        film = federation.film(filmed, options.deterministic)
    returns = federation.evaluate(options.episodes, options.deterministic)
    per_client = returns.mean(axis=1)
    result = {
        "round": int(federation.state.round),
        "episodes": options.episodes,
        "deterministic": options.deterministic,
        "return_mean": float(per_client.mean()),
        "return_min": float(per_client.min()),
        "return_std": float(per_client.std()),
        "return_per_client": [float(r) for r in per_client],
    }
    if film is not None:
        write_video(options.video, film.frames, film.frames_per_second)
        result["video"] = {
            "file": str(options.video),
            "client": filmed,
            "return": film.episode_return,
        }
    if options.json:
        console.out.print(strict_json.encode(result).decode(), soft_wrap=True)
        return
    kind = "deterministic" if options.deterministic else "stochastic"
    worst = int(per_client.argmin())
    shared = isinstance(federation.config.world, SharedWorld)
    console.out.print(
        f"{kind} global policy after round {result['round']}, {options.episodes} episodes "
        f"{'shared by' if shared else 'on each of'} {clients} clients:\n"
        f"  mean return            {per_client.mean():.3f}\n"
        f"  worst client           {per_client.min():.3f} (client {worst})\n"
        f"  deviation over clients {per_client.std():.3f}"
    )
    if film is not None:
        console.out.print(
            f"video: {options.video} (client {filmed}, return {film.episode_return:.3f})",
            soft_wrap=True,
        )


def compare_(options: argparse.Namespace) -> None:
    seeds = seeds_of(options)
    if len(set(options.algorithms)) < len(options.algorithms):
        raise UserError("--algorithms names an algorithm twice")
    settings = settings_of(options)
    plan = compare.Plan(
        preset=options.preset,
        algorithms=tuple(options.algorithms),
        seeds=seeds,
        jobs=options.jobs,
    )
    compare.create(
        options.run,
        plan,
        lambda algorithm, seed: config.preset(
            options.preset, algorithm, seed, settings, options.plugin
        ),
    )
    _compare(options.run)


def report(options: argparse.Namespace) -> None:
    from fedkl.report import load_runs, print_table, write_report

    if options.target is not None and not math.isfinite(options.target):
        raise UserError(f"--target must be a finite number, not {options.target}")
    runs = load_runs(options.run)
    page = write_report(options.run, runs, options.target)
    print_table(runs, console.out, options.target)
    console.out.print(f"report: {page}", soft_wrap=True)


def list_(options: argparse.Namespace) -> None:
    for path in options.plugin:
        load_plugin(path)
    for title, lines in (
        ("presets", config.presets()),
        ("algorithms", {name: ALGORITHMS[name].summary for name in ALGORITHMS}),
        ("worlds", {name: WORLDS[name].summary for name in WORLDS}),
        ("reducers (aggregation.reduce)", {name: REDUCERS[name].summary for name in REDUCERS}),
        ("transforms (aggregation.each)", {n: TRANSFORMS[n].summary for n in TRANSFORMS}),
        ("server steps (aggregation.step)", {name: STEPS[name].summary for name in STEPS}),
        ("selectors (selection.name)", {name: SELECTORS[name].summary for name in SELECTORS}),
    ):
        console.out.print(title)
        table = Table.grid(padding=(0, 2))
        for name, summary in lines.items():
            table.add_row(f"  {name}", summary)
        console.out.print(table)


def _sink(options: argparse.Namespace) -> TensorBoardSink | None:
    return TensorBoardSink(options.run / "tensorboard") if options.tensorboard else None


def _go_on(
    run: RunDirectory,
    federation: Federation,
    sink: TensorBoardSink | None,
    until: int | None = None,
) -> None:
    settings = federation.config
    label = f"{settings.preset} {settings.algorithm.name} seed {settings.seed}"
    screen = console.err if console.err.is_terminal else console.out
    rounds = settings.federation.rounds
    with RoundProgress(screen, rounds if until is None else min(until, rounds)) as progress:

        def watch(record: Record) -> None:
            progress.show(record)
            if sink is not None:
                sink.write(record)

        training.go_on(run, watch, _warn, federation, until)
    if sink is not None:
        sink.close()
    if (summary := run.summary()) is None:
        console.out.print(
            f"{label}: stopped after round {federation.state.round} of {rounds}; run directory "
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
        worst = ", ".join(f"client {c['client']} ({c['times']} rounds)" for c in again[:5])
        _warn(f"refused again and again: {worst}; see `rejected` in {run.metrics.path}")


def _compare(path: Path) -> None:
    from fedkl.report import load_runs, print_table, write_report

    plan = compare.read_plan(path)
    runs = compare.runs_of(path, plan)
    configs = [config.from_mapping(RunDirectory.open(run).config()) for run in runs]
    total = sum(c.federation.rounds for c in configs)
    with bar(console.out, f"{len(runs)} runs, round", total) as show_done:
        compare.go_on(
            path,
            plan,
            show=lambda line: console.out.print(line, soft_wrap=True),
            tick=lambda: show_done(workers.rounds_done(runs)),
        )
    results = load_runs(path)
    page = write_report(path, results)
    print_table(results, console.out)
    console.out.print(f"report: {page}", soft_wrap=True)


def _warn(message: str) -> None:
    console.say(f"warning: {message}")
