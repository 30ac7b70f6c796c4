"""Errors that end a command in one sentence: a mistake of the user, or training that stalls."""

import re
from importlib import metadata


class UserError(Exception):
    """Something the user asked for cannot be done; the message is one clear sentence.

    The command line prints it on stderr and exits with code 2. An exception that is not of this
    module is a defect of ours and ends in a traceback.
    """


class MissingPackageError(UserError):
    """A package that is not installed, because only some need it."""

    def __init__(self, needs: str, extra: str) -> None:
        """Args:
        needs: what needs it, and its name: "a cluster needs Ray".
        extra: of this package, which brings it along.
        """
        super().__init__(f"{needs}; install it with `pip install -e '.[{extra}]'`")


def missing_dependency(error: Exception) -> str:
    """Say that fedkl was installed without what it depends on, if that is the error; else ""."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    package = error.name.partition(".")[0]
    # Of an extra, a requirement has a marker after a semicolon.
    base = [need for need in metadata.requires("fedkl") or () if ";" not in need]
    names = {re.split(r"[^\w.-]", need)[0].replace("-", "_").lower() for need in base}
    if package.lower() not in names:
        return ""
    return (
        f"{package} is not installed, and commands need all that fedkl depends on: install it "
        "without --no-deps. What there is can load a policy in Python (fedkl.load)"
    )


STALLED = 3
"""The exit code of training that goes nowhere."""


class StalledError(Exception):
    """Training goes nowhere: no update reaches the model any more, or no return is a number. What
    was reached is saved.

    The command line prints it on stderr and exits with code 3, because there is nothing wrong with
    what the user typed.
    """
