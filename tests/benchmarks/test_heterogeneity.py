"""The benchmark of the sampled level of heterogeneity runs, at its smallest size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from fedkl.io.user_folders import cache_folder

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "heterogeneity.py"
SMALL = [
    "federation.clients=2",
    "federation.clients_per_round=1",
    "learner.iterations=1",
    "learner.steps=50",
    "learner.epochs=1",
    "critic.epochs=1",
    "learner.hidden=[4]",
    "critic.hidden=[4]",
]


def test_it_compares_with_what_is_exact_with_itself_and_with_training(tmp_path: Path) -> None:
    out = tmp_path / "heterogeneity.json"
    sizes = ["--repetitions", "1", "--trajectories", "4", "--most", "24", "--reference", "4"]
    chosen = ["--winds", "0", "--clients", "2", "--presets", "reacher-iid", "--rounds", "0"]
    environment = os.environ | {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(cache_folder()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, str(BENCHMARK), *sizes, *chosen, "--features", "3"]
    command += ["--out", str(out), "--set", *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    rows = [(row["rewards"], row["policy"]) for row in result["grid"]]
    assert rows == [
        (where, policy)
        for where in ("everywhere", "at the goal")
        for policy in ("uniform", "better")
    ]
    assert all(row["true_ratio"] < 1e-6 for row in result["grid"])
    assert all(row["counting_heterogeneity_bias"] > 0 for row in result["grid"])
    assert [row["trajectories"] for row in result["by_trajectories"]] == [24]
    assert [row["features"] for row in result["features"]] == [3]
    assert result["seconds"]["bytes_from_a_client"] == 4 * 2 * 3 * 48 * 4
    assert result["seconds"]["relative"]["cpu"]["median"] > 0
