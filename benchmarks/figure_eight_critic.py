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
from fedkl import compilation

WAYS = ((1, 64), (1, 128), (2, 128), (10, 64))
"""Epochs and minibatch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": measuring.machine("libsumo", "numpy", "jax")}
    if options.out.exists():
        result = json.loads(options.out.read_text(encoding="utf-8"))
    for seed in range(options.seeds):
        for epochs, minibatch in WAYS:
            name = f"{epochs} epochs of {minibatch}, seed {seed}, {options.rounds} rounds"
            if name not in result:
                result[name] = train(epochs, minibatch, seed, options.rounds)
                options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
            print(f"{name}: {line(result[name])}", flush=True)


def train(epochs: int, minibatch: int, seed: int, rounds: int) -> dict[str, Any]:
    """Returns after each round, and the processor seconds of learning up to it."""
    settings = {
        "federation.rounds": 1000,
        "evaluation.every": 1000,
        "critic.epochs": epochs,
        "critic.minibatch": minibatch,
    }
    # Compiled code comes from the cache: one iteration fills it.
    compilation.enable_cache()
    once = {"learner.iterations": 1} | settings
    fedkl.Federation(fedkl.preset("figure-eight", set=once)).run_round()
    federation = fedkl.Federation(fedkl.preset("figure-eight", seed=seed, set=settings))
    seconds, returns, spent = [], [], 0.0
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
