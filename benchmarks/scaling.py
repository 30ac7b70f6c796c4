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
from typing import Any, NamedTuple

from measuring import Elapsed, elapsed, emit, machine, run_on_cores, spread

import fedkl
from fedkl import Federation
from fedkl.config.config import parse_assignment
from fedkl.io.compilation import enable_cache
from fedkl.server.records import Record
from fedkl.training import lifecycle

PRESET = "reacher-init-state-paper"
PER_ROUND = (1, 3, 10, 30, 100)
CLIENTS = (60, 1_000, 10_000)
LARGE = (1_000, 100_000)
USUAL_N, USUAL_K = 100, 3
ITERATIONS = 2
"""Local iterations in a round, instead of the paper's 20, to measure much in little time."""
CLIENTS_TRAINED = 60
"""How many clients a process trains at least, in as many rounds as that takes."""
NOT_EVALUATED = ("evaluation.every=1000000",)
WHOLE = ("federation.critic=local", "evaluation.every=1", "evaluation.clients=20")
"""Every client's critic is its own, and each round is evaluated on a sample of clients."""
PARTS, CLOCKS = ("round", "checkpoint", "log"), ("wall", "cpu")
LIMIT = 1.5
"""What a part of a round may cost at the largest N, in costs at the smallest of `LARGE`."""


class Case(NamedTuple):
    """What one process measures."""

    clients: int
    per_round: int
    settings: tuple[str, ...] = NOT_EVALUATED


def measure(n: int, k: int, trained: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Time rounds as `lifecycle.run_remaining` runs them, part by part, and peak memory, here."""
    rounds = max(2, -(-trained // k))
    changes = {
        "federation.clients": n,
        "federation.clients_per_round": k,
        # The first round loads compiled code. The last is always evaluated, and is never reached.
        "federation.rounds": rounds + 2,
        "learner.iterations": ITERATIONS,
    }
    config = fedkl.preset(PRESET, set=changes | settings)
    federation = Federation(config)
    times: dict[str, list[Elapsed]] = {part: [] for part in PARTS}
    sizes: dict[str, list[int]] = {"checkpoint": [], "log": []}
    with tempfile.TemporaryDirectory() as folder:
        run = lifecycle.create(config, Path(folder) / "run")
        checkpoints = run.checkpoints.directory

        record: list[Record] = []

        def train() -> None:
            record[:] = [federation.run_round()]

        def log() -> None:
            lifecycle._log(run, record[0], "")

        def save() -> None:
            done = int(federation.state.round)
            run.checkpoints.save(done, *federation.save())
            federation.saved(done - 1)

        for _ in range(1 + rounds):
            logged = run.metrics.path.stat().st_size if record else 0
            times["round"].append(elapsed(train))
            times["log"].append(elapsed(log))
            times["checkpoint"].append(elapsed(save))
            newest = max(checkpoints.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            sizes["checkpoint"].append(newest.stat().st_size)
            sizes["log"].append(run.metrics.path.stat().st_size - logged)
        on_disk = sum(path.stat().st_size for path in checkpoints.iterdir())
    return {
        "wall": {part: [t.wall for t in times[part][1:]] for part in PARTS},
        "cpu": {part: [t.cpu for t in times[part][1:]] for part in PARTS},
        "bytes": {part: sizes[part][1:] for part in sizes},
        "checkpoints_on_disk": on_disk,
        "first_round": times["round"][0].wall,
        "peak_mb": _peak_mb(),
    }


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def in_fresh_process(case: Case, trained: int, assignments: list[str], cache: str) -> Any:
    """`measure`, in a process of its own that finds compiled code in `cache`."""
    numbers = [str(n) for n in (case.clients, case.per_round, trained)]
    settings = [*case.settings, *assignments]
    command = [sys.executable, __file__, "--measure", *numbers, "--set", *settings]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def merged(case: Case, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the result, over all repetitions."""

    def all_of(name: str, part: str) -> list[float]:
        return [x for run in runs for x in run[name][part]]

    k = case.per_round
    return {
        "clients": case.clients,
        "per_round": k,
        "rounds_measured": len(all_of("wall", "round")),
        **{
            f"{part}_seconds": {clock: spread(all_of(clock, part)) for clock in CLOCKS}
            for part in PARTS
        },
        "seconds_per_client": {clock: median(all_of(clock, "round")) / k for clock in CLOCKS},
        "first_round_seconds": median(run["first_round"] for run in runs),
        "checkpoint_bytes": spread(all_of("bytes", "checkpoint")),
        "checkpoints_on_disk": max(run["checkpoints_on_disk"] for run in runs),
        "log_bytes": spread(all_of("bytes", "log")),
        "peak_mb": max(run["peak_mb"] for run in runs),
    }


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """All cases, gone through `repetitions` times."""
    by_k = [Case(USUAL_N, k) for k in sorted({USUAL_K, *args.per_round}) if args.per_round]
    by_n = [Case(n, USUAL_K) for n in sorted(args.clients)]
    large = [Case(n, USUAL_K, WHOLE) for n in sorted(args.large)]
    cases = [*by_k, *by_n, *large]
    runs: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as fresh:
        cache, compiling = str(args.cache or fresh), None
        for first in {case.settings: case for case in reversed(cases)}.values():
            print("compiling", file=sys.stderr)
            compiling = in_fresh_process(first, USUAL_K, args.set, cache)
        assert compiling is not None
        for repetition in range(args.repetitions):
            for case in cases:
                print(
                    f"{repetition + 1} of {args.repetitions}: "
                    f"N = {case.clients}, K = {case.per_round}",
                    file=sys.stderr,
                )
                runs[case].append(in_fresh_process(case, args.trained, args.set, cache))
    rows = {case: merged(case, runs[case]) for case in cases}
    return {
        "what": "seconds of a round, its checkpoint and its log line, against K and against N",
        "machine": machine("jax", "numpy"),
        "setting": {
            "preset": PRESET,
            "local_iterations": ITERATIONS,
            "note": f"{ITERATIONS} local iterations a round instead of the paper's 20",
            "set": args.set,
            "repetitions": args.repetitions,
        },
        "compiling": {name: compiling[name] for name in ("first_round", "peak_mb")},
        "by_clients_per_round": [rows[case] for case in by_k],
        "per_client_relative_to_k3": _per_client([rows[case] for case in by_k]),
        "line_through_k": {clock: _line([rows[case] for case in by_k], clock) for clock in CLOCKS},
        "by_clients": [rows[case] for case in by_n],
        "relative_to_fewest_clients": _growth([rows[case] for case in by_n], ("round",)),
        "whole_rounds": [rows[case] for case in large],
        "whole_rounds_relative_to_fewest_clients": _growth([rows[case] for case in large], PARTS),
        "limit": LIMIT,
    }


def _per_client(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client costs at each K, relative to the usual one."""
    usual = next((row for row in rows if row["per_round"] == USUAL_K), {})
    return {
        clock: {
            str(row["per_round"]): row["seconds_per_client"][clock]
            / usual["seconds_per_client"][clock]
            for row in rows
        }
        for clock in CLOCKS
    }


def _growth(rows: list[dict[str, Any]], parts: tuple[str, ...]) -> dict[str, Any]:
    """What a round's parts cost at each N, relative to the first."""
    return {
        part: {
            clock: {
                str(row["clients"]): row[f"{part}_seconds"][clock]["median"]
                / rows[0][f"{part}_seconds"][clock]["median"]
                for row in rows
            }
            for clock in CLOCKS
        }
        for part in parts
    }


def _line(rows: list[dict[str, Any]], clock: str) -> dict[str, float] | None:
    """Least squares: a round costs so much, and so much for each client."""
    if len(rows) < 2:
        return None
    line = linear_regression(
        [row["per_round"] for row in rows], [row["round_seconds"][clock]["median"] for row in rows]
    )
    return {"seconds_per_client": line.slope, "seconds_per_round": line.intercept}


def summary(result: dict[str, Any]) -> str:
    """Tables for people."""
    lines = [
        "     N    K  s/round  cpu s/round  cpu s/client  checkpoint ms  its bytes  line ms"
        "  its bytes  peak MB"
    ]
    for row in result["by_clients_per_round"] + result["by_clients"] + result["whole_rounds"]:
        lines.append(
            f"{row['clients']:6d} {row['per_round']:4d} "
            f"{row['round_seconds']['wall']['median']:8.3f} "
            f"{row['round_seconds']['cpu']['median']:12.3f} "
            f"{row['seconds_per_client']['cpu']:13.4f} "
            f"{1e3 * row['checkpoint_seconds']['wall']['median']:14.2f} "
            f"{row['checkpoint_bytes']['median']:10.0f} "
            f"{1e3 * row['log_seconds']['wall']['median']:8.2f} "
            f"{row['log_bytes']['median']:10.0f} {row['peak_mb']:8.0f}"
        )
    for clock, ratios in result["per_client_relative_to_k3"].items():
        lines.append(f"a client's cost at each K, relative to K = 3 ({clock}): {_shown(ratios)}")
    for title, name in (
        ("without evaluation", "relative_to_fewest_clients"),
        ("evaluated, local critics", "whole_rounds_relative_to_fewest_clients"),
    ):
        for part, clocks in result[name].items():
            for clock, ratios in clocks.items():
                lines.append(f"cost of a {part} at each N, {title} ({clock}): {_shown(ratios)}")
    return "\n".join(lines)


def _shown(ratios: dict[str, float]) -> str:
    return ", ".join(f"{x}: {ratio:.2f}" for x, ratio in ratios.items())


def main() -> None:
    """Runs the benchmark, or one measurement of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="cores to run on")
    parser.add_argument(
        "--per-round", nargs="*", type=int, default=PER_ROUND, metavar="K", help="of 100 clients"
    )
    parser.add_argument(
        "--clients", nargs="*", type=int, default=CLIENTS, metavar="N", help="with K = 3"
    )
    parser.add_argument(
        "--large",
        nargs="*",
        type=int,
        default=LARGE,
        metavar="N",
        help="with K = 3, local critics and a sampled evaluation in every round",
    )
    parser.add_argument(
        "--trained",
        type=int,
        default=CLIENTS_TRAINED,
        help="clients that each process trains, in as many rounds as that takes",
    )
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument(
        "--cache", type=Path, help="where compiled code is kept; a new place unless given"
    )
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument(
        "--measure", nargs=3, type=int, metavar=("N", "K", "TRAINED"), help="this, here and now"
    )
    args = parser.parse_args()
    if args.measure:
        enable_cache()
        print(json.dumps(measure(*args.measure, dict(map(parse_assignment, args.set)))))
        return
    run_on_cores(args.cores)
    result = compare(args)
    emit(result, summary(result), args.out)


if __name__ == "__main__":
    main()
