"""Gymnasium environments on the host, against Stable-Baselines3's PPO and against our JAX twins.

python benchmarks/gymnasium_worlds.py --out gymnasium.json

The same T, epochs, minibatch and networks, in turn on the same core, by the processor time of all
processes that take part. See README.md.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
from measuring import emit, machine, run_on_cores, spread

import fedkl
from fedkl.clients.records import Start
from fedkl.clients.round import collect, local_round
from fedkl.clients.sources import Hosted, Source, Traced
from fedkl.config.config import parse_assignment
from fedkl.io.compilation import enable_cache
from fedkl.learning.randomness import Purpose, key_for
from fedkl.simulators.gymnasium.registration import silence_mujoco
from fedkl.simulators.pool import Workers
from fedkl.worlds import SoloWorld

try:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.utils import configure_logger
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: it comes with the extra `bench`") from error

TWINS = {"CartPole-v1": "cartpole", "Pendulum-v1": "pendulum"}
IDS = ("CartPole-v1", "Pendulum-v1", "LunarLander-v3", "HalfCheetah-v5")
THEIRS_AT_ONCE = 8
"""Environments of Stable-Baselines3, stepped one after the other in its process."""
SETTINGS = {
    "learner.iterations": 2,
    "learner.steps": 2048,
    "learner.epochs": 10,
    "learner.minibatch": 64,
    "learner.hidden": [64, 64],
    "critic.hidden": [64, 64],
    "critic.epochs": 10,
    "critic.minibatch": 64,
    "learner.optimiser": "adam",
}
Settings = dict[str, Any]
Run = Callable[[], object]


class Client:
    """The first client of a federation, alone, with the processes of its simulators."""

    def __init__(self, preset: str, settings: Settings) -> None:
        config = fedkl.preset(preset, "fedavg", set=settings)
        self.task = config.task
        model, state = jax.tree.map(jnp.asarray, config.first_states)
        self.start = Start(model, state, jax.random.key(1))
        world = self.task.world
        params = jax.tree.map(lambda x: x[0], world.clients(1, key_for(0, Purpose.WORLDS)))
        self.workers: Workers | None = None
        self.source: Source
        if isinstance(world, SoloWorld):
            self.workers = Workers(world.simulator(), world.patience)
            self.source = Hosted(self.workers, params, world.horizon, world.truncates)
        else:
            self.source = Traced(world, params)
        self._begun = jax.jit(self.task.learner.begin)(self.task, self.start)
        self._collect = jax.jit(
            lambda s: collect(self.task, s, self.task.learner.begin(self.task, s), self.source, 0)
        )
        self._round = jax.jit(lambda s: local_round(self.task, s, self.source))

    def collect(self) -> object:
        """T steps."""
        if self.workers is None:
            return jax.block_until_ready(self._collect(self.start))
        return collect(self.task, self.start, self._begun, self.source, 0)

    def train(self) -> object:
        """A round of local training."""
        run = self._round if self.workers is None else self._on_the_host
        return jax.block_until_ready(run(self.start))

    def _on_the_host(self, start: Start) -> object:
        return local_round(self.task, start, self.source)

    def processes(self) -> list[int]:
        """Those of the simulators."""
        return [] if self.workers is None else self.workers.processes()


def theirs(id: str, settings: Settings) -> tuple[Run, Run]:
    """Stable-Baselines3: collecting T steps, and that with training."""
    torch.set_num_threads(1)
    # Of what Gymnasium's own models say that MuJoCo no longer likes.
    silence_mujoco()
    model = PPO(
        "MlpPolicy",
        make_vec_env(id, n_envs=THEIRS_AT_ONCE, seed=0),
        n_steps=settings["learner.steps"] // THEIRS_AT_ONCE,
        n_epochs=settings["learner.epochs"],
        batch_size=settings["learner.minibatch"],
        learning_rate=3e-4,
        policy_kwargs={
            "net_arch": {"pi": settings["learner.hidden"], "vf": settings["critic.hidden"]},
            "activation_fn": torch.nn.Tanh,
        },
        device="cpu",
        seed=0,
    )
    model.set_logger(configure_logger(verbose=0))
    _, callback = model._setup_learn(10**9, None)
    buffer, env = model.rollout_buffer, model.env

    def gather() -> object:
        return model.collect_rollouts(env, callback, buffer, model.n_steps)

    def learn() -> object:
        gather()
        return model.train()

    return gather, learn


def alone(id: str, steps: int) -> Run:
    """T steps of the environment's own, with actions that were drawn before."""
    env = gymnasium.make(id).unwrapped
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(steps)]

    def run() -> None:
        env.reset(seed=0)
        for action in actions:
            if env.step(action)[2]:
                env.reset()

    return run


def processor_time(processes: Sequence[int]) -> float:
    """Seconds that this process and others have computed so far."""
    total = time.process_time()
    for process in processes:
        # Files in /proc count in hundredths of a second.
        clock = ctypes.c_int()
        if ctypes.CDLL(None).clock_getcpuclockid(process, ctypes.byref(clock)):
            raise ProcessLookupError(process)
        total += time.clock_gettime(clock.value)
    return total


def measure(id: str, repetitions: int, settings: Settings) -> dict[str, Any]:
    """One environment."""
    clients = {"fedkl": Client(f"gym:{id}", settings)}
    if id in TWINS:
        clients["twin"] = Client(TWINS[id], settings)
    gather, learn = theirs(id, settings)
    steps, iterations = settings["learner.steps"], settings["learner.iterations"]
    nobody: Callable[[], list[int]] = list
    runs: dict[str, dict[str, tuple[Run, Callable[[], list[int]], int]]] = {
        "collecting": {
            "sb3": (gather, nobody, steps),
            "alone": (alone(id, steps), nobody, steps),
        },
        "training": {"sb3": (learn, nobody, steps)},
    }
    for name, client in clients.items():
        runs["collecting"][name] = (client.collect, client.processes, steps)
        runs["training"][name] = (client.train, client.processes, iterations * steps)
    result: dict[str, Any] = {}
    for kind, each in runs.items():
        seconds: dict[str, list[float]] = {name: [] for name in each}
        for run, _, _ in each.values():
            run()
        for _ in range(repetitions):
            for name, (run, processes, number) in each.items():
                # Collecting takes so little that it is done several times.
                calls = 4 if kind == "collecting" else 1
                before = processor_time(processes())
                for _ in range(calls):
                    run()
                seconds[name].append((processor_time(processes()) - before) / number / calls)
        result[kind] = {
            "microseconds_a_step": {n: spread([1e6 * s for s in ss]) for n, ss in seconds.items()},
            "times_sb3": {
                n: median(a / b for a, b in zip(seconds["sb3"], ss, strict=True))
                for n, ss in seconds.items()
                if n != "sb3"
            },
        }
        if "twin" in seconds:
            pairs = zip(seconds["fedkl"], seconds["twin"], strict=True)
            result[kind]["host_over_twin"] = median(a / b for a, b in pairs)
    for client in clients.values():
        if client.workers is not None:
            client.workers.close()
    return result


def summary(result: dict[str, Any]) -> str:
    """A table for people."""
    lines = [f"{'':16s}{'collecting, us a step':>50s}{'with training':>40s}"]
    for id, kinds in result["environments"].items():
        cells = []
        for kind in ("collecting", "training"):
            found = kinds[kind]["microseconds_a_step"]
            ours, other = found["fedkl"]["median"], found["sb3"]["median"]
            ratio = kinds[kind]["times_sb3"]["fedkl"]
            others = [n for n in ("alone", "twin") if n in found]
            beside = "".join(f", {n} {found[n]['median']:.1f}" for n in others)
            cells.append(f"{ours:.1f}, sb3 {other:.0f}: {ratio:.2f} times{beside}")
        lines.append(f"{id:16s}{cells[0]:>50s}{cells[1]:>40s}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", nargs="+", default=IDS, metavar="ID")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--cores", type=int, default=1, help="cores to run on")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings")
    parser.add_argument("--out", type=Path, help="where to write the JSON")
    options = parser.parse_args(arguments)
    run_on_cores(options.cores)
    enable_cache()
    settings: Settings = SETTINGS | dict(map(parse_assignment, options.set))
    result = {
        "what": "processor time of a step, all processes together",
        "machine": machine("jax", "gymnasium", "torch", "stable-baselines3"),
        "setting": settings | {"repetitions": options.repetitions, "sb3_envs": THEIRS_AT_ONCE},
        "environments": {id: measure(id, options.repetitions, settings) for id in options.ids},
    }
    emit(result, summary(result), options.out)


if __name__ == "__main__":
    main()
