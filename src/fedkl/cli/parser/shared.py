"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

from fedkl.cli.parser.base import Parser


def add_run(sub: Parser) -> None:
    sub.add_argument("run", type=Path, metavar="DIR", help="a run directory")
    sub.set_defaults(reads=("run",))


def add_new_run(sub: Parser) -> None:
    """What a run that begins is called, and what is written beside it."""
    sub.add_argument("--algorithm", metavar="NAME", help="default: the preset's own")
    add_seed(sub)
    sub.add_argument(
        "--run",
        type=Path,
        metavar="DIR",
        help="where the run is kept; default: runs/PRESET-ALGORITHM-seedS, with what --set changes",
    )
    add_tensorboard(sub)


def add_seed(sub: Parser) -> None:
    sub.add_argument("--seed", type=int, metavar="S", help="of all randomness; default: preset's")


def add_tensorboard(sub: Parser) -> None:
    sub.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")


def add_accept(sub: Parser) -> None:
    sub.add_argument(
        "--accept-changes",
        action="store_true",
        help="go on although config, plugins or worlds are not those that the run was made with",
    )


def add_trust(sub: Parser) -> None:
    sub.add_argument(
        "--trust-plugins",
        action="store_true",
        help="agree to run the plugins of a run that somebody else made, which are code, and to "
        "open the port that it names",
    )


def add_best(sub: Parser) -> None:
    sub.add_argument(
        "--best",
        action="store_true",
        help="of the best evaluated round (checkpoint.keep_best), not of the last",
    )


def add_plugins(sub: Parser) -> None:
    sub.add_argument(
        "--plugin",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.py",
        help="a file that registers an algorithm, a world or a link of the server of your own",
    )


def add_config(sub: Parser) -> None:
    add_preset(sub)
    add_rounds(sub, "communication rounds; default: the preset's own")


def add_rounds(sub: Parser, help: str) -> None:
    sub.add_argument("--rounds", type=int, metavar="N", help=help)


def add_preset(sub: Parser) -> None:
    sub.add_argument(
        "preset",
        metavar="PRESET",
        help="a preset (see `fedkl list`), gym:ENV_ID, pettingzoo:MODULE or FILE.toml",
    )
    add_settings(sub)
    add_plugins(sub)


def add_settings(sub: Parser) -> None:
    sub.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change settings (see `fedkl show`), such as learner.d_local=0.02",
    )


def add_several(sub: Parser, first_seed: int) -> None:
    sub.add_argument("--seeds", type=int, default=3, metavar="N", help="how many")
    sub.add_argument(
        "--first-seed", type=int, default=first_seed, metavar="S", help="seeds S to S + N - 1"
    )
    sub.add_argument("--jobs", type=int, default=1, metavar="J", help="runs at a time, without Ray")
    sub.add_argument("--run", type=Path, required=True, metavar="DIR", help="where runs are kept")
    add_ray(sub, "every run is a task")


def add_formats(sub: Parser) -> None:
    """Tables for machines: nothing else is printed on stdout then."""
    formats = sub.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    formats.add_argument("--csv", action="store_true", help="print CSV, and nothing else")


def add_plot(sub: Parser) -> None:
    sub.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw it, as FILE.png; default: no drawing"
    )


def add_ray(sub: Parser, what: str) -> None:
    """Adds the options that say which Ray.

    Args:
        sub: the command's parser.
        what: is done there.
    """
    sub.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help=f"{what} on the Ray cluster whose head is there; without an address, on a Ray of the "
        "command's own on this machine; default: no Ray",
    )
    sub.add_argument(
        "--insecure-ray",
        action="store_true",
        help="join a cluster without a token: everybody who reaches it can run any code on it",
    )


def add_actors(sub: Parser) -> None:
    sub.add_argument(
        "--actors",
        type=int,
        metavar="N",
        help="Ray's processes that clients are spread over; default: one for each CPU",
    )


def add_insecure_network(sub: Parser) -> None:
    sub.add_argument(
        "--insecure-network",
        action="store_true",
        help="no TLS and no keys: everybody on the network can read and answer all of it",
    )
