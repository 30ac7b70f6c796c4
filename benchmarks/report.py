"""A report over many runs: how long the command takes, and how large its page is.

    python benchmarks/report.py [--runs N] [--groups G] [--rounds R] [--clients C]
                                [--repetitions P] [--out FILE]

The runs are made up, and lie on disk as trained ones do, in groups that differ in algorithm or
settings; the command is a whole process. With 100 runs of 200 rounds it should take at most
`SECONDS`, and its page `BYTES`, in however many groups they are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measuring import elapsed, emit, machine, run_on_cores, spread

import fedkl
from fedkl.training.directory import RunDirectory

SECONDS, BYTES = 20.0, 3_000_000


def settings_of(group: int) -> tuple[str, dict[str, Any]]:
    """The algorithm of a group and its settings; after the fifth they differ in a setting alone."""
    first = ("fedkl", "fedkl", "fedavg", "fedprox", "scaffold")
    algorithm = first[group] if group < len(first) else "fedkl"
    own = {"algorithm.d_global": round(0.3 * (group + 1), 1)} if algorithm == "fedkl" else {}
    return algorithm, own


def record(round: int, clients: int, group: int, draws: np.random.Generator) -> dict[str, Any]:
    """What a round might have logged."""
    level = -10.0 - group - 80 * np.exp(-round / 8)
    returns = level - np.linspace(0, 4, clients) + draws.normal(0, 0.4, clients)
    own = [
        {"client": c, "kl_local": 0.003, "distance_global": 0.1, "coefficients": {"c2": 1.0}}
        for c in range(3)
    ]
    return {
        "round": round,
        "return_mean": returns.mean(),
        "return_min": returns.min(),
        "return_std": returns.std(),
        "return_per_client": returns,
        "evaluated": None,
        "deterministic_return_mean": returns.mean() + 0.5,
        "selected": [0, 1, 2],
        "rejected": [],
        "note": None,
        "kl_local": 0.003 * np.exp(draws.normal(0, 0.3)),
        "distance_global": 0.1 * np.exp(draws.normal(0, 0.3)),
        "coefficients": {"c1": np.exp(draws.normal(0, 0.1)), "c2": np.exp(draws.normal(0, 0.2))},
        "guarded": int(draws.random() < 0.1),
        "env_steps": 6000 * round,
        "bytes_down": 120_000,
        "bytes_up": 120_000,
        "seconds": 0.4,
        "clients": own,
        "heterogeneity": None,
    }


def make(folder: Path, options: argparse.Namespace) -> list[Path]:
    """The runs, a few seeds of each group."""
    runs = []
    for number in range(options.runs):
        seed, group = divmod(number, options.groups)
        algorithm, settings = settings_of(group)
        sizes = {"federation.rounds": options.rounds, "federation.clients": options.clients}
        config = fedkl.preset("demo", algorithm, seed, sizes | settings)
        run = RunDirectory.create(folder / f"{number:03d}", config.mapping())
        draws = np.random.default_rng(number)
        with run.lock():
            for round in range(1, options.rounds + 1):
                run.metrics.append(record(round, options.clients, group, draws))
            run.write_summary({"rounds": options.rounds, "seconds": 0.4 * options.rounds})
        runs.append(run.path)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    run_on_cores(2)
    with tempfile.TemporaryDirectory() as folder:
        runs = make(Path(folder) / "runs", options)
        out = Path(folder) / "report"
        command = [
            sys.executable,
            "-P",
            "-m",
            "fedkl",
            "report",
            *map(str, runs),
            "--out",
            str(out),
        ]
        took = [
            elapsed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)).wall
            for _ in range(options.repetitions)
        ]
        size = (out / "report.html").stat().st_size
    result = {
        "machine": machine("fedkl", "numpy", "matplotlib"),
        "setting": {n: x for n, x in vars(options).items() if n != "out"},
        "seconds": spread(took) | {"limit": SECONDS},
        "bytes": {"page": size, "limit": BYTES},
    }
    summary = (
        f"{options.runs} runs of {options.rounds} rounds in {options.groups} groups: "
        f"{spread(took)['median']:.1f} s (at most {SECONDS:g}), "
        f"{size / 1e6:.2f} MB (at most {BYTES / 1e6:g})"
    )
    emit(result, summary, options.out)


if __name__ == "__main__":
    main()
