"""Commands about the paper's theory."""

from __future__ import annotations

from pathlib import Path

from fedkl.cli.parser import shared
from fedkl.cli.parser.base import Commands, Parser, adder


def add(commands: Commands) -> None:
    """Adds these commands."""
    help = "the paper's theory on finite MDPs, computed exactly"
    theory = commands.add_parser("theory", help=help, description=help)
    command = adder(theory.add_subparsers(metavar="COMMAND", required=True), "theory")

    sub = command("verify", "verify", "check every claim on random families")
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
    shared.add_formats(sub)

    sub = command("iterate", "iterate", "run a tabular algorithm round by round")
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
    shared.add_formats(sub)

    sub = command("report", "report", "write a page with figures on all of it")
    sub.add_argument("directory", type=Path, metavar="DIR", help="where the page goes")
    _add_families(sub, 1000)


def _add_seed(sub: Parser, help: str) -> None:
    sub.add_argument("--seed", type=int, default=0, metavar="S", help=help)


def _add_families(sub: Parser, default: int) -> None:
    sub.add_argument("--families", type=int, default=default, metavar="N", help="how many")
    _add_seed(sub, "of the first family")
