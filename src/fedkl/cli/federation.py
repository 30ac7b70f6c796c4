"""The command line: parses, calls, prints."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from rich.console import Console
from rich.table import Table

from fedkl import compare, compilation, config, training
from fedkl.algorithms import ALGORITHMS
from fedkl.errors import UserError
from fedkl.federation.loop import Federation
from fedkl.progress import RoundProgress, bar, number
from fedkl.runs import RunDirectory, TensorBoardSink, strict_json
from fedkl.worlds import WORLDS

out = Console(markup=False)
err = Console(markup=False)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits: 0 done, 2 the user can mend it, 130 interrupted."""
    global out, err
    out, err = _console(sys.stdout), _console(sys.stderr)
    options = _parser().parse_args(arguments)
    try:
        compilation.enable_cache()
        options.command(options)
    except UserError as error:
        _say(str(error))
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say(f"{where}{error.strerror or error}")
        sys.exit(2)
    except KeyboardInterrupt:
        trains = options.command in (train, resume, compare_) and options.run is not None
        hint = f"; go on with `fedkl resume {shlex.quote(str(options.run))}`" if trains else ""
        _say(f"interrupted{hint}")
        sys.exit(130)
    sys.exit(0)


def train(options: argparse.Namespace) -> None:
    settings = dict(config.parse_assignment(text) for text in options.set)
    if options.rounds is not None:
        settings["federation.rounds"] = options.rounds
    chosen = config.preset(
        options.preset, options.algorithm, options.seed, settings, options.plugin
    )
    if options.run is None:
        name = Path(options.preset).name.removesuffix(".toml")
        options.run = Path("runs") / f"{name}-{chosen.algorithm.name}-seed{chosen.seed}"
    # What cannot work is refused before anything is written.
    Federation(chosen)
    sink = _sink(options)
    _go_on(training.create(chosen, options.run), sink)


def resume(options: argparse.Namespace) -> None:
    if compare.is_comparison(options.run):
        _compare(options.run)
    else:
        _go_on(RunDirectory.open(options.run), _sink(options))


def evaluate(options: argparse.Namespace) -> None:
    run = RunDirectory.open(options.run)
    federation = training.load(run, _warn)
    if federation.state.round == 0:
        raise UserError(f"{options.run} has no finished round to evaluate yet")
    if options.episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {options.episodes}")
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
    if options.json:
        out.print(strict_json.encode(result).decode(), soft_wrap=True)
        return
    kind = "deterministic" if options.deterministic else "stochastic"
    worst = int(per_client.argmin())
    out.print(
        f"{kind} global policy after round {result['round']}, {options.episodes} episodes on each "
        f"of {len(per_client)} clients:\n"
        f"  mean return            {per_client.mean():.3f}\n"
        f"  worst client           {per_client.min():.3f} (client {worst})\n"
        f"  deviation over clients {per_client.std():.3f}"
    )


def compare_(options: argparse.Namespace) -> None:
    for name, value in (("--seeds", options.seeds), ("--jobs", options.jobs)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, not {value}")
    if len(set(options.algorithms)) < len(options.algorithms):
        raise UserError("--algorithms names an algorithm twice")
    settings = dict(config.parse_assignment(text) for text in options.set)
    if options.rounds is not None:
        settings["federation.rounds"] = options.rounds
    plan = compare.Plan(
        preset=options.preset,
        algorithms=tuple(options.algorithms),
        seeds=tuple(range(options.seeds)),
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
    page = write_report(options.run, options.target)
    print_table(load_runs(options.run), out, options.target)
    out.print(f"report: {page}", soft_wrap=True)


def list_(options: argparse.Namespace) -> None:
    for title, lines in (
        ("presets", config.presets()),
        ("algorithms", {name: ALGORITHMS[name].summary for name in ALGORITHMS}),
        ("worlds", {name: WORLDS[name].summary for name in WORLDS}),
    ):
        out.print(title)
        table = Table.grid(padding=(0, 2))
        for name, summary in lines.items():
            table.add_row(f"  {name}", summary)
        out.print(table)


def _sink(options: argparse.Namespace) -> TensorBoardSink | None:
    return TensorBoardSink(options.run / "tensorboard") if options.tensorboard else None


def _go_on(run: RunDirectory, sink: TensorBoardSink | None) -> None:
    settings = config.from_mapping(run.config())
    label = f"{settings.preset} {settings.algorithm.name} seed {settings.seed}"
    with RoundProgress(err if err.is_terminal else out, settings.federation.rounds) as progress:

        def watch(record: dict[str, Any]) -> None:
            progress.show(record)
            if sink is not None:
                sink.write(record)

        training.go_on(run, watch, _warn)
    if sink is not None:
        sink.close()
    summary = run.summary() or {}
    out.print(
        f"{label}: return {number(summary['return_mean'])} after round {summary['rounds']} "
        f"(best {number(summary['best_return_mean'])} after round {summary['best_round']}), "
        f"{summary['seconds']:.0f} s; run directory {run.path}",
        soft_wrap=True,
    )


def _compare(path: Path) -> None:
    from fedkl.report import load_runs, print_table, write_report

    plan = compare.read_plan(path)
    runs = compare.runs_of(path, plan)
    configs = [config.from_mapping(RunDirectory.open(run).config()) for run in runs]
    total = sum(c.federation.rounds for c in configs)
    with bar(out, f"{len(runs)} runs", total) as show_done:
        compare.go_on(
            path,
            plan,
            show=lambda line: out.print(line, soft_wrap=True),
            tick=lambda: show_done(compare.rounds_done(path, plan)),
        )
    page = write_report(path)
    print_table(load_runs(path), out)
    out.print(f"report: {page}", soft_wrap=True)


def _warn(message: str) -> None:
    _say(f"warning: {message}")


def _say(message: str) -> None:
    err.print(f"fedkl: {message}", soft_wrap=True)


def _console(stream: TextIO | None) -> Console:
    """Plain text, at least 100 columns wide where there is no terminal to measure."""
    # A stream that whoever started us has closed is None.
    width = None if stream is not None and stream.isatty() else 100
    return Console(file=stream, quiet=stream is None, highlight=False, markup=False, width=width)


class _Parser(argparse.ArgumentParser):
    """Answers a wrong command line with one sentence."""

    def error(self, message: str) -> NoReturn:
        err.print(f"{self.prog}: {message}; see `{self.prog} --help`", soft_wrap=True)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fedkl", description="Federated reinforcement learning across worlds that differ."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], None], help: str) -> _Parser:
        sub: _Parser = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(command=run)
        return sub

    def add_run(sub: _Parser) -> None:
        sub.add_argument("run", type=Path, metavar="DIR", help="a run directory")

    def add_config(sub: _Parser) -> None:
        sub.add_argument(
            "preset", metavar="PRESET", help="a preset (see `fedkl list`) or FILE.toml"
        )
        sub.add_argument("--rounds", type=int, metavar="N", help="communication rounds")
        sub.add_argument(
            "--set",
            nargs="+",
            action="extend",
            default=[],
            metavar="KEY=VALUE",
            help="change settings, such as learner.d_local=0.02",
        )
        sub.add_argument(
            "--plugin",
            type=Path,
            action="append",
            default=[],
            metavar="FILE.py",
            help="a file that registers an algorithm or a world of your own",
        )

    sub = command("train", train, "train one policy across the clients of a preset")
    add_config(sub)
    sub.add_argument("--algorithm", metavar="NAME", help="instead of the preset's own")
    sub.add_argument("--seed", type=int, metavar="S", help="of all randomness")
    sub.add_argument("--run", type=Path, metavar="DIR", help="where the run is kept")
    sub.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")

    sub = command("resume", resume, "go on with a run or a comparison that was stopped")
    add_run(sub)
    sub.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")

    sub = command("evaluate", evaluate, "evaluate a run's global policy on all clients")
    add_run(sub)
    sub.add_argument("--episodes", type=int, default=100, metavar="N", help="for each client")
    sub.add_argument("--deterministic", action="store_true", help="the mode, not a sample")
    sub.add_argument("--json", action="store_true", help="print JSON")

    sub = command("compare", compare_, "train several algorithms with several seeds, and report")
    add_config(sub)
    sub.add_argument("--algorithms", nargs="+", required=True, metavar="NAME")
    sub.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1")
    sub.add_argument("--jobs", type=int, default=1, metavar="J", help="runs at a time")
    sub.add_argument("--run", type=Path, required=True, metavar="DIR", help="where runs are kept")

    sub = command("report", report, "write the page, the figures and the table of a run")
    add_run(sub)
    sub.add_argument("--target", type=float, metavar="R", help="return for 'rounds to target'")

    command("list", list_, "the presets, algorithms and worlds there are")
    return parser
