"""Synthetic run directories: plausible learning curves without any learning."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

SKILL = {"fedkl": -8.0, "fedavg": -10.5, "fedprox": -9.2, "fmarl": -12.0}
VERSIONS = {"fedkl": "0.1.0", "jax": "0.7.0"}


def config_of(algorithm: str, seed: int, rounds: int) -> dict[str, Any]:
    """A resolved config."""
    own = {"fedkl": {"d_global": 0.05}, "fedprox": {"mu": 0.1}}.get(algorithm, {})
    return {
        "seed": seed,
        "preset": "reacher-figure-3",
        "federation": {"rounds": rounds, "clients": 10, "selected": 5},
        "learner": {"d_local": 0.003, "epochs": 10, "hidden": [64, 64]},
        "critic": {"lr": 0.001},
        "algorithm": {"name": algorithm, **own},
        "world": {"name": "reacher", "kind": "iid"},
        "evaluation": {"every": 1},
    }


def record_of(algorithm: str, round_: int, rng: np.random.Generator) -> dict[str, Any]:
    """One metrics record; what is random comes from `rng`."""
    level = SKILL.get(algorithm, -11.0)
    progress = np.exp(-round_ / 22) * 8 + np.exp(-round_ / 2.5) * 170
    clients = level - progress - np.linspace(0, 4, 10) + rng.normal(0, 0.35, 10)
    own = {"c1": float(np.exp(rng.normal(0, 0.1) - round_ / 120))} if algorithm == "fedkl" else {}
    distance = (0.05 if algorithm == "fedkl" else 0.2) * np.exp(rng.normal(0, 0.2))
    trouble = rng.random() < 0.06
    return {
        "round": round_,
        "return_mean": float(clients.mean()),
        "return_min": float(clients.min()),
        "return_std": float(clients.std()),
        "return_per_client": clients.tolist(),
        "evaluated": None,
        "deterministic_return_mean": float(clients.mean() + 0.8),
        "selected": [0, 3, 4, 7, 9],
        "rejected": [{"client": 4, "reason": "not finite"}] if trouble else [],
        "kl_local": float(0.003 * np.exp(rng.normal(0, 0.3))),
        "distance_global": float(distance),
        "coefficients": {**own, "c2": float(np.exp(rng.normal(0, 0.2) + round_ / 80))},
        "note": None,
        "guarded": int(rng.random() < 0.1),
        "env_steps": 6400 * round_,
        "bytes_down": 5 * 40_000,
        "bytes_up": 5 * 40_000,
        "seconds": 0.4,
        "clients": [],
    }


def write_run(
    path: Path,
    algorithm: str = "fedkl",
    seed: int = 0,
    rounds: int = 20,
    *,
    done: int | None = None,
    every: int = 1,
    in_files: bool = False,
    edit: Callable[[dict[str, Any]], None] = lambda record: None,
) -> Path:
    """Writes a run directory.

    Args:
        path: the directory to make.
        algorithm, seed: of the run.
        rounds: planned by the config.
        done: how many are recorded; a run that did fewer than all has no summary.
        every: only every so many rounds are evaluated.
        in_files: the clients' returns are in files, as in a run of many clients.
        edit: changes each record in place before it is written.
    """
    path.mkdir(parents=True)
    rng = np.random.default_rng([seed, len(algorithm)])
    offset = rng.normal(0, 0.3)
    with (path / "config.toml").open("wb") as file:
        tomli_w.dump(config_of(algorithm, seed, rounds), file)
    lines = []
    for round_ in range(1, (rounds if done is None else done) + 1):
        record = record_of(algorithm, round_, rng)
        for key in ("return_mean", "deterministic_return_mean"):
            record[key] += offset
        if round_ % every:
            for key in record:
                record[key] = None if "return" in key else record[key]
        edit(record)
        if in_files and record["return_per_client"] is not None:
            record["returns_file"] = f"returns/{round_:06d}.npy"
            (path / "returns").mkdir(exist_ok=True)
            np.save(path / record["returns_file"], np.array(record["return_per_client"]))
            record["return_per_client"] = None
        lines.append(json.dumps(record) + "\n")
    (path / "metrics.jsonl").write_text("".join(lines))
    if done is None or done >= rounds:
        (path / "summary.json").write_text(json.dumps({"versions": VERSIONS, "seconds": 1.0}))
    return path


def write_comparison(
    path: Path, algorithms: Sequence[str], seeds: Sequence[int], rounds: int = 20
) -> Path:
    """Writes a comparison directory with one run for each algorithm and seed."""
    path.mkdir(parents=True, exist_ok=True)
    plan = {"preset": "x", "algorithms": list(algorithms), "seeds": list(seeds), "jobs": 1}
    (path / "compare.toml").write_text(tomli_w.dumps(plan))
    for algorithm in algorithms:
        for seed in seeds:
            write_run(path / f"{algorithm}-seed{seed}", algorithm, seed, rounds)
    return path


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`write_run` below the temporary directory of the test."""
    return lambda name="run", *args, **kwargs: write_run(tmp_path / name, *args, **kwargs)


@pytest.fixture
def make_comparison(tmp_path: Path) -> Callable[..., Path]:
    """`write_comparison` below the temporary directory of the test."""
    return lambda *args, **kwargs: write_comparison(tmp_path / "comparison", *args, **kwargs)


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison of two algorithms with three seeds; not to be changed by a test."""
    return write_comparison(tmp_path_factory.mktemp("shared") / "c", ["fedkl", "fedavg"], [0, 1, 2])
