"""Local training on one core, against Stable-Baselines3's PPO.

Both collect T = 2048 Reacher steps and make E = 10 passes in minibatches of 64 over them, for a
tanh policy and a critic of the same widths. With `--algorithm`, our algorithms against FedAvg
instead. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from measuring import Elapsed, elapsed, emit, machine, run_on_cores, spread

import fedkl
from fedkl.clients.records import Model, Start, Task
from fedkl.clients.round import local_round
from fedkl.clients.sources import Traced
from fedkl.config.config import parse_assignment
from fedkl.learning import critic, minibatches, policy_optimisation
from fedkl.learning.critic import CriticBatch, improve_critic
from fedkl.learning.policy_optimisation import (
    PolicyBatch,
    improve_policy,
)
from fedkl.learning.trajectories import columns_for

Run = Callable[[], object]

PRESET = "reacher-init-state-paper"
"""What is compared with another library: plain SGD costs the least beside the rest."""
IN_USE = "reacher-init-state"
"""What algorithms are compared on."""
PLAIN = "fedavg"
"""The algorithm that adds nothing, with which the others are compared."""
BASELINE = "Reacher-v5"
MATMULS = 2000
"""Products in a row when the peak is measured: enough to hide the call itself."""


class Client:
    """The first client of the paper's federation, alone."""

    def __init__(
        self, settings: dict[str, Any], preset: str = PRESET, algorithm: str | None = None
    ) -> None:
        config = fedkl.preset(preset, algorithm, set=settings)
        self.task = config.task
        self.model, self.state = jax.tree.map(jnp.asarray, config.first_states)
        first_row = jax.tree.map(lambda x: x[0], config.client_params)
        self.source = Traced(self.task.world, first_row)
        self.episodes = columns_for(self.task.world, self.task.learner.steps)
        self.samples = self.episodes * self.task.world.horizon

    def round(self) -> Run:
        """A whole round of I iterations."""
        start = Start(self.model, self.state, jax.random.key(1))
        return _compiled(local_round, self.task, start, self.source)

    def parts(self) -> dict[str, Run]:
        """The parts of one iteration, each jitted by itself, on data of the same shapes."""
        task, key = self.task, jax.random.key(2)
        learner = task.learner
        policy, value_net = self.model.policy, self.model.critic
        assert value_net is not None
        policy_batch, critic_batch = self._batches(key)
        policy_state = policy_optimisation.optimiser(learner).init(policy)
        critic_state = critic.optimiser(task.critic).init(value_net)
        calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
            "rollout": (self._rollout, (self.model, key)),
            "policy": (self._policy_steps, (policy, policy_state, policy_batch, key)),
            "critic": (
                partial(improve_critic, task.critic),
                (value_net, critic_state, critic_batch, key),
            ),
            "policy_shuffling": (
                lambda b, key: minibatches.shuffled(b, learner.epochs, learner.minibatch, key),
                (policy_batch, key),
            ),
            "critic_shuffling": (
                lambda b, key: minibatches.shuffled(
                    b, task.critic.epochs, task.critic.minibatch, key
                ),
                (critic_batch, key),
            ),
        }
        return {name: _compiled(function, *args) for name, (function, args) in calls.items()}

    def _rollout(self, model: Model, key: jax.Array) -> Any:
        start = Start(model, self.state, key)
        acting = self.task.learner.behaviour(
            self.task, start, self.task.learner.begin(self.task, start)
        )
        return self.source.collect(acting, self.episodes, key)

    def _policy_steps(self, policy: Any, state: Any, batch: PolicyBatch, key: jax.Array) -> Any:
        start = Start(self.model, self.state, key)
        learner, seen = self.task.learner, self.model.observations
        now = learner.hook_input(
            start, self.state.coefficients, policy, batch, seen, seen, jnp.int32(0), key
        )
        algorithm = self.task.algorithm
        now = now._replace(prepared=algorithm.prepare(now, key))
        return improve_policy(algorithm, now, state, jnp.ones(()), key)

    def _batches(self, key: jax.Array) -> tuple[PolicyBatch, CriticBatch]:
        keys = jax.random.split(key, 3)
        policy, n = self.model.policy, self.samples
        observation = jax.random.normal(keys[0], (n, self.task.world.observation_size))
        output = policy.network(observation)
        distribution = policy.distribution(output)
        action = distribution.sample(keys[1])
        gain, weight = jax.random.normal(keys[2], (n,)), jnp.ones(n)
        log_prob = distribution.log_prob(action)
        return (
            PolicyBatch(observation, action, gain, log_prob, output, output, weight),
            CriticBatch(observation, gain, weight),
        )


def _compiled(function: Callable[..., Any], *args: Any) -> Run:
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*args))


def baseline(task: Task) -> Run:
    """One iteration of SB3's PPO, with our networks, T, E and minibatch."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    learner = task.learner
    model = PPO(
        "MlpPolicy",
        gymnasium.make(BASELINE),
        n_steps=learner.steps,
        n_epochs=learner.epochs,
        batch_size=learner.minibatch,
        policy_kwargs={
            "net_arch": {"pi": list(learner.hidden), "vf": list(task.critic.hidden)},
            "activation_fn": torch.nn.Tanh,
        },
        device="cpu",
        seed=0,
    )
    return lambda: model.learn(learner.steps, reset_num_timesteps=False)


def matmul_chain() -> Run:
    """Products of 64 x 64 float32 matrices, each waiting for the one before."""
    x = jnp.eye(64) + 0.001
    chain = jax.jit(lambda x: jax.lax.fori_loop(0, MATMULS, lambda _, y: y @ x, x))
    return lambda: jax.block_until_ready(chain(x))


def step_flops(sizes: list[int], minibatch: int) -> int:
    """Of the matrix products in one gradient step: forward, weights, and inputs but the first."""
    layers = [2 * minibatch * i * o for i, o in itertools.pairwise(sizes)]
    return 3 * sum(layers) - layers[0]


def measure(repetitions: int, settings: dict[str, Any], with_sb3: bool) -> dict[str, Any]:
    """Everything, alternately in this one process."""
    client = Client(settings)
    learner, critics = client.task.learner, client.task.critic
    steps = {"fedkl": learner.iterations * client.samples}
    runs = {"fedkl": client.round()}
    if with_sb3:
        steps["sb3"], runs["sb3"] = learner.steps, baseline(client.task)
    runs |= client.parts() | {"matmuls": matmul_chain()}
    for run in runs.values():
        run()
    times: dict[str, list[Elapsed]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            times[name] += [elapsed(run) for _ in range(1 if name in steps else 5)]
    iteration = median(t.cpu for t in times["fedkl"]) / learner.iterations
    part = {name: median(t.cpu for t in times[name]) for name in runs.keys() - steps.keys()}
    peak = MATMULS * 2 * 64**3 / part["matmuls"]
    outputs = client.model.policy.network.biases[-1].shape[0]
    widths = client.task.world.observation_size
    packages = ("torch", "stable-baselines3", "gymnasium", "mujoco") if with_sb3 else ()
    theirs = f"stable-baselines3 PPO on gymnasium's {BASELINE}" if with_sb3 else "left out"
    return {
        "what": "environment steps per second of local training on one core",
        "machine": machine("jax", *packages),
        "setting": {
            "preset": PRESET,
            "set": settings,
            "baseline": theirs,
            "repetitions": repetitions,
            "steps_per_repetition": steps,
        },
        "steps_per_second": {
            name: {
                "wall": spread([n / t.wall for t in times[name]]),
                "cpu": spread([n / t.cpu for t in times[name]]),
            }
            for name, n in steps.items()
        },
        "times_faster": {clock: _ratio(times, steps, clock) for clock in ("wall", "cpu")}
        if with_sb3
        else None,
        "iteration": _shares(iteration, part),
        "gradient_steps": {
            "measured_peak_gflops": peak / 1e9,
            "policy": _distance_to_floor(
                part["policy"] - part["policy_shuffling"],
                minibatches.count(client.samples, learner.epochs, learner.minibatch),
                step_flops([widths, *learner.hidden, outputs], learner.minibatch),
                peak,
            ),
            "critic": _distance_to_floor(
                part["critic"] - part["critic_shuffling"],
                minibatches.count(client.samples, critics.epochs, critics.minibatch),
                step_flops([widths, *critics.hidden, 1], critics.minibatch),
                peak,
            ),
        },
    }


def compare(repetitions: int, settings: dict[str, Any], algorithms: list[str]) -> dict[str, Any]:
    """A round of each algorithm and of FedAvg, alternately in this one process."""
    names = list(dict.fromkeys([PLAIN, *algorithms]))
    clients = {name: Client(settings, IN_USE, name) for name in names}
    rounds = {name: client.round() for name, client in clients.items()}
    for run in rounds.values():
        run()
    times: dict[str, list[Elapsed]] = {name: [] for name in names}
    for _ in range(repetitions):
        for name, run in rounds.items():
            times[name].append(elapsed(run))

    def relative(name: str, clock: str) -> dict[str, float]:
        # To the neighbour in time, so that whatever slows the machine slows both.
        pairs = zip(times[name], times[PLAIN], strict=True)
        return spread([getattr(mine, clock) / getattr(plain, clock) for mine, plain in pairs])

    clocks = ("wall", "cpu")
    return {
        "what": "seconds of one client's round of local training on one core",
        "machine": machine("jax"),
        "setting": {
            "preset": IN_USE,
            "set": settings,
            "repetitions": repetitions,
            "steps": clients[PLAIN].task.learner.iterations * clients[PLAIN].samples,
        },
        "round_seconds": {
            name: {clock: spread([getattr(t, clock) for t in times[name]]) for clock in clocks}
            for name in names
        },
        f"relative_to_{PLAIN}": {
            name: {clock: relative(name, clock) for clock in clocks} for name in names
        },
    }


def _ratio(times: dict[str, list[Elapsed]], steps: dict[str, int], clock: str) -> dict[str, float]:
    """Of neighbouring measurements, so that whatever slows the machine slows both."""
    pairs = zip(times["fedkl"], times["sb3"], strict=True)
    ratios = [
        getattr(theirs, clock) / getattr(ours, clock) * steps["fedkl"] / steps["sb3"]
        for ours, theirs in pairs
    ]
    return spread(ratios)


def _shares(iteration: float, part: dict[str, float]) -> dict[str, Any]:
    milliseconds = {
        "rollout": part["rollout"],
        "policy_gradient_steps": part["policy"] - part["policy_shuffling"],
        "critic_gradient_steps": part["critic"] - part["critic_shuffling"],
        "shuffling": part["policy_shuffling"] + part["critic_shuffling"],
    }
    explained = sum(milliseconds.values())
    milliseconds["rest"] = iteration - explained
    return {
        "note": "processor time; rest: advantages, statistics, divergences, guard",
        "milliseconds": iteration * 1e3,
        "explained_by_parts": explained / iteration,
        "part_milliseconds": {name: t * 1e3 for name, t in milliseconds.items()},
        "shares": {name: t / iteration for name, t in milliseconds.items()},
    }


def _distance_to_floor(seconds: float, steps: int, flops: int, peak: float) -> dict[str, float]:
    """A gradient step beside the time that its matrix products would take at the peak."""
    step = seconds / steps
    return {
        "steps": steps,
        "microseconds": step * 1e6,
        "matmul_flops": flops,
        "floor_microseconds": flops / peak * 1e6,
        "overhead_microseconds": (step - flops / peak) * 1e6,
        "share_of_peak": flops / peak / step,
    }


def summary(result: dict[str, Any]) -> str:
    """A few lines for people."""
    lines = []
    for name, clocks in result["steps_per_second"].items():
        wall, cpu = clocks["wall"], clocks["cpu"]
        lines.append(
            f"{name:6s} {wall['median']:9,.0f} steps/s ({wall['min']:,.0f} to {wall['max']:,.0f}); "
            f"{cpu['median']:,.0f} per second of processor time"
        )
    if faster := result["times_faster"]:
        lines.append(
            f"fedkl is {faster['wall']['median']:.1f} times as fast "
            f"({faster['wall']['min']:.1f} to {faster['wall']['max']:.1f}); "
            f"{faster['cpu']['median']:.1f} times by processor time"
        )
    else:
        lines.append("Stable-Baselines3 was left out")
    shares = result["iteration"]["shares"].items()
    lines.append("an iteration: " + ", ".join(f"{name} {share:.0%}" for name, share in shares))
    for name in ("policy", "critic"):
        step = result["gradient_steps"][name]
        lines.append(
            f"a {name} step takes {step['microseconds']:.0f} us; its matrix products alone "
            f"{step['floor_microseconds']:.0f} us at the measured peak"
        )
    return "\n".join(lines)


def comparison_summary(result: dict[str, Any]) -> str:
    """A line for each algorithm."""
    lines = []
    for name, seconds in result["round_seconds"].items():
        ratio = result[f"relative_to_{PLAIN}"][name]
        lines.append(
            f"{name:16s} {seconds['wall']['median']:6.3f} s a round, {ratio['wall']['median']:.2f} "
            f"times {PLAIN}'s ({ratio['wall']['min']:.2f} to {ratio['wall']['max']:.2f}); "
            f"{ratio['cpu']['median']:.2f} times by processor time"
        )
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument(
        "--without-sb3", action="store_true", help="our side only, without the extra `bench`"
    )
    parser.add_argument(
        "--algorithm",
        nargs="+",
        metavar="NAME",
        help=f"instead, time a round of these algorithms beside {PLAIN}'s",
    )
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    alone = args.without_sb3 or args.algorithm
    if not alone and find_spec("stable_baselines3") is None:
        parser.error("Stable-Baselines3 comes with the extra `bench`; or give --without-sb3")
    run_on_cores(1)
    settings = dict(map(parse_assignment, args.set))
    if args.algorithm:
        compared = compare(args.repetitions, settings, args.algorithm)
        emit(compared, comparison_summary(compared), args.out)
        return
    result = measure(args.repetitions, settings, not args.without_sb3)
    emit(result, summary(result), args.out)


if __name__ == "__main__":
    main()
