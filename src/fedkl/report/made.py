"""What a page says about itself: the command that makes it, the day, the versions."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from fedkl.errors import UserError
from fedkl.report.markup import Html, html, link, paragraph, preformatted

PAPER = "https://doi.org/10.1109/JSAC.2023.3242734"


def made_by(command: str, packages: Sequence[str]) -> Html:
    """The foot of a page.

    Args:
        command: makes the page again.
        packages: those that drew and computed it.
    """
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    said = html(f"Made on {_today()} with {versions}. FedKL is the algorithm of ")
    paper = link(PAPER, "Xie and Song, 2023")
    return Html(preformatted(command) + paragraph(Html(f"{said}{paper}.")))


def typed(directory: Path) -> str:
    """A directory as it was typed; of an absolute path only its name, because where on a machine
    it lies is nobody's business."""
    return shlex.quote(directory.name if directory.is_absolute() else str(directory))


def _today() -> str:
    """The day, or the one that builds which are to be repeated exactly give for it."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None and not given.isdecimal():
        raise UserError(f"SOURCE_DATE_EPOCH is a number of seconds, and not {given!r}")
    return time.strftime("%Y-%m-%d", time.gmtime(None if given is None else int(given)))
