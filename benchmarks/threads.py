"""Which matrix products and sums have other bits with another number of XLA's threads.

Each number of threads is a process of its own. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import emit, machine

FEATURES = (1, 2, 7, 11, 64, 256, 600)
SAMPLES = (64, 128, 256, 512, 1000, 2050, 7500)
THREADS = (1, 2, 3, 8, 16)


def digests(features: list[int], samples: list[int]) -> dict[str, str]:
    """A checksum of each result, with the threads that this process has."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from fedkl.learning.products import sum_of_products

    kinds: dict[str, Callable[..., Any]] = {
        "a.T @ b": lambda a, b: a.T @ b,
        "sum_of_products": sum_of_products,
        "a @ b": lambda a, b: a.reshape(a.shape[::-1]) @ b,
        "a @ b.T": lambda a, b: a.reshape(a.shape[::-1]) @ b.reshape(b.shape[::-1]).T,
        "sum": lambda a, b: jnp.sum(a**2, axis=0),
    }
    compiled = {name: jax.jit(kind) for name, kind in kinds.items()}
    draw = np.random.default_rng(0).standard_normal
    found = {}
    for m, n, k in itertools.product(features, features, samples):
        a, b = draw((k, m), np.float32), draw((k, n), np.float32)
        for name, kind in compiled.items():
            if name != "sum" or n == features[0]:
                result = np.asarray(kind(a, b)).tobytes()
                found[f"{name}: {m} {n} {k}"] = hashlib.sha256(result).hexdigest()
    return found


def compare(features: list[int], samples: list[int], threads: list[int]) -> dict[str, Any]:
    """How many results of each kind differ between numbers of threads."""
    found = {}
    for number in threads:
        settings = json.dumps({"features": features, "samples": samples})
        command = [sys.executable, __file__, "--digests", settings]
        environment = os.environ | {"PJRT_NPROC": str(number)}
        ended = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        found[number] = json.loads(ended.stdout)

    def differ(numbers: list[int]) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for case in found[threads[0]]:
            kind, _, sizes = case.partition(": ")
            count = counts.setdefault(kind, {"tried": 0, "differ": 0, "fewest_samples": 0})
            count["tried"] += 1
            if len({found[number][case] for number in numbers}) > 1:
                samples = int(sizes.split()[-1])
                count["differ"] += 1
                count["fewest_samples"] = min(samples, count["fewest_samples"] or samples)
        return counts

    return {
        "what": "results with other bits, by XLA's threads",
        "machine": machine("jax"),
        "setting": {"features": features, "samples": samples, "threads": threads},
        "all": differ(threads),
        "but_one_thread": differ([number for number in threads if number > 1]),
    }


def summary(result: dict[str, Any]) -> str:
    """A few lines for people."""
    return "\n".join(
        f"{kind:16s} {count['differ']:4d} of {count['tried']} differ, without one thread "
        f"{result['but_one_thread'][kind]['differ']}"
        for kind, count in result["all"].items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--features", type=int, nargs="+", default=FEATURES)
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES)
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS)
    parser.add_argument("--digests", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    if options.digests:
        print(json.dumps(digests(**options.digests)))
        return
    result = compare([*options.features], [*options.samples], [*options.threads])
    emit(result, summary(result), options.out)


if __name__ == "__main__":
    main()
