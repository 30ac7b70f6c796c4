"""Commands for many runs: compare, report, choose settings, repeat the paper's experiments."""

from __future__ import annotations

from pathlib import Path

from fedkl.cli.parser import shared
from fedkl.cli.parser.base import Commands, adder
from fedkl.training.comparison import REFERENCES


def add(commands: Commands) -> None:
    """Adds these commands."""
    comparing, tuning = adder(commands, "comparing"), adder(commands, "tuning")

    sub = comparing(
        "compare",
        "compare_",
        "train several algorithms and settings with several seeds, and report",
        trains=True,
    )
    shared.add_config(sub)
    sub.add_argument(
        "--algorithms", nargs="+", required=True, metavar="NAME", help="which; see `fedkl list`"
    )
    sub.add_argument(
        "--vary",
        nargs="+",
        action="append",
        default=[],
        metavar="KEY=V,V",
        help="settings to compare too, for each algorithm; those of one --vary move together, "
        "several are multiplied",
    )
    sub.add_argument(
        "--references",
        nargs="*",
        choices=REFERENCES,
        metavar="NAME",
        help="train for reference, too: alone (each client by itself), centralised (all data in "
        "one place); without a NAME both, with FedAvg's local training and as many steps; default: "
        "no reference",
    )
    shared.add_several(sub, first_seed=0)
    shared.add_formats(sub)

    sub = comparing("report", "report", "write the page, the figures and the table of runs")
    sub.add_argument(
        "runs", nargs="+", type=Path, metavar="DIR", help="runs, comparisons, folders of runs"
    )
    sub.set_defaults(reads=("runs",))
    sub.add_argument(
        "--target",
        type=float,
        metavar="R",
        help="return for 'rounds to target'; default: where the second-best ended",
    )
    sub.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where page and figures go; default: the one DIR that is given, or else ./report",
    )
    shared.add_formats(sub)

    sub = tuning(
        "tune", "tune", "choose an algorithm's settings from a grid, and write best.toml", True
    )
    shared.add_config(sub)
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
        "0 trains all to the end; default: 2, fewer where rounds or candidates are too few",
    )
    shared.add_several(sub, first_seed=1000)
    shared.add_formats(sub)

    sub = tuning(
        "tune-d-global",
        "tune_d_global",
        "measure how far policies go without the global penalty, and write best.toml for fedkl",
        trains=True,
    )
    shared.add_config(sub)
    for name, default, what in (
        ("--d-global-factor", 1.1, "d_global over the mean distance"),
        ("--d-local-factor", 1.5, "the new d_local over the preset's"),
    ):
        sub.add_argument(name, type=float, default=default, metavar="F", help=what)
    shared.add_several(sub, first_seed=1000)
    sub.set_defaults(algorithm="fedkl")

    sub = adder(commands, "reproduce")(
        "reproduce",
        "reproduce",
        "experiments of the paper: train, draw the figure, judge the claims",
        trains=True,
    )
    sub.add_argument(
        "experiment",
        metavar="NAME",
        help="an experiment (see `fedkl list`); all: every one; report: write the page about those "
        "whose results there are",
    )
    sub.add_argument(
        "--run",
        type=Path,
        metavar="DIR",
        help="where runs are kept; of report, whose finished runs are added (default: nobody's)",
    )
    sub.add_argument("--quick", action="store_true", help="minutes: fewer rounds, one seed")
    sub.add_argument(
        "--missing", action="store_true", help="train only what --results has no table of"
    )
    sub.add_argument("--jobs", type=int, default=1, metavar="J", help="runs at a time, without Ray")
    sub.add_argument("--seeds", type=int, metavar="N", help="at the most; default: the table's")
    shared.add_rounds(sub, "default: the experiment's own")
    shared.add_settings(sub)
    shared.add_ray(sub, "every run is a task")
    sub.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="the tables of finished runs, to which report adds those of --run",
    )
    sub.add_argument(
        "--commit", default="", metavar="HASH", help="report: of the code that trained --run"
    )
    sub.add_argument(
        "--out", type=Path, default=Path("docs"), metavar="DIR", help="report: where the page goes"
    )
    shared.add_formats(sub)
