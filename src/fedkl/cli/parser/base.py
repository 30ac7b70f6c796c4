"""A parser that answers a wrong command line with one sentence, and how commands are added."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from fedkl.cli import console
from fedkl.core.text import did_you_mean

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]
else:
    Commands = argparse._SubParsersAction


class _Formatter(argparse.HelpFormatter):
    """Says what an option is if it is not given, where its help does not; and shows an order of
    words that works."""

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: str | None
    ) -> str:
        """What must be given, in the order in which it can be typed: an option that takes several
        values would take a word that follows them, too."""
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
    """Options are spelled out: what is added later must not change what a command means."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Formatter, **options})
        self._given: set[argparse.Action] = set()
        self._last: list[tuple[str, str]] = []
        """Options that took several values, and the last of these."""

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
        """As always, but a command says by itself what it does not know, and what is like it."""
        self._given.clear()
        self._last.clear()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            wrong = [text.partition("=")[0] for text in unknown if text.startswith("--")]
            hint = did_you_mean(wrong[0], known) if wrong else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As always, but what holds one value is given once: the last would silently win; and it
        is remembered what may have taken a word too many."""
        if action.option_strings and isinstance(action, argparse._StoreAction):
            if action in self._given:
                self.error(f"{action.option_strings[0]} is given twice")
            self._given.add(action)
        if action.option_strings and action.nargs == "+" and len(arg_strings) > 1:
            self._last.append((action.option_strings[0], arg_strings[-1]))
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
        sub.set_defaults(reads=())
        return sub

    return add
