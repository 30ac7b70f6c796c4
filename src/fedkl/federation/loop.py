"""The federation loop: select, broadcast, train, validate, aggregate, evaluate (Algorithm 2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, UInt8

from fedkl.federation import selection
from fedkl.federation.aggregation import aggregate
from fedkl.federation.arrays import size_in_bytes
from fedkl.federation.engines.base import Engine, Outcome, Record
from fedkl.federation.engines.in_process import InProcess
from fedkl.federation.engines.shared_world import InSharedWorld
from fedkl.federation.randomness import Purpose, key_for
from fedkl.federation.state import State, broadcast, first_state, with_rows
from fedkl.federation.validation import problem_with
from fedkl.learning.local_training import Task
from fedkl.learning.state import ClientState, Model
from fedkl.worlds.base import SharedWorld

if TYPE_CHECKING:
    from fedkl.config import Config


class Film(NamedTuple):
    """An episode to look at."""

    frames: Iterator[UInt8[np.ndarray, "h w 3"]]
    frames_per_second: float
    episode_return: float


class Federation:
    """A federated training run in memory: iterate over it to train.

    Example:
        >>> import fedkl
        >>> config = fedkl.preset("probe-point", set={"federation.rounds": 2})
        >>> [record["round"] for record in Federation(config)]
        [1, 2]
    """

    def __init__(self, config: Config, state: State | None = None) -> None:
        """Args:
        config: what to train.
        state: where to go on from; None starts anew.
        """
        self.config = config
        self.task = Task(config.world, config.algorithm, config.learner, config.critic)
        self.engine = self._engine()
        self.state = state or self.first_state()

    def _engine(self) -> Engine:
        if isinstance(world := self.config.world, SharedWorld):
            return InSharedWorld(self.task, self.config.federation)
        key = key_for(self.config.seed, Purpose.WORLDS)
        params = world.clients(self.config.federation.clients, key)
        return InProcess(self.task, params, self.config.federation)

    def first_state(self) -> State:
        """The state before the first round."""
        key = key_for(self.config.seed, Purpose.MODEL)
        return first_state(self.task, self.config.federation, key)

    def __iter__(self) -> Iterator[Record]:
        """Runs the rounds that are left, and yields the record of each."""
        while self.state.round < self.config.federation.rounds:
            yield self.run_round()

    def run_round(self) -> Record:
        """Runs one round, moves `state` on, and returns the record of the round."""
        start = time.perf_counter()
        settings = self.config.federation
        t = int(self.state.round)
        selected = selection.uniform(
            self.config.seed, t, settings.clients, settings.clients_per_round
        )
        model = broadcast(self.state.model)
        accepted, rejected, attempts = self._train(t, model, selected)
        updates = {client: outcome[0] for client, outcome in accepted.items()}
        steps = sum(int(update.weight) for update in updates.values())
        self.state = State(
            round=np.asarray(t + 1, np.int64),
            env_steps=self.state.env_steps + steps,
            model=aggregate(self.state.model, updates),
            clients=self._with_new_rows(accepted),
        )
        record: Record = {"round": t + 1}
        record |= self._returns()
        record |= {
            "selected": selected,
            "rejected": [{"client": c, "reason": r} for c, r in rejected.items()],
        }
        record |= _diagnostics(accepted)
        record |= self.engine.report()
        record |= {
            "env_steps": int(self.state.env_steps),
            "bytes_down": attempts * size_in_bytes(model),
            "bytes_up": attempts * size_in_bytes(model) + attempts * np.float32().nbytes,
            "seconds": time.perf_counter() - start,
        }
        return record

    def evaluate(self, episodes: int, deterministic: bool) -> Float[np.ndarray, "n e"]:
        """Returns of the global policy in every client's world, for each episode."""
        key = key_for(self.config.seed, Purpose.EVALUATION, int(self.state.round))
        model = broadcast(self.state.model)
        return self.engine.evaluate(model, self.state.clients, key, episodes, deterministic)

    def film(self, client: int, deterministic: bool) -> Film:
        """An episode of the global policy in a client's world, drawn as it is looked at.

        Raises:
            UserError: the world cannot be drawn.
        """
        key = key_for(self.config.seed, Purpose.RECORDING, int(self.state.round))
        model = broadcast(self.state.model)
        recording = self.engine.record(model, self.state.clients, key, client, deterministic)
        artist = self.config.world.artist(recording.params)
        totals = np.concatenate([[0.0], np.cumsum(recording.reward, dtype=np.float64)])
        frames = (
            artist(jax.tree.map(lambda x, i=i: x[i], recording.moments), i, total)
            for i, total in enumerate(totals.tolist())
        )
        return Film(frames, self.config.world.frames_per_second, float(totals[-1]))

    def _train(
        self, t: int, model: Model, selected: list[int]
    ) -> tuple[dict[int, Outcome], dict[int, str], int]:
        """Valid outcomes, why the other clients were left out, and how many were run in all."""
        accepted: dict[int, Outcome] = {}
        rejected: dict[int, str] = {}
        attempts = 0
        for attempt in range(1 + self.config.federation.retries):
            left = [client for client in selected if client not in accepted]
            if not left:
                break
            keys = [
                key_for(self.config.seed, Purpose.TRAINING, t, client, attempt) for client in left
            ]
            shared_key = key_for(self.config.seed, Purpose.SHARED_WORLD, t, attempt)
            outcomes = self.engine.train(model, left, self.state.clients, keys, shared_key)
            attempts += len(left)
            for client, outcome in zip(left, outcomes, strict=True):
                limit = self.config.federation.max_relative_norm
                problem = problem_with(outcome[0], outcome[1], model, limit)
                if problem is None:
                    accepted[client] = outcome
                    rejected.pop(client, None)
                else:
                    rejected[client] = problem
        return accepted, rejected, attempts

    def _with_new_rows(self, accepted: dict[int, Outcome]) -> ClientState:
        if not accepted:
            return self.state.clients
        rows = jax.tree.map(lambda *x: np.stack(x), *[state for _, state, _ in accepted.values()])
        return with_rows(self.state.clients, list(accepted), rows)

    def _returns(self) -> Record:
        settings, done = self.config.evaluation, int(self.state.round)
        if done % settings.every and done != self.config.federation.rounds:
            return dict.fromkeys(
                (
                    "return_mean",
                    "return_min",
                    "return_std",
                    "return_per_client",
                    "deterministic_return_mean",
                )
            )
        per_client = self.evaluate(settings.episodes, deterministic=False).mean(axis=1)
        deterministic = self.evaluate(settings.episodes, deterministic=True)
        return {
            "return_mean": float(per_client.mean()),
            "return_min": float(per_client.min()),
            "return_std": float(per_client.std()),
            "return_per_client": [float(r) for r in per_client],
            "deterministic_return_mean": float(deterministic.mean()),
        }


def _diagnostics(accepted: dict[int, Outcome]) -> Record:
    """Divergences and coefficients, for each client and over all."""
    rows = []
    for client, (update, _, metrics) in sorted(accepted.items()):
        # An iteration that the guard rolled back moved nothing and says nothing of divergences.
        kept = ~metrics["guarded"]
        rows.append(
            {
                "client": client,
                "kl_local": float(metrics["kl_local"][kept].mean()) if kept.any() else 0.0,
                "kl_global": float(metrics["kl_global"][kept][-1]) if kept.any() else 0.0,
                "guarded": int(metrics["guarded"].sum()),
                "step_scale": float(metrics["step_scale"]),
                "train_return": float(metrics["train_return"][-1]),
                "steps": int(update.weight),
            }
            | {name: float(c) for name, c in metrics["coefficients"].items() if c.ndim == 0}
        )

    def mean(name: str) -> float | None:
        values = [row[name] for row in rows if name in row]
        return float(np.mean(values)) if values else None

    overall = {name: mean(name) for name in ("kl_local", "kl_global", "c1", "c2")}
    return overall | {"guarded": sum(row["guarded"] for row in rows), "clients": rows}
