"""The check of names, paths and limits before a command imports JAX, which takes seconds.

What is refused here the command would refuse, too; it checks all the rest.
"""

from __future__ import annotations

import argparse
from importlib import resources
from pathlib import Path

from fedkl.config import presets
from fedkl.core.errors import UserError
from fedkl.core.plugins import sha256_of
from fedkl.core.processes import require_address_space
from fedkl.core.registry import require_known
from fedkl.core.text import did_you_mean
from fedkl.io import strict_toml
from fedkl.io.files import explain_os_errors

ALL, REPORT = "all", "report"
"""Words that `fedkl reproduce` takes beside the name of an experiment."""
_NOT_AN_ALGORITHM = ("__init__", "base")


def check(options: argparse.Namespace) -> None:
    """Check the names of presets, algorithms and experiments, the paths that must be there, and
    that JAX can start where it is needed.

    Raises:
        UserError: says what is wrong, and what is allowed.
    """
    for plugin in getattr(options, "plugin", ()):
        sha256_of(plugin)
    for name in options.reads:
        given = getattr(options, name)
        for path in given if isinstance(given, list) else [given]:
            _check_there(path)
    if hasattr(options, "experiment"):
        _check_experiment(options.experiment)
    if hasattr(options, "preset"):
        _check_preset(options)
    if options.computes or (options.trains and getattr(options, "experiment", None) != REPORT):
        require_address_space()


def algorithms() -> list[str]:
    """List the names of the package's own algorithms: those of their files."""
    files = (resources.files("fedkl") / "algorithms").iterdir()
    stems = [file.name.removesuffix(".py") for file in files if file.name.endswith(".py")]
    return sorted(stem.replace("_", "-") for stem in stems if stem not in _NOT_AN_ALGORITHM)


def experiments() -> list[str]:
    """List the names of the paper's experiments."""
    table = resources.files("fedkl") / "experiments" / "reproduce" / "experiments.toml"
    return [*strict_toml.parse(table.read_text(encoding="utf-8"))]


def _check_there(path: Path) -> None:
    with explain_os_errors("read", path):
        if not path.exists():
            raise UserError(f"{path} does not exist")
        if not path.is_dir():
            raise UserError(f"{path} is a file, and the directory of a run is asked for")


def _check_experiment(name: str) -> None:
    known = (*experiments(), ALL, REPORT)
    if name not in known:
        hint = did_you_mean(name, known)
        raise UserError(f"there is no experiment '{name}'{hint}; available: {', '.join(known)}")


def _check_preset(options: argparse.Namespace) -> None:
    layers = presets.layers(options.preset)
    set_here = any(assignment.startswith("plugins") for assignment in getattr(options, "set", ()))
    if options.plugin or presets.united(layers.values(), "plugins") or set_here:
        return  # they may register any name
    one = getattr(options, "algorithm", None)
    for name in getattr(options, "algorithms", [] if one is None else [one]) or []:
        if "," in name:
            raise UserError(f"--algorithms takes names with spaces between them, not '{name}'")
        require_known("algorithm", name, algorithms(), "algorithm.name")
