"""A comparison on a Ray of its own, beside the same one in worker processes.

    python benchmarks/ray_comparison.py [--pairs N] [--rounds R] [--set KEY=VALUE ...] [--out FILE]

Both are whole commands, with everything that they start and end, and take turns. Nothing is
compiled for the first time: a run of each comes before. The time on Ray should be at most `LIMIT`
times the other, and what both leave on disk must be the same.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import elapsed, emit, machine, run_on_cores, spread

LIMIT = 1.0
WAYS = {"jobs": ["--jobs", "2"], "ray": ["--jobs", "2", "--ray"]}


def compare(way: list[str], options: argparse.Namespace, path: Path) -> float:
    """Seconds that the command takes."""
    command = [
        sys.executable, "-P", "-m", "fedkl", "compare", options.preset, "--algorithms", "fedavg",
        "fedkl", "--seeds", str(options.seeds), "--rounds", str(options.rounds), *way,
        "--run", str(path),
    ]  # fmt: skip
    command += ["--set", *options.set] if options.set else []
    return elapsed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)).wall


def checkpoints(path: Path) -> dict[str, bytes]:
    """All checkpoints of a comparison."""
    return {str(p.relative_to(path)): p.read_bytes() for p in path.glob("*/checkpoints/*")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--pairs", type=int, default=5, help="how often each is measured")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    run_on_cores(2)
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(options.pairs + 1):
            paths = {name: Path(folder) / f"{name}-{pair}" for name in WAYS}
            took = {name: compare(WAYS[name], options, paths[name]) for name in WAYS}
            assert checkpoints(paths["ray"]) == checkpoints(paths["jobs"]) != {}
            if pair:  # the first compiles
                for name in WAYS:
                    seconds[name].append(took[name])
    ratios = [ray / jobs for ray, jobs in zip(seconds["ray"], seconds["jobs"], strict=True)]
    result = {
        "machine": machine("fedkl", "jax", "ray"),
        "setting": {n: x for n, x in vars(options).items() if n != "out"},
        "seconds": {name: spread(seconds[name]) for name in WAYS},
        "ratio": spread(ratios) | {"limit": LIMIT},
    }
    summary = f"on Ray {spread(ratios)['median']:.2f} times --jobs 2 (at most {LIMIT:g})"
    emit(result, summary, options.out)


if __name__ == "__main__":
    main()
