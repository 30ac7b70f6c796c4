"""What a round costs as more clients take part (K) and as the federation grows (N).

Every measurement is a fresh process, so that its peak memory is its own, and the whole list is
gone through several times, so that a busy minute does not hit one setting only. Compiled code is
shared between the processes, as it is between runs of `fedkl`. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

from measuring import elapsed, emit, machine, run_on_cores, spread

import fedkl
from fedkl.compilation import enable_cache
from fedkl.config import parse_assignment
from fedkl.federation.arrays import to_arrays
from fedkl.federation.loop import Federation
from fedkl.runs.checkpoints import Checkpoints

PRESET = "reacher-init-state"
PER_ROUND = (1, 3, 10, 30, 100)
CLIENTS = (60, 1_000, 10_000)
USUAL_N, USUAL_K = 100, 3
ITERATIONS = 2
"""Local iterations in a round, instead of the paper's 20, to measure much in little time."""
CLIENTS_TRAINED = 60
"""How many clients a process trains at least, in as many rounds as that takes."""
SAVES = 3


def measure(n: int, k: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Rounds, checkpoints and peak memory of one federation, in this process."""
    rounds = max(2, -(-CLIENTS_TRAINED // k))
    changes = {
        "federation.clients": n,
        "federation.clients_per_round": k,
        # The first round loads compiled code. The last would be evaluated, and is never reached.
        "federation.rounds": rounds + 2,
        "evaluation.every": 10**6,
        "learner.iterations": ITERATIONS,
    }
    federation = Federation(fedkl.preset(PRESET, set=changes | settings))
    first = elapsed(federation.run_round)
    times = [elapsed(federation.run_round) for _ in range(rounds)]
    trained_mb = _peak_mb()
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))

        def save() -> None:
            checkpoints.save(int(federation.state.round), to_arrays(federation.state))

        saves = [elapsed(save) for _ in range(SAVES)]
        size = max(path.stat().st_size for path in Path(folder).iterdir())
    return {
        "wall": [t.wall for t in times],
        "cpu": [t.cpu for t in times],
        "first_round": first.wall,
        "checkpoint": [t.wall for t in saves],
        "checkpoint_bytes": size,
        "peak_mb": trained_mb,
        "peak_mb_with_checkpoints": _peak_mb(),
    }


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def in_fresh_process(n: int, k: int, assignments: list[str], cache: str) -> dict[str, Any]:
    """`measure`, in a process of its own that finds compiled code in `cache`."""
    command = [sys.executable, __file__, "--measure", str(n), str(k), "--set", *assignments]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def merged(n: int, k: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the result, over all repetitions."""

    def all_of(name: str) -> list[float]:
        return [x for run in runs for x in run[name]]

    return {
        "clients": n,
        "per_round": k,
        "rounds_measured": len(all_of("wall")),
        "round_seconds": {clock: spread(all_of(clock)) for clock in ("wall", "cpu")},
        "seconds_per_client": {clock: median(all_of(clock)) / k for clock in ("wall", "cpu")},
        "first_round_seconds": median(run["first_round"] for run in runs),
        "checkpoint_seconds": spread(all_of("checkpoint")),
        "checkpoint_bytes": runs[0]["checkpoint_bytes"],
        "peak_mb": max(run["peak_mb"] for run in runs),
        "peak_mb_with_checkpoints": max(run["peak_mb_with_checkpoints"] for run in runs),
    }


def compare(repetitions: int, assignments: list[str]) -> dict[str, Any]:
    """All settings, gone through `repetitions` times."""
    settings = [(USUAL_N, k) for k in PER_ROUND] + [(n, USUAL_K) for n in CLIENTS]
    runs: dict[tuple[int, int], list[dict[str, Any]]] = {setting: [] for setting in settings}
    with tempfile.TemporaryDirectory() as cache:
        print("compiling", file=sys.stderr)
        compiling = in_fresh_process(CLIENTS[0], USUAL_K, assignments, cache)
        for repetition in range(repetitions):
            for n, k in settings:
                print(f"{repetition + 1} of {repetitions}: N = {n}, K = {k}", file=sys.stderr)
                runs[n, k].append(in_fresh_process(n, k, assignments, cache))
    rows = {(n, k): merged(n, k, runs[n, k]) for n, k in settings}
    by_k = [rows[USUAL_N, k] for k in PER_ROUND]
    by_n = [rows[n, USUAL_K] for n in CLIENTS]
    return {
        "what": "seconds of a round, without evaluation, against K and against N",
        "machine": machine("jax", "numpy"),
        "setting": {
            "preset": PRESET,
            "local_iterations": ITERATIONS,
            "note": f"{ITERATIONS} local iterations a round instead of the paper's 20",
            "set": assignments,
            "repetitions": repetitions,
        },
        "compiling": {name: compiling[name] for name in ("first_round", "peak_mb")},
        "by_clients_per_round": by_k,
        "per_client_relative_to_k3": {
            clock: {
                str(row["per_round"]): row["seconds_per_client"][clock]
                / rows[USUAL_N, USUAL_K]["seconds_per_client"][clock]
                for row in by_k
            }
            for clock in ("wall", "cpu")
        },
        "line_through_k": {clock: _line(by_k, clock) for clock in ("wall", "cpu")},
        "by_clients": by_n,
        "round_relative_to_n60": {
            clock: {
                str(row["clients"]): row["round_seconds"][clock]["median"]
                / by_n[0]["round_seconds"][clock]["median"]
                for row in by_n
            }
            for clock in ("wall", "cpu")
        },
    }


def _line(rows: list[dict[str, Any]], clock: str) -> dict[str, float]:
    """Least squares: a round costs so much, and so much for each client."""
    line = linear_regression(
        [row["per_round"] for row in rows], [row["round_seconds"][clock]["median"] for row in rows]
    )
    return {"seconds_per_client": line.slope, "seconds_per_round": line.intercept}


def summary(result: dict[str, Any]) -> str:
    """A table for people."""
    lines = ["     N    K  s/round  s/client  cpu s/client  checkpoint s  peak MB"]
    for row in result["by_clients_per_round"] + result["by_clients"]:
        per_client = row["seconds_per_client"]
        lines.append(
            f"{row['clients']:6d} {row['per_round']:4d} "
            f"{row['round_seconds']['wall']['median']:8.3f} "
            f"{per_client['wall']:9.4f} {per_client['cpu']:13.4f} "
            f"{row['checkpoint_seconds']['median']:13.4f} {row['peak_mb_with_checkpoints']:8.0f}"
        )
    for title, name in (
        ("a client's cost at each K, relative to K = 3", "per_client_relative_to_k3"),
        ("a round's cost at each N, relative to N = 60", "round_relative_to_n60"),
    ):
        for clock, ratios in result[name].items():
            shown = ", ".join(f"{x}: {ratio:.2f}" for x, ratio in ratios.items())
            lines.append(f"{title} ({clock}): {shown}")
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark, or one measurement of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="cores to run on")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument(
        "--measure", nargs=2, type=int, metavar=("N", "K"), help="measure this here and now"
    )
    args = parser.parse_args()
    if args.measure:
        enable_cache()
        print(json.dumps(measure(*args.measure, dict(map(parse_assignment, args.set)))))
        return
    run_on_cores(args.cores)
    result = compare(args.repetitions, args.set)
    emit(result, summary(result), args.out)


if __name__ == "__main__":
    main()
