"""Commands that train nothing: what there is, what it means, and completion for the shell."""

from __future__ import annotations

from fedkl.cli.parser import shared
from fedkl.cli.parser.base import Commands, adder


def add(commands: Commands) -> None:
    """Adds these commands."""
    sub = adder(commands, "listing")(
        "list", "list_", "the presets, algorithms, worlds and links of the server there are"
    )
    shared.add_plugins(sub)
    shared.add_formats(sub)

    sub = adder(commands, "show")(
        "show", "show", "every setting of a preset, as a config file with explanations"
    )
    shared.add_config(sub)
    sub.add_argument("--algorithm", metavar="NAME", help="default: the preset's own")
    shared.add_seed(sub)
    shared.add_formats(sub)

    sub = adder(commands, "describe")(
        "describe", "describe", "who differs in what: print and plot the clients of a preset"
    )
    shared.add_preset(sub)
    shared.add_seed(sub)
    shared.add_plot(sub)
    shared.add_formats(sub)
    sub.set_defaults(rounds=None)

    sub = adder(commands, "completion")(
        "completion", "completion", "print what lets a shell complete commands and options"
    )
    sub.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="which shell")
