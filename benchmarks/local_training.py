"""Local training on one core, against Stable-Baselines3's PPO.

Both collect T = 2048 Reacher steps and make E = 10 passes in minibatches of 64 over them, for a
tanh policy and a critic of the same widths. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import torch
from measuring import Elapsed, elapsed, emit, machine, run_on_cores, spread
from stable_baselines3 import PPO

import fedkl
from fedkl.federation.loop import Federation
from fedkl.federation.state import broadcast
from fedkl.learning import critic, minibatches, policy_optimisation
from fedkl.learning.critic import CriticBatch, improve_critic
from fedkl.learning.local_training import Task, behaviour, local_round
from fedkl.learning.policy_optimisation import Policies, PolicyBatch, improve_policy
from fedkl.learning.rollout import episodes_for, rollout
from fedkl.learning.state import ClientState, Model

Run = Callable[[], object]

PRESET = "reacher-init-state"
BASELINE = "Reacher-v5"
MATMULS = 2000
"""Products in a row when the peak is measured: enough to hide the call itself."""


class Client:
    """The first client of the paper's federation, alone."""

    def __init__(self) -> None:
        config = fedkl.preset(PRESET)
        federation = Federation(config)
        self.task: Task = federation.task
        self.model: Model = jax.tree.map(jnp.asarray, broadcast(federation.state.model))
        self.state: ClientState = jax.tree.map(lambda x: x[0], federation.state.rows([0]))
        params = config.world.clients(config.federation.clients, jax.random.key(config.seed))
        self.params = jax.tree.map(lambda x: x[0], params)
        self.episodes = episodes_for(self.task.world, self.task.learner.steps)
        self.samples = self.episodes * self.task.world.horizon

    def round(self) -> Run:
        """A whole round of I iterations."""
        compiled = jax.jit(local_round)
        args = (self.task, self.model, self.state, self.params, jax.random.key(1))
        return lambda: jax.block_until_ready(compiled(*args))

    def parts(self) -> dict[str, Run]:
        """The parts of one iteration, each jitted by itself, on data of the same shapes."""
        task, key = self.task, jax.random.key(2)
        learner = task.learner
        act = partial(behaviour, task)
        policy, value_net = self.model.policy, self.model.critic
        assert value_net is not None
        policy_batch, critic_batch = self._batches(key)
        policy_state = policy_optimisation.optimiser(learner).init(policy)
        critic_state = critic.optimiser(task.critic).init(value_net)
        calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
            "rollout": (
                lambda model, key: rollout(
                    task.world,
                    self.params,
                    act(model.policy, model.observations, jnp.zeros((), jnp.int32)),
                    self.episodes,
                    key,
                ),
                (self.model, key),
            ),
            "policy": (
                lambda policy, state, batch, key: improve_policy(
                    task.algorithm,
                    learner,
                    Policies(policy, policy),
                    state,
                    batch,
                    self.state.coefficients,
                    jnp.ones(()),
                    jnp.zeros((), jnp.int32),
                    key,
                ),
                (policy, policy_state, policy_batch, key),
            ),
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


def measure(repetitions: int) -> dict[str, Any]:
    """Everything, alternately in this one process."""
    client = Client()
    learner, critics = client.task.learner, client.task.critic
    runs = {"fedkl": client.round(), "sb3": baseline(client.task)}
    runs |= client.parts() | {"matmuls": matmul_chain()}
    for run in runs.values():
        run()
    times: dict[str, list[Elapsed]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            short = name not in ("fedkl", "sb3")
            times[name] += [elapsed(run) for _ in range(5 if short else 1)]
    steps = {"fedkl": learner.iterations * client.samples, "sb3": learner.steps}
    iteration = median(t.cpu for t in times["fedkl"]) / learner.iterations
    part = {name: median(t.cpu for t in times[name]) for name in runs.keys() - steps.keys()}
    peak = MATMULS * 2 * 64**3 / part["matmuls"]
    outputs = client.model.policy.network.biases[-1].shape[0]
    widths = client.task.world.observation_size
    return {
        "what": "environment steps per second of local training on one core",
        "machine": machine("jax", "torch", "stable-baselines3", "gymnasium", "mujoco"),
        "setting": {
            "preset": PRESET,
            "baseline": f"stable-baselines3 PPO on gymnasium's {BASELINE}",
            "repetitions": repetitions,
            "fedkl_steps_per_repetition": steps["fedkl"],
            "sb3_steps_per_repetition": steps["sb3"],
        },
        "steps_per_second": {
            name: {
                "wall": spread([n / t.wall for t in times[name]]),
                "cpu": spread([n / t.cpu for t in times[name]]),
            }
            for name, n in steps.items()
        },
        "times_faster": {clock: _ratio(times, steps, clock) for clock in ("wall", "cpu")},
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
    faster = result["times_faster"]
    lines.append(
        f"fedkl is {faster['wall']['median']:.1f} times as fast "
        f"({faster['wall']['min']:.1f} to {faster['wall']['max']:.1f}); "
        f"{faster['cpu']['median']:.1f} times by processor time"
    )
    shares = result["iteration"]["shares"].items()
    lines.append("an iteration: " + ", ".join(f"{name} {share:.0%}" for name, share in shares))
    for name in ("policy", "critic"):
        step = result["gradient_steps"][name]
        lines.append(
            f"a {name} step takes {step['microseconds']:.0f} us; its matrix products alone "
            f"{step['floor_microseconds']:.0f} us at the measured peak"
        )
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    run_on_cores(1)
    torch.set_num_threads(1)
    result = measure(args.repetitions)
    emit(result, summary(result), args.out)


if __name__ == "__main__":
    main()
