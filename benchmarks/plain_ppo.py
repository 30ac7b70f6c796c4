"""Stable-Baselines3's PPO on our Reacher: a yardstick for a federation of clients that are alike.

python benchmarks/plain_ppo.py --results plain_ppo.jsonl --out plain_ppo.json

Where all clients have the same world, a federation of K clients sees in a round what one learner
sees in K times I iterations. This is such a learner, with the paper's sizes and nothing of ours
but the world. A seed that is in the results already is not trained again. See README.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import jax
import numpy as np
from measuring import emit, machine, read_lines, run_missing

from fedkl.learning.randomness import Purpose, key_for
from fedkl.worlds.reacher import Reacher

try:
    import torch
    from gymnasium.spaces import Box
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: it comes with the extra `bench`") from error

ENVIRONMENTS, HORIZON = 41, Reacher.horizon
ITERATION = ENVIRONMENTS * HORIZON
"""T: as many steps as an iteration of ours."""
FEDERATION = {"clients_per_round": 3, "iterations": 20, "rounds": 40}
ROUND = FEDERATION["clients_per_round"] * FEDERATION["iterations"] * ITERATION
"""Steps of a round of that federation."""
MINIBATCH = 50
"""Instead of 64, which does not divide 2,050: Stable-Baselines3 warns of a last, smaller one."""
WIDE = 100.0
"""Bounds of actions that no action reaches. The motors' are +-1, but the effort in Reacher-v2's
reward is that of the action as it is; Stable-Baselines3 would clip it before the world sees it."""


class Reachers(VecEnv):
    """Arms side by side, stepped in one compiled call; all their episodes end at the same time."""

    def __init__(self, number: int, key: jax.Array) -> None:
        self._world, self._key = Reacher(), key
        self._calls = 0
        self._params = jax.tree.map(lambda x: x[0], self._world.clients(1, key))
        self._reset = jax.jit(self._begin)
        self._step = jax.jit(self._move)
        unbounded = np.full(self._world.observation_size, np.inf, np.float32)
        actions = np.full(self._world.actions.size, WIDE, np.float32)
        super().__init__(number, Box(-unbounded, unbounded), Box(-actions, actions))

    def _keys(self, calls: int, key: jax.Array) -> jax.Array:
        return jax.random.split(jax.random.fold_in(key, calls), self.num_envs)

    def _begin(self, calls: int, key: jax.Array) -> Any:
        return jax.vmap(self._world.reset, (None, 0))(self._params, self._keys(calls, key))

    def _move(self, state: Any, action: jax.Array, calls: int, key: jax.Array) -> Any:
        step = jax.vmap(self._world.step, (None, 0, 0, 0))
        moved = step(self._params, state, action, self._keys(calls, key))
        return moved.state, moved.observation, moved.reward

    def reset(self) -> np.ndarray:
        self._calls += 1
        self._time = 0
        self._state, observation = self._reset(self._calls, self._key)
        return np.asarray(observation)

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        self._calls += 1
        self._time += 1
        moved = self._step(self._state, self._actions, self._calls, self._key)
        self._state, observation, reward = moved[0], np.asarray(moved[1]), np.asarray(moved[2])
        over = self._time == HORIZON
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if over:
            # What makes Stable-Baselines3 add the value of where the time limit found the arm.
            infos = [{"TimeLimit.truncated": True, "terminal_observation": o} for o in observation]
            observation = self.reset()
        return observation, reward, np.full(self.num_envs, over), infos

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Cell(NamedTuple):
    """One training."""

    seed: int
    steps: int
    episodes: int
    """Of an evaluation."""


def checkpoints(steps: int) -> list[int]:
    """The iterations after which it is evaluated: every tenth of all, and a third."""
    whole = max(1, round(steps / ITERATION))
    parts = [*(i / 10 for i in range(1, 11)), 1 / 3]
    return sorted({max(1, round(whole * part)) for part in parts})


def train(cell: Cell) -> dict[str, Any]:
    """Trains one seed, and evaluates it at the checkpoints."""
    torch.set_num_threads(1)
    arms = Reachers(ENVIRONMENTS, key_for(cell.seed, Purpose.TRAINING))
    seen = VecNormalize(arms, clip_obs=5.0, clip_reward=10.0, gamma=0.99)
    judges = Reachers(cell.episodes, key_for(cell.seed, Purpose.EVALUATION))
    model = PPO(
        "MlpPolicy",
        seen,
        n_steps=HORIZON,
        n_epochs=10,
        batch_size=MINIBATCH,
        learning_rate=3e-4,
        gamma=0.99,
        gae_lambda=0.95,
        ent_coef=0.0,
        policy_kwargs={
            "net_arch": {"pi": [64, 64], "vf": [64, 64]},
            "activation_fn": torch.nn.Tanh,
        },
        device="cpu",
        seed=cell.seed,
    )
    seconds, curve = 0.0, []
    for iterations in checkpoints(cell.steps):
        started = time.perf_counter()
        model.learn(iterations * ITERATION - model.num_timesteps, reset_num_timesteps=False)
        seconds += time.perf_counter() - started
        with torch.random.fork_rng():  # whether somebody evaluates must not change the training
            returns = {
                "return_mean": evaluate(model, seen, judges, deterministic=False),
                "deterministic_return_mean": evaluate(model, seen, judges, deterministic=True),
            }
        curve.append({"steps": model.num_timesteps} | returns)
        print(
            f"seed {cell.seed}, {model.num_timesteps:,} steps: {returns['return_mean']:.2f} "
            f"({model.num_timesteps / seconds:,.0f} steps/s)",
            file=sys.stderr,
            flush=True,
        )
    return cell._asdict() | {
        "curve": curve,
        "seconds": seconds,
        "steps_per_second": model.num_timesteps / seconds,
    }


def evaluate(model: PPO, seen: VecNormalize, judges: Reachers, deterministic: bool) -> float:
    """The mean undiscounted return, over one fresh episode of each arm."""
    observation, total = judges.reset(), np.zeros(judges.num_envs)
    for _ in range(HORIZON):
        standardised = seen.normalize_obs(observation)
        action, _ = model.predict(standardised, deterministic=deterministic)
        observation, reward, _, _ = judges.step(action)
        total += reward
    return float(total.mean())


def tabulate(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The learning curve over seeds."""
    rows = []
    for points in zip(*(line["curve"] for line in lines), strict=True):
        row: dict[str, Any] = {
            "steps": points[0]["steps"],
            "rounds_of_the_federation": points[0]["steps"] / ROUND,
        }
        for name in ("return_mean", "deterministic_return_mean"):
            values = [point[name] for point in points]
            row[name] = {"mean": mean(values), "min": min(values), "max": max(values)}
        rows.append(row)
    third = rows[-1]["steps"] / 3
    return {
        "curve": rows,
        "at_a_third": min(rows, key=lambda row: abs(row["steps"] - third)),
        "at_the_end": rows[-1],
        "steps_per_second": mean(line["steps_per_second"] for line in lines),
        "seconds_a_seed": mean(line["seconds"] for line in lines),
    }


def summary(result: dict[str, Any]) -> str:
    """The curve in Markdown."""
    lines = ["| steps | rounds | stochastic | deterministic |", "|---|---|---|---|"]
    for row in result["curve"]:
        shown = [_shown(row[name]) for name in ("return_mean", "deterministic_return_mean")]
        rounds = row["rounds_of_the_federation"]
        lines.append(f"| {row['steps']:,} | {rounds:.1f} | {shown[0]} | {shown[1]} |")
    for name in ("at_a_third", "at_the_end"):
        row = result[name]
        said = f"{name.replace('_', ' ')} ({row['steps']:,} steps)"
        lines.append(f"{said}: {_shown(row['return_mean'])}")
    lines.append(f"{result['steps_per_second']:,.0f} steps per second")
    return "\n".join(lines)


def _shown(x: dict[str, float]) -> str:
    return f"{x['mean']:.2f} ({x['min']:.2f} to {x['max']:.2f})"


def main() -> None:
    """Trains what is missing and shows the curve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--steps", type=int, default=FEDERATION["rounds"] * ROUND, help="of the environment, a seed"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=1200, help="of an evaluation")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on a core of its own")
    parser.add_argument("--results", type=Path, required=True, help="JSON lines, added to")
    parser.add_argument("--out", type=Path, help="also write the table's JSON here")
    args = parser.parse_args()
    cells = [Cell(seed, args.steps, args.episodes) for seed in args.seeds]
    there = {cell_of(line) for line in read_lines(args.results)}
    run_missing(train, [cell for cell in cells if cell not in there], args.results, args.jobs)
    found = [line for line in read_lines(args.results) if cell_of(line) in set(cells)]
    result = {
        "what": "return of Stable-Baselines3's PPO on Reacher as one learner's world",
        "machine": machine("jax", "torch", "stable-baselines3", "gymnasium"),
        "setting": {
            "environments": ENVIRONMENTS,
            "steps_per_iteration": ITERATION,
            "minibatch": MINIBATCH,
            "episodes": args.episodes,
            "seeds": args.seeds,
            "federation": FEDERATION,
        },
    } | tabulate(found)
    emit(result, summary(result), args.out)


def cell_of(line: dict[str, Any]) -> Cell:
    """What a line is the result of."""
    return Cell(*(line[name] for name in Cell._fields))


if __name__ == "__main__":
    main()
