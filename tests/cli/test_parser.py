"""Every command that the parser knows has a function that runs it."""

import argparse
import importlib

import pytest

from fedkl.cli.parser import parser

TRAINING = ("train", "resume", "compare", "tune", "tune-d-global")


def commands(of, path=()):
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from commands(sub, (*path, name))
            return
    yield path, of._defaults


@pytest.mark.parametrize(("path", "defaults"), list(commands(parser())), ids=lambda x: str(x))
def test_a_command_has_a_function(path, defaults):
    module = importlib.import_module(f"fedkl.cli.{defaults['module']}")
    assert callable(getattr(module, defaults["function"]))
    assert defaults["trains"] == (path[-1] in TRAINING)
