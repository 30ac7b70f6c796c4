"""How the figure-eight's critic should be trained: return against time, for several ways to.

python benchmarks/figure_eight_critic.py --out critic.json

The paper does not say. Every way is trained with the preset's other settings; one that is in the
file already is not trained again. Time is processor time of the training process (policies and
critics, not the simulator), which busy neighbours disturb less than wall time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import measuring

import fedkl
from fedkl.config.config import parse_assignment
from fedkl.io import compilation

WAYS = ((1, 64), (1, 128), (2, 128), (10, 64))
"""Epochs and minibatch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--ways", nargs="+", type=way, default=WAYS, metavar="EPOCHSxMINIBATCH", help="as 1x64"
    )
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": measuring.machine("libsumo", "numpy", "jax")}
    if options.out.exists():
        result = json.loads(options.out.read_text(encoding="utf-8"))
    for seed in range(options.seeds):
        for epochs, minibatch in options.ways:
            name = ", ".join(
                [
                    f"{epochs} epochs of {minibatch}",
                    f"seed {seed}",
                    f"{options.rounds} rounds",
                    *options.set,
                ]
            )
            if name not in result:
                changes = dict(map(parse_assignment, options.set))
                changes |= {"critic.epochs": epochs, "critic.minibatch": minibatch}
                result[name] = train(changes, seed, options.rounds)
                options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
            print(f"{name}: {line(result[name])}", flush=True)


def way(text: str) -> tuple[int, int]:
    """Epochs and minibatch, from `1x64`."""
    epochs, minibatch = text.split("x")
    return int(epochs), int(minibatch)


def train(changes: dict[str, Any], seed: int, rounds: int) -> dict[str, Any]:
    """Returns after each round, and the processor seconds of learning up to it."""
    settings = {"federation.rounds": 1000, "evaluation.every": 1000} | changes
    # Compiled code comes from the cache: one iteration fills it.
    compilation.enable_cache()
    once = fedkl.preset("figure-eight", set=settings | {"learner.iterations": 1})
    with fedkl.Federation(once) as federation:
        federation.run_round()
    seconds, returns, spent = [], [], 0.0
    with fedkl.Federation(fedkl.preset("figure-eight", seed=seed, set=settings)) as federation:
        for _ in range(rounds):
            start = time.process_time()
            federation.run_round()
            spent += time.process_time() - start
            seconds.append(round(spent, 1))
            returns.append(round(float(federation.evaluate(20, deterministic=False).mean()), 1))
    return {"seconds": seconds, "returns": returns}


def line(way: dict[str, Any]) -> str:
    """One way in a line: the returns, and what a round takes."""
    per_round = way["seconds"][-1] / len(way["seconds"])
    return f"{per_round:.1f} s of learning a round; returns {way['returns']}"


if __name__ == "__main__":
    main()
