"""The sampled level of heterogeneity: how far it is from the exact one, and what it costs.

On finite MDPs, beside what `fedkl.tabular` solves for and beside counting in buckets; on Reacher,
beside itself with many more trajectories, and beside a round of training. See README.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from finite_world import Sampled
from measuring import Elapsed, elapsed, emit, machine, run_on_cores, spread

import fedkl
from fedkl.clients.records import Model
from fedkl.clients.work import Train
from fedkl.config.config import Config, parse_assignment
from fedkl.engines import Engine, Job
from fedkl.heterogeneity import HeterogeneitySettings, Level, Measure, level
from fedkl.learning.randomness import Purpose, key_data_for
from fedkl.learning.trajectories import Trajectories
from fedkl.server.loop import Federation
from fedkl.server.state import broadcast
from fedkl.tabular import Exact, Family, families
from fedkl.tabular.distances import frobenius

PRESETS = ("reacher-iid", "reacher-init-state", "reacher-dynamics")
IN_USE = "reacher-init-state"
AGENTS, ROWS, COLUMNS, GAMMA, HORIZON = 10, 10, 10, 0.9, 60
LAMBDA = 0.95
FEATURES = (8, 16, 32, 48, 96)
"""Of the sweep; those of the default among them."""

Numbers = dict[str, np.ndarray]


def columns(levels: dict[int, Level]) -> Numbers:
    """Every number of a level, of all clients."""
    return {
        name: np.array([getattr(levels[client], name) for client in sorted(levels)])
        for name in Level._fields
    }


def stacked(found: list[dict[int, Level]]) -> Numbers:
    """The same, of repeated measurements: [times, clients] each."""
    each = [columns(levels) for levels in found]
    return {name: np.stack([one[name] for one in each]) for name in Level._fields}


def compared(found: Numbers, truth: Numbers) -> dict[str, Any]:
    """How far measurements are from the truth; norms relative to the true ||DA||."""
    da, alignment = truth["advantage"], truth["alignment"]
    size = np.mean(da)

    def off(name: str, unit: float) -> dict[str, float]:
        error = (found[name] - truth[name]) / unit
        return {"bias": float(error.mean()), "deviation": float(error.std())}

    def same_sign(name: str) -> float:
        return float(np.mean((found[name] > 0) == (truth[name] > 0)))

    return {
        "true_ratio": float(np.mean(truth["heterogeneity"] / da)),
        "share_with_positive_g": float(np.mean(truth["learning_potential"] > 0)),
        "advantage": off("advantage", size),
        "heterogeneity": off("heterogeneity", size),
        "sign_of_g_right": same_sign("learning_potential"),
        "alignment": off("alignment", np.mean(abs(alignment))),
        "sign_of_alignment_right": same_sign("alignment"),
    }


def exact_numbers(exact: Exact) -> Numbers:
    """What `Level` estimates."""
    da, db = frobenius(exact.weighted_advantage), frobenius(exact.weighted_heterogeneity)
    return {
        "advantage_squared": da**2,
        "heterogeneity_squared": db**2,
        "advantage": da,
        "heterogeneity": db,
        "learning_potential": da - db,
        "alignment": exact.alignment,
    }


def grid(wind: float, everywhere: bool) -> Family:
    """Ten agents on the 10 x 10 grid; rewards at the goal alone, or random ones everywhere."""
    windy = families.windy_grid(agents=AGENTS, rows=ROWS, columns=COLUMNS, gamma=GAMMA, level=wind)
    if not everywhere:
        return windy
    rewards = np.random.default_rng(0).normal(size=windy.rewards.shape[1:])
    return Family(
        windy.initial,
        windy.transitions,
        np.broadcast_to(rewards, windy.rewards.shape),
        GAMMA,
    )


def improved(family: Family) -> np.ndarray:
    """A policy that prefers what is better for the average agent, and takes all actions."""
    values = np.einsum(
        "n,nsa->sa", family.weights, Exact(family, family.uniform_policy()).action_value
    )
    logits = 2 * (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1).mean()
    weights = np.exp(np.clip(logits, -2, 2))
    return weights / weights.sum(axis=1, keepdims=True)


def counted(data: Trajectories, actions: int) -> np.ndarray:
    """D_n A_n by counting: discounted visits, and mean advantages in each cell."""
    state, action = np.argmax(data.observation, axis=-1), np.asarray(data.action)
    reward = np.asarray(data.reward)
    steps, states = len(reward), data.observation.shape[-1]
    returns = np.zeros_like(reward)
    later = np.zeros(reward.shape[1])
    for t in reversed(range(steps)):
        later = returns[t] = reward[t] + GAMMA * later
    visits = np.bincount(state.ravel(), minlength=states)
    value = np.bincount(state.ravel(), returns.ravel(), states) / np.maximum(visits, 1)
    after = np.argmax(np.concatenate([data.observation[1:], data.last_observation[None]]), axis=-1)
    delta = reward + GAMMA * value[after] - value[state]
    advantage = np.zeros_like(delta)
    later = np.zeros(reward.shape[1])
    for t in reversed(range(steps)):
        later = advantage[t] = delta[t] + GAMMA * LAMBDA * later
    cell = (state * actions + action).ravel()
    number = np.bincount(cell, minlength=states * actions)
    mean = np.bincount(cell, advantage.ravel(), states * actions) / np.maximum(number, 1)
    discounts = np.broadcast_to((GAMMA ** np.arange(steps))[:, None], reward.shape)
    rho = np.bincount(state.ravel(), discounts.ravel(), states) / reward.shape[1]
    return rho[:, None] * mean.reshape(states, actions)


def in_cells(trajectories: int, family: Family) -> Measure:
    """A measurement with a cell for each state, and else as it is by default."""
    return HeterogeneitySettings(
        trajectories=trajectories, basis="buckets", features=family.states
    ).work()


def by_counting(sampled: Sampled, family: Family, work: Measure, key: Any) -> Numbers:
    """Norms of counted matrices, noise and all."""
    each = np.stack(
        [counted(data, family.actions) for data in sampled.trajectories(work, key).values()]
    )
    apart = np.einsum("n,nsa->sa", family.weights, each) - each
    return {"advantage": frobenius(each), "heterogeneity": frobenius(apart)}


def on_the_grid(repetitions: int, trajectories: int, winds: list[float]) -> list[dict[str, Any]]:
    """Sampled beside exact, for winds, rewards and policies."""
    rows = []
    for everywhere in (True, False):
        for wind in winds:
            family = grid(wind, everywhere)
            for name, policy in (
                ("uniform", family.uniform_policy()),
                ("better", improved(family)),
            ):
                sampled = Sampled(family, policy, HORIZON, gae_lambda=LAMBDA)
                work = in_cells(trajectories, family)
                keys = [jax.random.key(seed) for seed in range(repetitions)]
                found = stacked([level(sampled.measure(work, key)) for key in keys])
                truth = exact_numbers(Exact(family, policy))
                counts = [by_counting(sampled, family, work, key) for key in keys]
                bias = [c["heterogeneity"] - truth["heterogeneity"] for c in counts]
                rows.append(
                    {
                        "rewards": "everywhere" if everywhere else "at the goal",
                        "wind": wind,
                        "policy": name,
                        **compared(found, truth),
                        "counting_heterogeneity_bias": float(
                            np.mean(bias) / np.mean(truth["advantage"])
                        ),
                    }
                )
    return rows


def by_trajectories(repetitions: int, most: int) -> list[dict[str, Any]]:
    """How errors fall with the number of trajectories, on a random family."""
    family = families.random(
        agents=5, states=10, actions=4, gamma=GAMMA, seed=0, heterogeneity="all", level=0.5
    )
    policy = family.uniform_policy()
    truth = exact_numbers(Exact(family, policy))
    sampled = Sampled(family, policy, HORIZON, gae_lambda=LAMBDA)
    rows, number = [], 24
    while number <= most:
        work = in_cells(number, family)
        seeds = range(repetitions)
        found = stacked([level(sampled.measure(work, jax.random.key(s))) for s in seeds])
        row: dict[str, Any] = {"trajectories": number}
        for name in ("advantage_squared", "heterogeneity_squared", "alignment"):
            size = np.mean(abs(truth[name]))
            row[name] = float(np.sqrt(np.mean((found[name] - truth[name]) ** 2)) / size)
        rows.append(row)
        number *= 4
    return rows


class Clients:
    """Some clients of a preset, at a policy of some rounds' training."""

    def __init__(self, preset: str, rounds: int, settings: dict[str, Any]) -> None:
        chosen = settings | {"federation.rounds": max(rounds, 1), "evaluation.every": 10**6}
        self.config: Config = fedkl.preset(preset, "fedavg", set=chosen)
        self.federation = Federation(self.config)
        for _ in range(rounds):
            self.federation.run_round()
        self.engine: Engine = self.federation.engine
        self.model: Model = broadcast(self.federation.state.model)

    def ask(self, work: Any, clients: int, seed: int) -> dict[int, Any]:
        """What so many clients answer."""
        numbers = np.asarray([[seed, client] for client in range(clients)])
        words = key_data_for(self.config.seed, Purpose.EVALUATION, numbers)
        jobs = [Job(client, word) for client, word in enumerate(words)]
        return dict(self.engine.run(work, self.model, jobs, words[0]))


def compared_with_more(clients: Clients, features: int, args: argparse.Namespace) -> dict[str, Any]:
    """So many features at the usual number of trajectories, beside a reference with many more."""

    def found(trajectories: int, seed: int) -> dict[int, Level]:
        work = HeterogeneitySettings(trajectories=trajectories, features=features).work()
        return level(clients.ask(work, args.clients, seed))

    truth = columns(found(args.reference, 10**6))
    seen = stacked([found(args.trajectories, seed) for seed in range(args.repetitions)])
    return {"norm": float(truth["advantage"].mean())} | compared(seen, truth)


def swept(args: argparse.Namespace, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Random Fourier features, few and many, beside themselves with many more trajectories."""
    rows = []
    for preset in args.presets:
        for rounds in args.rounds:
            clients = Clients(preset, rounds, settings)
            for features in args.features:
                name = {"preset": preset, "rounds": rounds, "features": features}
                rows.append(name | compared_with_more(clients, features, args))
            clients.federation.engine.close()
    return rows


def seconds(repetitions: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Measuring everybody, and training K clients for a round, in turn."""
    clients = Clients(IN_USE, 0, settings)
    federation = clients.config.federation
    work = HeterogeneitySettings().work()
    runs: dict[str, Callable[[], object]] = {
        "measuring": lambda: clients.ask(work, federation.clients, 0),
        "training": lambda: clients.ask(Train(), federation.clients_per_round, 0),
    }
    answer = clients.ask(work, 1, 0)[0]
    for run in runs.values():
        run()
    times: dict[str, list[Elapsed]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            times[name].append(elapsed(run))
    clients.federation.engine.close()
    pairs = list(zip(times["measuring"], times["training"], strict=True))
    return {
        "measured_clients": federation.clients,
        "trained_clients": federation.clients_per_round,
        "trajectories": work.trajectories,
        "bytes_from_a_client": sum(x.nbytes for x in answer),
        **{
            name: {clock: spread([getattr(t, clock) for t in each]) for clock in ("wall", "cpu")}
            for name, each in times.items()
        },
        "relative": {
            clock: spread([getattr(m, clock) / getattr(t, clock) for m, t in pairs])
            for clock in ("wall", "cpu")
        },
    }


def summary(result: dict[str, Any]) -> str:
    """A line for each row; norms are relative to ||DA||."""
    lines = ["on the 10 x 10 grid:"]
    for row in result["grid"]:
        name = f"rewards {row['rewards']}, wind {row['wind']:g}, {row['policy']} policy"
        lines.append(
            f"  {name:48s} {_said(row)}; counting {row['counting_heterogeneity_bias']:+.2f}"
        )
    if result["grid"]:
        right = np.mean([row["sign_of_g_right"] for row in result["grid"]])
        lines.append(f"  sign of G right over all rows: {right:.3f}")
    lines.append("root mean square errors by number of trajectories:")
    for row in result["by_trajectories"]:
        errors = ", ".join(f"{k} {v:.3f}" for k, v in row.items() if k != "trajectories")
        lines.append(f"  {row['trajectories']:6d} {errors}")
    lines.append("on Reacher:")
    for row in result["features"]:
        name = f"{row['preset']} after {row['rounds']}, {row['features']} features"
        lines.append(f"  {name:48s} {_said(row)}")
    if timed := result["seconds"]:
        lines.append(
            f"measuring {timed['measured_clients']} clients takes "
            f"{timed['measuring']['cpu']['median']:.2f} s of processor time, training "
            f"{timed['trained_clients']} {timed['training']['cpu']['median']:.2f} s: "
            f"{timed['relative']['cpu']['median']:.2f} times"
        )
    return "\n".join(lines)


def _said(row: dict[str, Any]) -> str:
    def of(name: str) -> str:
        return f"{row[name]['bias']:+.3f} ({row[name]['deviation']:.3f})"

    return (
        f"ratio {row['true_ratio']:+.2f}: DA {of('advantage')}, DB {of('heterogeneity')}, sign of "
        f"G {row['sign_of_g_right']:.3f}, alignment {of('alignment')}, its sign "
        f"{row['sign_of_alignment_right']:.3f}"
    )


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=5, help="of every measurement")
    parser.add_argument("--trajectories", type=int, default=100, help="of a client")
    parser.add_argument("--most", type=int, default=1536, help="trajectories on the random family")
    parser.add_argument("--reference", type=int, default=2000, help="trajectories of the reference")
    parser.add_argument("--winds", nargs="*", type=float, default=[0.0, 0.5, 1.0])
    parser.add_argument("--clients", type=int, default=12, help="measured on Reacher")
    parser.add_argument("--presets", nargs="*", default=list(PRESETS))
    parser.add_argument("--rounds", nargs="*", type=int, default=[0, 3], help="trained before")
    parser.add_argument("--features", nargs="*", type=int, default=list(FEATURES))
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    run_on_cores(1)
    settings = dict(map(parse_assignment, args.set))
    result = {
        "what": "errors of the sampled level of heterogeneity, and its price",
        "machine": machine("jax"),
        "setting": {k: v for k, v in vars(args).items() if k != "out"},
        "grid": on_the_grid(args.repetitions, args.trajectories, args.winds),
        "by_trajectories": by_trajectories(args.repetitions, args.most),
        "features": swept(args, settings),
        "seconds": seconds(args.repetitions, settings),
    }
    emit(result, summary(result), args.out)


if __name__ == "__main__":
    main()
