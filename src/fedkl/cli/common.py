"""Options that several commands have, each spelled and explained once, and what they say."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkl.core.errors import UserError
from fedkl.core.text import counted, described, folder_name

if TYPE_CHECKING:
    from fedkl.config.config import Config
    from fedkl.training.directory import RunDirectory
    from fedkl.training.plans import RunsPlan

_ELSEWHERE = ("algorithm.name", "seed", "federation.rounds", "world.name")
"""Settings that a run's name has in another place, or that say only how long it is."""


def add_run(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="DIR", help="a run directory")
    parser.set_defaults(reads=("run",))


def add_new_run(parser: ArgumentParser) -> None:
    """Add the options that say what a new run is called, and what is written beside it."""
    add_algorithm(parser)
    add_seed(parser)
    add_start(parser)
    parser.add_argument(
        "--run",
        type=Path,
        metavar="DIR",
        help="where the run is kept; default: runs/PRESET-ALGORITHM-seedS, with what --set changes",
    )
    add_tensorboard(parser)


def add_start(parser: ArgumentParser) -> None:
    """Add the options that say what a run starts from."""
    parser.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="RUN",
        help="start from the policy of this run, which may be of another algorithm, other clients "
        "or another world of the same sizes; default: a new policy",
    )
    parser.add_argument(
        "--from-round",
        metavar="R",
        help="which of its rounds, of those that it keeps: a number, or best; default: its newest",
    )


def add_algorithm(parser: ArgumentParser) -> None:
    parser.add_argument("--algorithm", metavar="NAME", help="default: the preset's own")


def add_seed(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, metavar="S", help="of all randomness; default: preset's"
    )


def add_tensorboard(parser: ArgumentParser) -> None:
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")


def add_accept_changes(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--accept-changes",
        action="store_true",
        help="go on although config, plugins or worlds are not those that the run was made with",
    )


def add_consent(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--trust-plugins",
        action="store_true",
        help="agree to run the plugins of a run that somebody else made, which are code, and to "
        "open the port that it names",
    )


def add_best(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--best",
        action="store_true",
        help="of the best evaluated round (checkpoint.keep_best), not of the last",
    )


def add_plugins(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--plugin",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.py",
        help="a file that registers an algorithm, a world or a link of the server of your own",
    )


def add_config(parser: ArgumentParser) -> None:
    add_preset(parser)
    add_rounds(parser, "communication rounds; default: the preset's own")


def add_rounds(parser: ArgumentParser, help: str) -> None:
    parser.add_argument("--rounds", type=int, metavar="N", help=help)


def add_preset(parser: ArgumentParser) -> None:
    parser.add_argument(
        "preset",
        metavar="PRESET",
        help="a preset (see `fedkl list`), gym:ENV_ID, pettingzoo:MODULE or FILE.toml",
    )
    add_settings(parser)
    add_plugins(parser)


def add_settings(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change settings (see `fedkl show`), such as learner.d_local=0.02",
    )


def add_several(parser: ArgumentParser, first_seed: int) -> None:
    parser.add_argument("--seeds", type=int, metavar="N", help="how many; default: 3")
    parser.add_argument(
        "--first-seed",
        type=int,
        metavar="S",
        help=f"seeds S to S + N - 1; default: {first_seed}",
    )
    add_jobs(parser)
    parser.add_argument(
        "--run", type=Path, required=True, metavar="DIR", help="where runs are kept"
    )
    add_ray(parser, "every run is a task")


def add_jobs(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, metavar="J", help="runs at a time, without Ray; default: 1"
    )


def add_to(parser: ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--add",
        action="store_true",
        help=f"add {what} to what --run has, and train no more than that; what is left out is as "
        "it was",
    )


def add_formats(parser: ArgumentParser) -> None:
    """Add tables for machines: nothing else is printed on stdout then."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    formats.add_argument("--csv", action="store_true", help="print CSV, and nothing else")


def add_plot(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw it, as FILE.png; default: no drawing"
    )


def add_ray(parser: ArgumentParser, what: str) -> None:
    """Add the options that say which Ray.

    Args:
        parser: the command's parser.
        what: is done there.
    """
    parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help=f"{what} on the Ray cluster whose head is there; without an address, on a Ray of the "
        "command's own on this machine; default: no Ray",
    )
    parser.add_argument(
        "--insecure-ray",
        action="store_true",
        help="join a cluster without a token: everybody who reaches it can run any code on it",
    )


def add_actors(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--actors",
        type=int,
        metavar="N",
        help="Ray's processes that clients are spread over; default: one for each CPU",
    )


def add_insecure_network(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--insecure-network",
        action="store_true",
        help="no TLS and no keys: everybody on the network can read and answer all of it",
    )


def settings_of(options: Namespace) -> dict[str, Any]:
    """Read the settings that --set and --rounds give.

    Raises:
        UserError: a setting is given twice.
    """
    from fedkl.config.config import parse_assignment

    settings: dict[str, Any] = {}
    rounds = [] if options.rounds is None else [("federation.rounds", options.rounds)]
    for key, value in [*map(parse_assignment, options.set), *rounds]:
        if key in settings:
            raise UserError(f"{key} is given twice: as {settings[key]!r} and as {value!r}")
        settings[key] = value
    return settings


def started(options: Namespace, chosen: Config) -> Config:
    """Let a config start from the run that --from gives, if it does."""
    start = start_of(options)
    return chosen if start is None else start(chosen)


def start_of(options: Namespace) -> Callable[[Config], Config] | None:
    """Return what lets a config start from the run that --from gives; None if it gives none.

    Raises:
        UserError: there is no such run or round, or it does not fit.
    """
    from fedkl.cli import console
    from fedkl.training.pretrained import start_from

    if options.start is None:
        if options.from_round is not None:
            raise UserError("--from-round needs --from RUN: it is a round of that run")
        return None
    given = options.from_round
    round = int(given) if given is not None and given.isdecimal() else given
    return partial(start_from, run=options.start, round=round, warn=console.warn)


def run_named(options: Namespace, chosen: Config) -> Path:
    """Name the directory of a run that is given none: the name says what is trained.

    Args:
        options: of the command.
        chosen: the config that they give.
    """
    base = Path(options.preset).name.removesuffix(".toml")
    settings = settings_of(options)
    if "world.name" in settings:
        base = f"{chosen.world.name}-from-{base}"
    if getattr(options, "client", None) is not None:
        base = f"{base}-client{options.client}"
    if options.start is not None:
        base = f"{base}-from-{options.start.resolve().name}"
    own = {key: value for key, value in settings.items() if key not in _ELSEWHERE}
    name = folder_name(base, chosen.algorithm.name, *described(own))
    return Path("runs") / f"{name}-seed{chosen.seed}"


def require_given(options: Namespace, *names: str) -> None:
    """Require options that only --add can do without.

    Raises:
        UserError: some are missing.
    """
    if missing := [f"--{name}" for name in names if not options.add and not getattr(options, name)]:
        raise UserError(f"the following arguments are required: {', '.join(missing)}")


def say_added(options: Namespace, made: int) -> None:
    """Say how many runs --add has made."""
    from fedkl.cli import console

    if options.add:
        console.talk.print(f"{counted(made, 'run')} added to {options.run}", soft_wrap=True)


def jobs_of(options: Namespace) -> int:
    """Read --jobs; 0 if it is left out, and is as it was.

    Raises:
        UserError: it is below 1.
    """
    if options.jobs is not None and options.jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {options.jobs}")
    return options.jobs or (0 if getattr(options, "add", False) else 1)


def origin_of(options: Namespace) -> dict[str, Any]:
    """Say which preset a plan begins with, and what all its runs share; paths hold from anywhere.

    Raises:
        UserError: a setting is given twice.
    """
    settings_of(options)
    preset = options.preset
    return {
        "preset": str(Path(preset).resolve()) if preset.endswith(".toml") else preset,
        "plugins": tuple(str(path.resolve()) for path in options.plugin),
        "settings": tuple(options.set),
        "jobs": jobs_of(options),
    }


def require_consent(run: RunDirectory, options: Namespace) -> None:
    """Require that the user has agreed to the code that a run names, before it is run, and to the
    port that it opens."""
    from fedkl.training import plugin_consent

    if options.trust_plugins:
        plugin_consent.agree(run.path)
    plugin_consent.require(run.config(), run.path)
    plugin_consent.require_served(run.path)


def plan_in(path: Path) -> RunsPlan | None:
    """Read the plan of a directory of several runs; None if it has none.

    Raises:
        UserError: it is damaged, or there are several.
    """
    kinds = _plan_kinds()
    there = [kind for kind in kinds if kind.is_in(path)]
    if len(there) > 1:
        names = " and ".join(kind.FILE for kind in there)
        raise UserError(f"{path} has {names}, and can be of one plan only: remove the other")
    if not there:
        return None
    try:
        return there[0].read(path)
    except UserError as error:
        if recall_plan(path) is None:
            raise
        raise UserError(f"{error}; remove it, and `fedkl resume` writes it again") from error


def recall_plan(path: Path) -> RunsPlan | None:
    """Find the plan of a directory that has lost it in the copies that its runs have."""
    from fedkl.training import binding

    return binding.recall(_plan_kinds(), path)


def complete_addition(path: Path) -> bool:
    """Complete what was being added to a directory, if that was interrupted; say whether it was."""
    from fedkl.training import growth

    return growth.complete(_plan_kinds(), path)


def _plan_kinds() -> tuple[type[RunsPlan], ...]:
    from fedkl.experiments import d_global, tune
    from fedkl.experiments.reproduce import plan as reproduction
    from fedkl.training import comparison

    return (
        comparison.ComparisonPlan,
        tune.TuningPlan,
        d_global.DGlobalPlan,
        reproduction.ReproductionPlan,
    )
