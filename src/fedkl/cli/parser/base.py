"""A parser that answers a wrong command line with one sentence, and how commands are added."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from fedkl.cli import console
from fedkl.texts import did_you_mean

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]
else:
    Commands = argparse._SubParsersAction


class _Formatter(argparse.HelpFormatter):
    """Says what an option is if it is not given, where its help does not."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        default = action.default
        silent = default is None or default is False or default in ([], argparse.SUPPRESS)
        return text if silent or "default" in text else f"{text} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """Options are spelled out: what is added later must not change what a command means."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Formatter, **options})
        self._given: set[argparse.Action] = set()

    def error(self, message: str) -> NoReturn:
        console.err.print(f"{self.prog}: {message}; see `{self.prog} --help`", soft_wrap=True)
        sys.exit(2)

    def parse_known_args(  # type: ignore[override]  # typeshed has overloads of it
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As always, but a command says by itself what it does not know, and what is like it."""
        self._given.clear()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            wrong = [text.partition("=")[0] for text in unknown if text.startswith("--")]
            hint = did_you_mean(wrong[0], known) if wrong else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As always, but what holds one value is given once: the last would silently win."""
        if action.option_strings and isinstance(action, argparse._StoreAction):
            if action in self._given:
                self.error(f"{action.option_strings[0]} is given twice")
            self._given.add(action)
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            there_is = ", ".join(map(str, action.choices))
            hint = did_you_mean(str(value), map(str, action.choices))
            message = f"invalid choice: {value!r}{hint}; there is: {there_is}"
            raise argparse.ArgumentError(action, message)


def adder(commands: Commands, module: str) -> Callable[..., Parser]:
    """What adds a command: its name, its function in the module, its help; whether it trains."""

    def add(name: str, function: str, help: str, trains: bool = False) -> Parser:
        sub = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        sub.set_defaults(module=module, function=function, trains=trains, json=False, csv=False)
        return sub

    return add
