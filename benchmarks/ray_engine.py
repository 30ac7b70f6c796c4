"""What actors of Ray cost: rounds with the engine on a Ray of its own, beside rounds without.

Both train the same clients with the same settings on the same cores, in turn, and must come to the
same bits. See README.md. (A script named ray.py would be found in the place of Ray.)
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
from measuring import emit, machine, spread

import fedkl
from fedkl import Federation
from fedkl.config.config import Config, parse_assignment
from fedkl.io.compilation import enable_cache
from fedkl.network.ray.connection import RaySettings, connected
from fedkl.network.ray.engine import Ray

ACTORS = 2
LIMIT, LIMIT_SHORT = 1.10, 3.0
"""A round on actors over one in this process; the second where a client takes a millisecond."""
LIMIT_KILLED, LIMIT_HUNG = 3.0, 5.0
"""Rounds that a round takes in which an actor dies; seconds beyond the timeout if one hangs."""
LIMIT_LARGE = 1.5
"""A round of very many clients over one of few."""
NEVER = {"evaluation.every": 1_000_000, "federation.rounds": 1_000_000}
REACHER = {"federation.clients_per_round": 4, **NEVER}
SHORT = {
    "federation.clients": 200,
    "federation.clients_per_round": 200,
    "learner.iterations": 2,
    "learner.steps": 64,
    "learner.epochs": 2,
    "learner.minibatch": 16,
    **NEVER,
}
LARGE = {
    **SHORT,
    "federation.critic": "local",
    "evaluation.every": 1,
    "evaluation.clients": 200,
    "evaluation.episodes": 5,
}
HANGS = 20.0
"""Seconds after which an actor counts as hung here."""


def side_by_side(config: Config, pairs: int) -> dict[str, Any]:
    """Rounds in this process and on actors, in turn."""
    with Federation(config) as here, Federation(config, Ray(config, ACTORS)) as there:
        both = {"in_process": here, "ray": there}
        for _ in range(2):  # the second, because an actor may have compiled nothing in the first
            for federation in both.values():
                federation.run_round()
        seconds: dict[str, list[float]] = {name: [] for name in both}
        for i in range(pairs):
            for name in list(both)[:: 1 if i % 2 else -1]:
                seconds[name].append(both[name].run_round()["seconds"])
        _require_same_bits(here, there)
    ratios = [b / a for a, b in zip(*seconds.values(), strict=True)]
    return {f"{name}_seconds": spread(x) for name, x in seconds.items()} | {
        "relative_to_in_process": spread(ratios)
    }


def with_losses(config: Config, times: int) -> dict[str, Any]:
    """Rounds in which an actor is killed, and in which one hangs: the bits are as without."""
    calm, killed, beyond = [], [], []
    with Federation(config, Ray(config, ACTORS, HANGS)) as federation:
        engine = federation.engine
        assert isinstance(engine, Ray)
        for _ in range(2):
            federation.run_round()
        for _ in range(times):
            calm.append(federation.run_round()["seconds"])
            for how, results in ((signal.SIGKILL, killed), (signal.SIGSTOP, beyond)):
                victim = _processes(engine)[0]
                before = engine.report()["actors_replaced"]
                timer = threading.Timer(0.3 * median(calm), os.kill, (victim, how))
                timer.start()
                results.append(federation.run_round()["seconds"])
                timer.join()
                assert engine.report()["actors_replaced"] == before + 1
                _complete(engine)
                federation.run_round()  # who is new compiles
                federation.run_round()
        with Federation(config) as undisturbed:
            while undisturbed.state.round < federation.state.round:
                undisturbed.run_round()
            _require_same_bits(undisturbed, federation)
    return {
        "round_seconds": spread(calm),
        "killed_over_round": spread([k / c for k, c in zip(killed, calm, strict=True)]),
        "hung_beyond_timeout_seconds": spread([s - HANGS for s in beyond]),
    }


def large(clients: int, rounds: int) -> dict[str, Any]:
    """Rounds of few out of very many, each evaluated on a sample; memory of all processes."""
    config = fedkl.preset("probe-point", set=LARGE | {"federation.clients": clients})
    start = time.perf_counter()
    with Federation(config, Ray(config, ACTORS)) as federation:
        engine = federation.engine
        assert isinstance(engine, Ray)
        opened = time.perf_counter() - start
        for _ in range(2):
            federation.run_round()
        seconds = [federation.run_round()["seconds"] for _ in range(rounds)]
        actors = _ask_all(engine, _peak_mb)
    return {
        "clients": clients,
        "open_seconds": opened,
        "round_seconds": spread(seconds),
        "driver_peak_mb": _peak_mb(),
        "actor_peak_mb": max(actors),
    }


def in_fresh_process(clients: int, rounds: int) -> dict[str, Any]:
    """`large`, with a peak of memory that is its own."""
    command = [sys.executable, __file__, "--only", str(clients), "--rounds", str(rounds)]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(ended.stdout)


def _peak_mb(_: object = None) -> float:
    # Not that of getrusage, which has something of the process that this one was forked from.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024


def _require_same_bits(one: Federation, other: Federation) -> None:
    same = jax.tree.map(np.array_equal, one.state.model, other.state.model)
    assert all(jax.tree.leaves(same)), "the bits differ"


def _complete(engine: Ray) -> None:
    """Waits until every actor is there."""
    while len(engine._actors._idle) < ACTORS:
        engine._actors.advance(None)


def _ask_all(engine: Ray, what: Any) -> list[Any]:
    import ray

    _complete(engine)
    return ray.get([actor.__ray_call__.remote(what) for actor in engine._actors._idle])


def _processes(engine: Ray) -> list[int]:
    return _ask_all(engine, lambda actor: os.getpid())


def summary(result: dict[str, Any]) -> str:
    """What was found, in a few lines."""
    lines = [
        f"{name}: {result[name]['relative_to_in_process']['median']:.2f} of the time in one process"
        f" (limit {limit:g})"
        for name, limit in (("reacher", LIMIT), ("short", LIMIT_SHORT))
    ]
    if losses := result["losses"]:
        lines.append(
            f"a round in which an actor dies: {losses['killed_over_round']['median']:.2f} rounds "
            f"(limit {LIMIT_KILLED:g}); hangs: the timeout and "
            f"{losses['hung_beyond_timeout_seconds']['median']:.1f} s (limit {LIMIT_HUNG:g})"
        )
    for row in result["large"]:
        lines.append(
            f"N = {row['clients']}: {row['round_seconds']['median']:.2f} s a round, driver "
            f"{row['driver_peak_mb']:.0f} MB, an actor {row['actor_peak_mb']:.0f} MB"
        )
    lines.append(f"most over fewest: {result['large_over_small']:.2f} (limit {LIMIT_LARGE:g})")
    return "\n".join(lines)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--short-pairs", type=int, default=30)
    parser.add_argument("--losses", type=int, default=3, help="actors killed, and hung; 0: none")
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=10, help="of each of these sizes")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="of the preset")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    enable_cache()
    if options.only is not None:
        with connected(RaySettings(actors=ACTORS)):
            print(json.dumps(large(options.only, options.rounds)))
        return
    settings = REACHER | dict(map(parse_assignment, options.set))
    result: dict[str, Any] = {
        "machine": machine("fedkl", "jax", "ray"),
        "settings": {"preset": options.preset, **settings},
        "actors": ACTORS,
    }
    with connected(RaySettings(actors=ACTORS)):
        reacher = fedkl.preset(options.preset, "fedkl", 0, settings)
        result["reacher"] = side_by_side(reacher, options.pairs)
        short = fedkl.preset("probe-point", "fedkl", 0, SHORT)
        result["short"] = side_by_side(short, options.short_pairs)
        losses = options.losses
        result["losses"] = with_losses(reacher, losses) if losses else None
    result["large"] = [in_fresh_process(n, options.rounds) for n in options.clients]
    medians = [row["round_seconds"]["median"] for row in result["large"]]
    result["large_over_small"] = medians[-1] / medians[0]
    emit(result, summary(result), options.out)


if __name__ == "__main__":
    main()
