"""What the benchmarks share: clocks, cores, and where results go."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedkl.core.processes import cores, take_cores

C = TypeVar("C")


class Elapsed(NamedTuple):
    """Seconds on the wall and seconds of processor time (of all threads)."""

    wall: float
    cpu: float


def elapsed(run: Callable[[], object]) -> Elapsed:
    """How long one call takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Elapsed(time.perf_counter() - wall, time.process_time() - cpu)


def tree_cpu() -> float:
    """Processor time of this process and of all that it has started and that still run, with what
    those have waited for; from /proc, in ticks of 10 ms, so 0 where there is none (macOS)."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(path.parent.name)
        parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))

    def ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and ours(parents[process]))

    return sum(t for process, t in ticks.items() if ours(process)) / os.sysconf("SC_CLK_TCK")


def spread(samples: list[float]) -> dict[str, float]:
    """Median and range: on a shared machine the range is part of the answer."""
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def run_on_cores(count: int) -> None:
    """Start this program anew on its last `count` cores, unless it has no more than that already,
    and compute there as `fedkl train` does.

    The affinity survives `exec`, so every library counts the cores right from its start. Where a
    system cannot pin (macOS), nothing happens; `machine` says how many cores there were.
    """
    if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > count:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
        os.execv(sys.executable, [sys.executable, *sys.argv])
    take_cores(len(cores()))


def machine(*packages: str) -> dict[str, Any]:
    """Where and with what it was measured."""
    pinned = hasattr(os, "sched_getaffinity")
    return {
        "processor": _processor(),
        "cores_used": len(os.sched_getaffinity(0)) if pinned else os.cpu_count(),
        "cores_visible": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
    } | {package: metadata.version(package) for package in packages}


def emit(result: dict[str, Any], summary: str, out: Path | None) -> None:
    """Prints JSON on stdout and the summary on stderr, and writes the JSON to `out`."""
    text = json.dumps(_rounded(result), indent=2)
    print(text)
    print(summary, file=sys.stderr)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")


def read_lines(results: Path) -> list[dict[str, Any]]:
    """What was measured already, from JSON lines."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def run_missing(
    work: Callable[[C], dict[str, Any]],
    cells: Sequence[C],
    results: Path,
    jobs: int,
    said: Callable[[dict[str, Any]], str] = lambda line: "done",
) -> None:
    """Does the work on each cell, in so many processes, and appends each line as it comes.

    Args:
        work: of one cell; a function that another process can import.
        cells: those that are not there yet.
        results: JSON lines, added to.
        jobs: processes; with more than one, each has a core of its own.
        said: what to tell of a line.
    """
    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    context = multiprocessing.get_context("spawn")
    free = context.Queue()
    for i in range(jobs):
        free.put(own[i % len(own)] if jobs > 1 and own else None)
    with (
        ProcessPoolExecutor(jobs, context, _prepare, (free,)) as pool,
        results.open("a", encoding="utf-8") as file,
    ):
        done = [pool.submit(work, cell) for cell in cells]
        for i, future in enumerate(as_completed(done), start=1):
            line = future.result()
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(f"{i} of {len(cells)}: {said(line)}", file=sys.stderr, flush=True)


def _prepare(free: Any) -> None:
    """A worker's start: a core of its own, before JAX counts them, and compiled code to share."""
    if (core := free.get()) is not None:
        os.sched_setaffinity(0, {core})
        take_cores(1)
    from fedkl.io.compilation import enable_cache  # not every benchmark is in want of JAX

    enable_cache()


def _rounded(x: Any) -> Any:
    """Four significant digits are more than the noise leaves."""
    if isinstance(x, dict):
        return {key: _rounded(value) for key, value in x.items()}
    if isinstance(x, list):
        return [_rounded(value) for value in x]
    return float(f"{x:.4g}") if isinstance(x, float) else x


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
