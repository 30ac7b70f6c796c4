"""Errors in code of the user's own: the place in it, and the whole traceback.

A plugin's bug is its author's to mend. So it is told in a sentence with a file and a line, and the
traceback goes along as a note of the error, also out of other processes.
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from fedkl.core.errors import StalledError, UserError
from fedkl.core.text import one_line

_OURS = f"{Path(__file__).parents[1]}/"
_PYTHONS = (
    *(f"{sysconfig.get_paths()[name]}/" for name in ("stdlib", "platstdlib")),
    "<",  # what Python itself is made of has no file
)
_INSTALLED = ("/site-packages/", "/dist-packages/")
_LONGEST = 300
"""Characters of an error that are shown; some errors of JAX are pages."""


class OwnCodeError(UserError):
    """Code of the user's own raised an error: the message says which, and where in the code."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        """Args:
        sentence: for the terminal.
        trace: the whole traceback, where it was raised; it goes along to other processes.
        """
        super().__init__(sentence)
        if trace:
            self.add_note(trace)

    @property
    def trace(self) -> str:
        """The whole traceback, where it was raised."""
        return "\n".join(getattr(self, "__notes__", ()))


def own_code_error(error: BaseException) -> OwnCodeError | None:
    """Return the error that tells of an error in a user's own code; None if it is in none, or is a
    sentence already."""
    if isinstance(error, OwnCodeError):
        return error
    if isinstance(error, UserError | StalledError) or not (place := place_in(error)):
        return None
    return OwnCodeError(f"{place}: {shortened(error)}", _trace_of(error))


def explained(sentence: str, error: BaseException, installed: bool = False) -> UserError:
    """Return the error of a sentence, with the place in a user's own code that another came by.

    Args:
        sentence: for the terminal.
        error: that was caught.
        installed: as of `place_in`.
    """
    if not (place := place_in(error, installed)):
        return UserError(sentence)
    return OwnCodeError(f"{sentence} ({place})", _trace_of(error))


def place_in(error: BaseException, installed: bool = False) -> str:
    """Return the last place in a user's own code that an error came by; empty if there is none.

    Args:
        error: that was caught.
        installed: code of installed packages counts, too: an environment may be one.
    """
    files = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OURS)
    ]
    packages = [frame for frame in files if any(part in frame.filename for part in _INSTALLED)]
    own = [f for f in files if f not in packages and not f.filename.startswith(_PYTHONS)]
    return next(map(_place, reversed(own or (packages if installed else []))), "")


def shortened(error: BaseException) -> str:
    """Write an error in one line that is not too long."""
    text = one_line(error)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _trace_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _place(frame: traceback.FrameSummary) -> str:
    function = "" if frame.name.startswith("<") else f", in {frame.name}"
    return f"{frame.filename}, line {frame.lineno}{function}"
