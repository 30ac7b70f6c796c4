"""`fedkl list`: list what can be asked for by name."""

from __future__ import annotations

import argparse

from fedkl.cli import common, console, interrupts, output
from fedkl.config import presets
from fedkl.core.plugins import load_plugin
from fedkl.core.registry import Registry
from fedkl.io import tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_plugins(parser)
    common.add_formats(parser)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.algorithms import ALGORITHMS
        from fedkl.clients.upload import UPLOADS
        from fedkl.experiments.reproduce import EXPERIMENTS
        from fedkl.server.aggregation import REDUCERS, STEPS, TRANSFORMS
        from fedkl.server.selection import SELECTORS
        from fedkl.worlds import WORLDS

    for path in options.plugin:
        load_plugin(path)
    experiments = {name: f"{one.summary} ({one.figure})" for name, one in EXPERIMENTS.items()}
    # What it is, where it is asked for, and its names.
    kinds = (
        ("presets", "", presets.summaries()),
        ("algorithms", "algorithm.name", _summaries(ALGORITHMS)),
        ("worlds", "world.name", _summaries(WORLDS)),
        ("reducers", "aggregation.reduce", _summaries(REDUCERS)),
        ("transforms", "aggregation.each", _summaries(TRANSFORMS)),
        ("server steps", "aggregation.step", _summaries(STEPS)),
        ("upload links", "upload.each", _summaries(UPLOADS)),
        ("selectors", "selection.name", _summaries(SELECTORS)),
        ("experiments", "fedkl reproduce", experiments),
    )
    rows = [
        {"kind": kind, "name": name, "summary": summary}
        for kind, _, lines in kinds
        for name, summary in lines.items()
    ]
    if output.answered(options, {kind: lines for kind, _, lines in kinds}, rows):
        return
    for kind, where, lines in kinds:
        shown = [(f"  {name}", summary) for name, summary in lines.items()]
        title = f"{kind} ({where})" if where else kind
        tables.show(tables.Table(("", ""), shown, (0, 1), title), console.out)


def _summaries(registry: Registry) -> dict[str, str]:
    return {name: registry[name].summary for name in registry}
