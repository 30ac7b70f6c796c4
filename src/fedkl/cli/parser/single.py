"""Commands for one run: train it, go on with it, look at it, take its policy away."""

from __future__ import annotations

from pathlib import Path

from fedkl.cli.parser import shared
from fedkl.cli.parser.base import Commands, adder


def add(commands: Commands) -> None:
    """Adds these commands."""
    command = adder(commands, "federation")

    sub = command("train", "train", "train one policy across the clients of a preset", trains=True)
    shared.add_config(sub)
    shared.add_new_run(sub)
    sub.add_argument(
        "--engine",
        choices=("in-process", "ray"),
        help="where clients are: in this process, or spread over actors of Ray; default: "
        "in-process, or ray if --ray is given",
    )
    shared.add_ray(sub, "the engine is ray,")
    shared.add_actors(sub)

    sub = command(
        "resume",
        "resume",
        "go on with a run, a comparison, a tuning or an experiment that was stopped",
        trains=True,
    )
    shared.add_run(sub)
    shared.add_rounds(sub, "train a run to this round, also a finished one; default: its config's")
    sub.add_argument(
        "--until", type=int, metavar="N", help="stop a run after this round; default: its last"
    )
    shared.add_accept(sub)
    shared.add_trust(sub)
    shared.add_tensorboard(sub)
    shared.add_ray(sub, "go on")
    shared.add_actors(sub)
    sub.set_defaults(engine=None)

    sub = command("evaluate", "evaluate", "evaluate a run's global policy on all clients")
    shared.add_run(sub)
    sub.add_argument("--episodes", type=int, default=100, metavar="N", help="for each client")
    sub.add_argument("--deterministic", action="store_true", help="the mode, not a sample")
    sub.add_argument(
        "--video",
        type=Path,
        metavar="FILE",
        help="film an episode too, as FILE.mp4 or FILE.gif; default: no film",
    )
    sub.add_argument("--client", type=int, metavar="N", help="whose world is filmed; default: 0")
    sub.add_argument(
        "--clients", type=int, metavar="N", help="film so many side by side; default: one"
    )
    shared.add_best(sub)
    shared.add_formats(sub)
    shared.add_accept(sub)
    shared.add_trust(sub)

    sub = adder(commands, "export")(
        "export", "export", "write a run's policy to a file that needs no fedkl"
    )
    shared.add_run(sub)
    sub.add_argument("file", type=Path, metavar="FILE", help="FILE.onnx or FILE.npz")
    sub.add_argument("--client", type=int, metavar="N", help="whose policy; default: all share it")
    shared.add_best(sub)
    shared.add_accept(sub)

    sub = adder(commands, "check")(
        "check", "check_", "check everything in a run directory: what is wrong, what can be done"
    )
    shared.add_run(sub)
    shared.add_trust(sub)

    sub = adder(commands, "heterogeneity")(
        "heterogeneity", "heterogeneity", "measure how heterogeneous the clients of a run are"
    )
    shared.add_run(sub)
    sub.add_argument("--round", type=int, metavar="R", help="as after round R; default: the last")
    sub.add_argument(
        "--trajectories", type=int, metavar="M", help="episodes of each client; default: its run's"
    )
    shared.add_accept(sub)
    shared.add_trust(sub)
    shared.add_plot(sub)
    shared.add_formats(sub)
