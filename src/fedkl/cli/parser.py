"""The parser of the command line: all commands, in the order in which `fedkl --help` shows them.

A command's file has its arguments (`add_arguments`) beside what it does (`run`), and imports what
takes long, such as JAX, only when it runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fedkl.cli import console
from fedkl.core.text import did_you_mean

if TYPE_CHECKING:
    _SubParsers = argparse._SubParsersAction["Parser"]
else:
    _SubParsers = argparse._SubParsersAction

COMMANDS: dict[str, str] = {
    "train": "train one policy across the clients of a preset",
    "resume": "go on with a run, a comparison, a tuning or an experiment that was stopped",
    "evaluate": "evaluate a run's global policy on all clients",
    "export": "write a run's policy to a file that needs no fedkl",
    "check": "check everything in a run directory: what is wrong, what can be done",
    "heterogeneity": "measure how heterogeneous the clients of a run are",
    "compare": "train several algorithms and settings with several seeds, and report",
    "report": "write the page, the figures and the table of runs",
    "tune": "choose an algorithm's settings from a grid, and write best.toml",
    "tune-d-global": "measure how far policies go without the global penalty, and write best.toml "
    "for fedkl",
    "reproduce": "experiments of the paper: train, draw the figure, judge the claims",
    "list": "the presets, algorithms, worlds and links of the server there are",
    "show": "every setting of a preset, as a config file with explanations",
    "describe": "who differs in what: print and plot the clients of a preset",
    "completion": "print what lets a shell complete commands and options",
    "keys": "make the certificates and the clients' keys of a federation",
    "serve": "train with clients that join over a network",
    "status": "how a federation over a network is doing: who is connected, who fails",
    "join": "be a client of a federation over a network",
    "theory": "the paper's theory on finite MDPs, computed exactly",
}
"""The line of help of each command, whose file has its name."""
_DEVICES = ("--device", "--devices", "--platform", "--accelerator", "--gpu", "--cuda", "--cpu")
"""Options by which others choose where they compute."""
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def parser(arguments: Sequence[str] | None = None) -> Parser:
    """Make the parser of a command line.

    Args:
        arguments: the command line, of which only the command that it names is imported; None: any
            command line, so that all are.
    """
    top = Parser(
        prog="fedkl", description="Federated reinforcement learning across worlds that differ."
    )
    top.add_argument("--version", action=_Version)
    commands = top.add_commands("command")
    for name, help in COMMANDS.items():
        sub = commands.add(name, help)
        if arguments is None or name in arguments[:1]:
            module = import_module(f"fedkl.cli.{name.replace('-', '_')}")
            sub.set_defaults(run_command=module.run)
            module.add_arguments(sub)
    return top


class _Formatter(argparse.HelpFormatter):
    """Help with an option's default, where its text does not say it, and with a usage in an order
    of words that works."""

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: str | None
    ) -> str:
        """List what must be given, in the order in which it can be typed: an option that takes
        several values would take a word that follows them, too."""
        actions = [*actions]
        if usage is None and not any(action.nargs == argparse.PARSER for action in actions):
            words = [_as_typed(self, action) for action in actions if not action.option_strings]
            words += [_as_typed(self, a) for a in actions if a.option_strings and a.required]
            words += ["[options]"] if any(not action.required for action in actions) else []
            usage = " ".join(["%(prog)s", *words])
        return super()._format_usage(usage, actions, groups, prefix)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        default = action.default
        silent = default is None or default is False or default in ([], argparse.SUPPRESS)
        return text if silent or "default" in text else f"{text} (default: %(default)s)"


def _as_typed(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    values = formatter._format_args(action, action.dest)
    return " ".join([*action.option_strings[:1], values])


class Parser(argparse.ArgumentParser):
    """A parser that answers a wrong command line with one sentence.

    Options are spelled out: what is added later must not change what a command means.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Formatter, **options})
        self._given: set[argparse.Action] = set()
        self._last: list[tuple[str, str]] = []
        """Options that took several values, and the last of these."""

    def add_commands(self, dest: str) -> Commands:
        """Make room for commands, the name of whose chosen one is kept as `dest`."""
        commands = self.add_subparsers(action=Commands, dest=dest, metavar="COMMAND", required=True)
        assert isinstance(commands, Commands)
        return commands

    def error(self, message: str) -> NoReturn:
        names = message.partition("arguments are required: ")[2].split(", ")
        missing = [name for name in names if name and not name.startswith("-")]
        if missing and self._last:
            # Settings have a sign of equality, and what is missing here has none.
            option, word = min(self._last, key=lambda taken: "=" in taken[1])
            first = " ".join(missing)
            message += f" ('{word}' was taken for a value of {option}: put {first} first)"
        console.err.print(f"{self.prog}: {message}; see `{self.prog} --help`", soft_wrap=True)
        sys.exit(2)

    def parse_known_args(  # type: ignore[override]  # typeshed has overloads of it
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as always, but let a command say by itself what it does not know, and what is like
        it."""
        self._given.clear()
        self._last.clear()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._hint(unknown)}")
        return found, unknown

    def _hint(self, unknown: Sequence[str]) -> str:
        """Say in brackets what an unknown option may have meant."""
        options = {option for action in self._actions for option in action.option_strings}
        word, equals, _ = unknown[0].partition("=")
        if equals and "." in word and "--set" in options:
            return f" (a setting is changed by --set {unknown[0].lstrip('-')})"
        wrong = [text.partition("=")[0] for text in unknown if text.startswith("--")]
        if not wrong:
            return ""
        if wrong[0] in _DEVICES:
            return " (JAX takes the best device that there is: JAX_PLATFORMS=cpu chooses another)"
        known = sorted(option[2:] for option in options if option.startswith("--"))
        return did_you_mean(wrong[0][2:], known, before="--")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Convert as always, but say what a number must be, and take no empty path."""
        if action.type is Path and not arg_string:
            raise argparse.ArgumentError(action, "must not be empty")
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if action.type not in _NUMBERS:
                raise
            must = f"must be {_NUMBERS[action.type]}, not {arg_string!r}"
            raise argparse.ArgumentError(action, must) from error

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Convert as always, but refuse one value that is given twice, of which the last would
        silently win, and remember what may have taken a word too many."""
        if action.option_strings and isinstance(action, argparse._StoreAction):
            if action in self._given:
                self.error(f"{action.option_strings[0]} is given twice")
            self._given.add(action)
        if action.option_strings and action.nargs == "+" and len(arg_strings) > 1:
            self._last.append((action.option_strings[0], arg_strings[-1]))
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            available = ", ".join(map(str, action.choices))
            hint = did_you_mean(str(value), map(str, action.choices))
            message = f"invalid choice: {value!r}{hint}; available: {available}"
            raise argparse.ArgumentError(action, message)


class Commands(_SubParsers):
    """The commands of a parser."""

    def add(self, name: str, help: str) -> Parser:
        """Add a command."""
        sub = self.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        sub.set_defaults(trains=False, computes=False, reads=(), json=False, csv=False)
        return sub


class _Version(argparse._VersionAction):
    """The version, looked up when it is asked for: that takes longer than to parse."""

    def __call__(self, *arguments: Any) -> None:
        from importlib import metadata

        self.version = f"fedkl {metadata.version('fedkl')}"
        super().__call__(*arguments)
