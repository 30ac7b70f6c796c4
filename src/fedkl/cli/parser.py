"""What the command line understands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fedkl.cli import console

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction["_Parser"]


class _Parser(argparse.ArgumentParser):
    """Answers a wrong command line with one sentence."""

    def error(self, message: str) -> NoReturn:
        console.err.print(f"{self.prog}: {message}; see `{self.prog} --help`", soft_wrap=True)
        sys.exit(2)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands.

    A command is named by its module and function, and imported only when it is run: most need
    JAX, which takes a second, and those about theory do not.
    """
    top = _Parser(
        prog="fedkl", description="Federated reinforcement learning across worlds that differ."
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    _add_federation(commands)
    _add_tuning(commands)
    _add_theory(commands)
    return top


def _adder(commands: _Commands, module: str) -> Callable[..., _Parser]:
    """What adds a command: its name, its function in the module, its help; whether it trains."""

    def add(name: str, function: str, help: str, trains: bool = False) -> _Parser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(module=module, function=function, trains=trains)
        return sub

    return add


def _add_run(sub: _Parser) -> None:
    sub.add_argument("run", type=Path, metavar="DIR", help="a run directory")


def _add_plugins(sub: _Parser) -> None:
    sub.add_argument(
        "--plugin",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.py",
        help="a file that registers an algorithm, a world or a link of the server of your own",
    )


def _add_config(sub: _Parser) -> None:
    _add_preset(sub)
    sub.add_argument("--rounds", type=int, metavar="N", help="communication rounds")


def _add_preset(sub: _Parser) -> None:
    sub.add_argument(
        "preset",
        metavar="PRESET",
        help="a preset (see `fedkl list`), gym:ENV_ID, pettingzoo:MODULE or FILE.toml",
    )
    sub.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change settings, such as learner.d_local=0.02",
    )
    _add_plugins(sub)


def _add_several(sub: _Parser, first_seed: int) -> None:
    sub.add_argument("--seeds", type=int, default=3, metavar="N", help="how many, default 3")
    sub.add_argument(
        "--first-seed",
        type=int,
        default=first_seed,
        metavar="S",
        help=f"seeds S to S + N - 1, default {first_seed}",
    )
    sub.add_argument("--jobs", type=int, default=1, metavar="J", help="runs at a time")
    sub.add_argument("--run", type=Path, required=True, metavar="DIR", help="where runs are kept")


def _add_federation(commands: _Commands) -> None:
    command = _adder(commands, "federation")

    sub = command("train", "train", "train one policy across the clients of a preset", trains=True)
    _add_config(sub)
    sub.add_argument("--algorithm", metavar="NAME", help="instead of the preset's own")
    sub.add_argument("--seed", type=int, metavar="S", help="of all randomness")
    sub.add_argument("--run", type=Path, metavar="DIR", help="where the run is kept")
    sub.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")

    sub = command(
        "resume",
        "resume",
        "go on with a run, a comparison or a tuning that was stopped",
        trains=True,
    )
    _add_run(sub)
    sub.add_argument("--until", type=int, metavar="N", help="stop a run after this round")
    sub.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")

    sub = command("evaluate", "evaluate", "evaluate a run's global policy on all clients")
    _add_run(sub)
    sub.add_argument("--episodes", type=int, default=100, metavar="N", help="for each client")
    sub.add_argument("--deterministic", action="store_true", help="the mode, not a sample")
    sub.add_argument(
        "--video", type=Path, metavar="FILE", help="film an episode too, as FILE.mp4 or FILE.gif"
    )
    sub.add_argument("--client", type=int, metavar="N", help="whose world is filmed; default 0")
    sub.add_argument("--json", action="store_true", help="print JSON")

    sub = command(
        "compare",
        "compare_",
        "train several algorithms with several seeds, and report",
        trains=True,
    )
    _add_config(sub)
    sub.add_argument("--algorithms", nargs="+", required=True, metavar="NAME")
    _add_several(sub, first_seed=0)

    sub = command("report", "report", "write the page, the figures and the table of a run")
    _add_run(sub)
    sub.add_argument("--target", type=float, metavar="R", help="return for 'rounds to target'")

    sub = _adder(commands, "describe")(
        "describe", "describe", "who differs in what: print and plot the clients of a preset"
    )
    _add_preset(sub)
    sub.add_argument("--seed", type=int, metavar="S", help="of all randomness")
    sub.add_argument("--plot", type=Path, metavar="FILE", help="draw them, as FILE.png")
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.set_defaults(rounds=None)

    sub = _adder(commands, "heterogeneity")(
        "heterogeneity", "heterogeneity", "measure how heterogeneous the clients of a run are"
    )
    _add_run(sub)
    sub.add_argument("--round", type=int, metavar="R", help="as it was after round R")
    sub.add_argument("--trajectories", type=int, metavar="M", help="episodes of each client")
    sub.add_argument("--plot", type=Path, metavar="FILE", help="draw it, as FILE.png")
    sub.add_argument("--json", action="store_true", help="print JSON")

    sub = command(
        "list", "list_", "the presets, algorithms, worlds and links of the server there are"
    )
    _add_plugins(sub)


def _add_tuning(commands: _Commands) -> None:
    command = _adder(commands, "tuning")

    sub = command(
        "tune", "tune", "choose an algorithm's settings from a grid, and write best.toml", True
    )
    _add_config(sub)
    sub.add_argument("--algorithm", required=True, metavar="NAME", help="whose settings")
    sub.add_argument(
        "--grid",
        nargs="+",
        action="append",
        required=True,
        metavar="KEY=V,V",
        help="values to try; those of one --grid move together, several are multiplied",
    )
    sub.add_argument(
        "--halvings",
        type=int,
        metavar="H",
        help="how often the worse half is dropped: after 1/2^H of the rounds, 1/2^(H-1), ...; "
        "0 trains all to the end; default 2, fewer where rounds or candidates are too few",
    )
    _add_several(sub, first_seed=1000)

    sub = command(
        "tune-d-global",
        "tune_d_global",
        "measure how far policies go without the global penalty, and write best.toml for fedkl",
        trains=True,
    )
    _add_config(sub)
    sub.add_argument(
        "--d-global-factor",
        type=float,
        default=1.1,
        metavar="F",
        help="d_global over the mean distance, default 1.1",
    )
    sub.add_argument(
        "--d-local-factor",
        type=float,
        default=1.5,
        metavar="F",
        help="the new d_local over the preset's, default 1.5",
    )
    _add_several(sub, first_seed=1000)


def _add_theory(commands: _Commands) -> None:
    help = "the paper's theory on finite MDPs, computed exactly"
    theory = commands.add_parser("theory", help=help, description=help)
    command = _adder(theory.add_subparsers(metavar="COMMAND", required=True), "theory")

    def add_seed(sub: _Parser, help: str) -> None:
        sub.add_argument("--seed", type=int, default=0, metavar="S", help=help)

    def add_families(sub: _Parser, default: int) -> None:
        sub.add_argument(
            "--families",
            type=int,
            default=default,
            metavar="N",
            help=f"how many; {default}",
        )
        add_seed(sub, "of the first family")

    sub = command("verify", "verify", "check every claim on random families")
    add_families(sub, 2000)
    sub.add_argument(
        "--claim", action="append", default=[], metavar="NAME", help="only this; may be repeated"
    )
    sub.add_argument(
        "--family",
        metavar="FILE.npz",
        help="check on this family, drawing only policies and steps, --families times",
    )
    sub.add_argument("--json", action="store_true", help="print JSON")

    sub = command("iterate", "iterate", "run a tabular algorithm round by round")
    sub.add_argument(
        "--algorithm",
        default="second-order-exact",
        metavar="NAME",
        help="paper, second-order, second-order-exact (the default), common-radius, line-search, "
        "anchored, own-states, qavg or pavg",
    )
    sub.add_argument("--rounds", type=int, default=100, metavar="R", help="default 100")
    sub.add_argument(
        "--family", default="random", metavar="WHICH", help="random, grid, chain or FILE.npz"
    )
    sub.add_argument("--gamma", type=float, metavar="G", help="the discount, default 0.9")
    sub.add_argument(
        "--heterogeneity", metavar="WHAT", help="of a random family: none, mu, P, R or all"
    )
    sub.add_argument("--level", type=float, metavar="L", help="of heterogeneity, 0 to 1")
    sub.add_argument("--agents", type=int, metavar="N", help="default 5")
    sub.add_argument("--states", type=int, metavar="N", help="of a random family or a chain")
    sub.add_argument("--actions", type=int, metavar="N", help="of a random family, default 4")
    sub.add_argument("--concentration", type=float, metavar="C", help="of random transitions")
    sub.add_argument(
        "--participants", type=int, metavar="K", help="agents drawn in each round; default all"
    )
    add_seed(sub, "of a random family, and of who takes part")
    sub.add_argument("--json", action="store_true", help="print JSON")

    sub = command("report", "report", "write a page with figures on all of it")
    sub.add_argument("directory", type=Path, metavar="DIR", help="where the page goes")
    add_families(sub, 1000)
