"""What the figure-eight costs beside SUMO alone: a step, a reset, and a round of the paper.

python benchmarks/figure_eight.py --out figure_eight.json
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as in a worker

import measuring
import numpy as np

from fedkl.simulators.actors import Actor, Actors
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import EpisodeJob, run_job
from fedkl.simulators.figure_eight.simulation import Simulation

HORIZON = 1500
SIZES = (6, 100, 50, 25, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15, help="of each measured episode")
    parser.add_argument("--rounds", type=int, default=3, help="of training; 0 leaves them out")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the training"
    )
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": measuring.machine("libsumo", "numpy", "jax")}
    simulation = Simulation()
    result |= measure_step(simulation, options.repetitions)
    result["learning"] = measure_learning(simulation, options.repetitions, options.set)
    if options.rounds:
        result["round"] = measure_rounds(simulation, options.rounds, options.set)
    measuring.emit(result, summary(result), options.out)


def measure_step(simulation: Simulation, repetitions: int) -> dict[str, Any]:
    """Episodes of SUMO alone and whole ones, in turn, and where the time of a whole one goes."""
    actors = [actor(k) for k in range(simulation.agents)]
    job = EpisodeJob((Seed((1,)),), actors, (HORIZON,))
    run_job([simulation], job)
    bare, full, reset = [], [], []
    for _ in range(repetitions):
        bare.append(bare_step(simulation))
        full.append(full_step(simulation, job))
        start = time.process_time()
        simulation.reset(Seed((2,)))
        reset.append(time.process_time() - start)
    ratios = [f / b for f, b in zip(full, bare, strict=True)]
    return {
        "bare_step_us": measuring.spread([1e6 * t for t in bare]),
        "full_step_us": measuring.spread([1e6 * t for t in full]),
        "full_relative_to_bare": measuring.spread(ratios),
        "reset_ms": measuring.spread([1e3 * t for t in reset]),
        "breakdown_us": breakdown(simulation, job),
    }


def bare_step(simulation: Simulation) -> float:
    """Seconds of processor time that `simulationStep` takes when SUMO's drivers are left alone."""
    import libsumo

    simulation.reset(Seed((1,)))
    start = time.process_time()
    for _ in range(HORIZON):
        libsumo.simulationStep()
    return (time.process_time() - start) / HORIZON


def full_step(simulation: Simulation, job: EpisodeJob) -> float:
    """Seconds of processor time that a step of training takes, with all that belongs to it: an
    episode as a worker runs it, from its reset to the arrays that are sent."""
    start = time.process_time()
    run_job([simulation], job)
    return (time.process_time() - start) / HORIZON


def breakdown(simulation: Simulation, job: EpisodeJob) -> dict[str, float]:
    """Microseconds of a step, by part; the clock itself adds a little to each."""
    spent: dict[str, float] = {}

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any) -> Any:
            start = time.perf_counter()
            result = function(*args)
            spent[part] = spent.get(part, 0.0) + time.perf_counter() - start
            return result

        return wrapper

    names = {"_step": "sumo", "_read_speeds": "reading speeds", "_observe": "observations"}
    untimed = {name: getattr(simulation, name) for name in names}
    for name, part in names.items():
        setattr(simulation, name, timed(part, untimed[name]))
    policies = timed("policies", Actors(job.actors, job.lengths))
    step = timed("step", simulation.step)
    seen = simulation.reset(job.seeds[0])
    spent.clear()
    start = time.perf_counter()
    for i in range(HORIZON):
        seen = step(policies(seen[:, None], i)[:, 0]).observation
    total = time.perf_counter() - start
    for name in names:
        setattr(simulation, name, untimed[name])
    inside = sum(spent[part] for part in names.values())
    spent["humans, commands, reward"] = spent.pop("step") - inside
    spent["loop"] = total - sum(spent.values())
    return {part: 1e6 * seconds / HORIZON for part, seconds in spent.items()}


def actor(k: int) -> Actor:
    """A policy of the paper's size that drives: it accelerates by about 1 m/s^2."""
    random = np.random.default_rng(k)
    pairs = list(itertools.pairwise(SIZES))
    weights = [random.normal(size=pair) / np.sqrt(pair[0]) for pair in pairs]
    biases = [np.zeros(out) for _, out in pairs[:-1]] + [np.ones(1)]
    return Actor(
        weights=tuple(w.astype(np.float32) for w in weights),
        biases=tuple(b.astype(np.float32) for b in biases),
        deviation=np.ones(1, np.float32),
        centre=np.full(6, 0.5, np.float32),
        scale=np.full(6, 0.3, np.float32),
        clip=5.0,
        exploration=0.0,
        seeds=(Seed((k,)),),
    )


def measure_learning(
    simulation: Simulation, repetitions: int, assignments: list[str]
) -> dict[str, Any]:
    """Processor time of a client's part of an iteration, and what that makes in a round."""
    import jax

    import fedkl
    from fedkl.clients.records import Task, first_states
    from fedkl.config.config import parse_assignment
    from fedkl.engines import Job as ClientJob
    from fedkl.engines.shared_world import ClientGroup
    from fedkl.learning.randomness import Purpose, key_for

    config = fedkl.preset("figure-eight", set=dict(map(parse_assignment, assignments)))
    task = Task(config.world, config.algorithm, config.learner, config.critic)
    model, state = first_states(
        task, config.federation.sharing(), key_for(config.seed, Purpose.MODEL)
    )
    key = np.asarray(jax.random.key_data(jax.random.key(1)))
    group = ClientGroup(task, model, [ClientJob(0, key)], [jax.device_get(state)])
    job = EpisodeJob(
        (Seed((1,)),), [actor(k) for k in range(simulation.agents)], (config.world.horizon,)
    )
    columns = [run_job([simulation], job)]
    policy, critic = [], []
    for i in range(repetitions + 1):
        policy.append(measuring.elapsed(lambda i=i: group.improve(i, columns, None)).cpu)
        critic.append(measuring.elapsed(lambda i=i: group.fit_critic(i)).cpu)
    # The first of each compiles.
    policy, critic = policy[1:], critic[1:]
    each = statistics.median(policy) + statistics.median(critic)
    return {
        "policy_ms": measuring.spread([1e3 * t for t in policy]),
        "critic_ms": measuring.spread([1e3 * t for t in critic]),
        "round_seconds": each * config.learner.iterations * config.federation.clients_per_round,
    }


def measure_rounds(simulation: Simulation, rounds: int, assignments: list[str]) -> dict[str, Any]:
    """Rounds of the preset without their evaluation, and SUMO alone before and after each."""
    import fedkl
    from fedkl.config.config import parse_assignment
    from fedkl.learning.trajectories import columns_for

    settings: dict[str, Any] = {"federation.rounds": 1000, "evaluation.every": 1000}
    settings |= dict(map(parse_assignment, assignments))
    config = fedkl.preset("figure-eight", set=settings)
    episodes = config.learner.iterations * columns_for(config.world, config.learner.steps)
    steps = episodes * config.world.horizon
    bare, whole = [], []
    with fedkl.Federation(config) as federation:
        federation.run_round()  # compiles
        for _ in range(rounds):
            before = statistics.median(bare_step(simulation) for _ in range(5))
            whole.append(federation.run_round()["seconds"])
            after = statistics.median(bare_step(simulation) for _ in range(5))
            bare.append((before + after) / 2 * steps)
    return {
        "set": assignments,
        "steps": steps,
        "seconds": measuring.spread(whole),
        "bare_seconds": measuring.spread(bare),
        "relative_to_bare": measuring.spread([w / b for w, b in zip(whole, bare, strict=True)]),
    }


def summary(result: dict[str, Any]) -> str:
    step, bare = result["full_step_us"], result["bare_step_us"]
    lines = [
        f"a step: {step['median']:.0f} us, SUMO alone {bare['median']:.0f} us, "
        f"ratio {result['full_relative_to_bare']['median']:.2f}",
        "  " + ", ".join(f"{part} {us:.1f}" for part, us in result["breakdown_us"].items()),
        f"a reset: {result['reset_ms']['median']:.2f} ms",
    ]
    learning = result["learning"]
    lines.append(
        f"learning: policy {learning['policy_ms']['median']:.1f} ms and critic "
        f"{learning['critic_ms']['median']:.1f} ms a client and iteration, "
        f"{learning['round_seconds']:.1f} s of processor time a round"
    )
    if "round" in result:
        whole = result["round"]
        lines.append(
            f"a round: {whole['seconds']['median']:.1f} s, "
            f"its {whole['steps']} steps of SUMO alone {whole['bare_seconds']['median']:.1f} s, "
            f"ratio {whole['relative_to_bare']['median']:.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
