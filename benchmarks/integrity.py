"""What it costs that a run directory can be trusted: the share of a run's time that goes into it.

    python benchmarks/integrity.py [--preset NAME] [--rounds R] [--set KEY=VALUE ...] [--out FILE]

Trains a run with a clock around everything that is only there for provenance and integrity:
checksums of log lines, what checkpoints say of their origin, fencing, and the comparisons when a
run is begun. Then the same run is gone on with once more, which is all comparison and no training.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import elapsed, emit, machine, run_on_cores

import fedkl
from fedkl.config.config import parse_assignment
from fedkl.io.compilation import enable_cache
from fedkl.io.locks import Lock
from fedkl.server.loop import Federation
from fedkl.training import lifecycle, metrics
from fedkl.training.metrics import MetricsLog
from fedkl.training.origin import Origin

LIMIT = 0.02
"""Of a run's time."""
CLOCKED: tuple[tuple[Any, str], ...] = (
    (lifecycle, "origin_of"),
    (lifecycle, "require_checkpoints"),
    (lifecycle, "told"),
    (Origin, "encode"),
    (Lock, "require"),
    (Lock, "note"),
    (metrics, "_sealed"),
    (MetricsLog, "_head"),
    (MetricsLog, "require_rounds"),
)


def clocked(function: Callable[..., Any], name: str, spent: Counter[str]) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent[name] += time.perf_counter() - start

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    run_on_cores(2)
    enable_cache()
    settings = {"federation.rounds": options.rounds, "checkpoint.every": 1}
    settings |= dict(map(parse_assignment, options.set))
    config = fedkl.preset(options.preset, set=settings)
    with Federation(config) as federation:
        federation.run_round()  # nothing is compiled for the first time below
    spent: Counter[str] = Counter()
    for owner, name in CLOCKED:
        setattr(owner, name, clocked(getattr(owner, name), name.lstrip("_"), spent))
    with tempfile.TemporaryDirectory() as folder:
        run = lifecycle.create(config, Path(folder) / "run")
        with Federation(config) as federation:
            whole = elapsed(
                lambda: lifecycle.run_remaining(run, lambda _: None, print, federation)
            ).wall
        checks = dict(spent)
        again = elapsed(lambda: lifecycle.load(run, print)).wall
    share = sum(checks.values()) / whole
    result = {
        "machine": machine("fedkl", "jax"),
        "settings": {"preset": options.preset, **settings},
        "run_seconds": whole,
        "check_seconds": checks,
        "share": share,
        "limit": LIMIT,
        "load_seconds": again,
    }
    emit(result, f"checks take {100 * share:.2f} % of a run (limit {100 * LIMIT:.0f})", options.out)


if __name__ == "__main__":
    main()
