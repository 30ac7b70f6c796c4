"""A family of finite MDPs as a world: what is sampled can be compared with what is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedkl.algorithms import FedAvg
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Model, Start, Task, first_states
from fedkl.clients.sources import Traced
from fedkl.heterogeneity import Measure, Measurement
from fedkl.learning.settings import NONE, CriticSettings, Sharing
from fedkl.learning.trajectories import Trajectories
from fedkl.tabular import Family
from fedkl.worlds import Discrete, Transition, World


class Tables(NamedTuple):
    """One agent's MDP, or all agents', stacked."""

    initial: Any
    """Of the first state, cumulated."""
    transitions: Any
    """Of the next state, given state and action, cumulated."""
    rewards: Any


class Finite(World):
    """A finite MDP; observations are one-hot states."""

    name: ClassVar[str] = "finite"
    summary: ClassVar[str] = "a finite MDP, by its tables"
    states: int = eqx.field(static=True)
    choices: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    @property
    def observation_size(self) -> int:
        return self.states

    @property
    def actions(self) -> Discrete:
        return Discrete(self.choices)

    @property
    def horizon(self) -> int:
        return self.steps

    def clients(self, n: int, key: Any) -> Tables:
        raise NotImplementedError("agents are the family's")

    def reset(self, params: Tables, key: Any) -> tuple[Any, Any]:
        state = _drawn(params.initial, key)
        return state, self._observed(state)

    def step(self, params: Tables, state: Any, action: Any, key: Any) -> Transition:
        following = _drawn(params.transitions[state, action], key)
        reward = params.rewards[state, action]
        return Transition(following, self._observed(following), reward, jnp.asarray(False))

    def _observed(self, state: Any) -> Any:
        return jax.nn.one_hot(state, self.states)


def _drawn(cumulated: Any, key: Any) -> Any:
    below = jax.random.uniform(key) * cumulated[-1] >= cumulated
    return jnp.sum(below).clip(max=len(cumulated) - 1)


class Sampled:
    """Agents of a family, as clients that follow one policy."""

    def __init__(self, family: Family, policy: np.ndarray, horizon: int, **learner: Any) -> None:
        """Args:
        family: of finite MDPs.
        policy: pi(a | s), nowhere 0.
        horizon: steps in a trajectory; what comes later is not seen.
        learner: settings other than the discount.
        """
        self.agents = family.agents
        self.tables = Tables(
            family.initial.cumsum(axis=-1).astype(np.float32),
            family.transitions.cumsum(axis=-1).astype(np.float32),
            family.rewards.astype(np.float32),
        )
        self.task = Task(
            Finite(family.states, family.actions, horizon),
            FedAvg(),
            PolicyOptimisation(hidden=(), discount=float(family.gamma), **learner),
            CriticSettings(hidden=()),
        )
        nothing = Sharing(observations=NONE, rewards=NONE)
        model, self.client = first_states(self.task, nothing, jax.random.key(0))
        network = eqx.tree_at(lambda n: n.weights, model.policy.network, (_logits(policy),))
        self.model: Model = eqx.tree_at(lambda m: m.policy.network, model, network)

    def measure(self, work: Measure, key: Any) -> dict[int, Measurement]:
        """What every agent answers."""
        return self._asked(_measure, work, key)

    def trajectories(self, work: Measure, key: Any) -> dict[int, Trajectories]:
        """What every agent has seen when it answers."""
        return self._asked(_collect, work, key)

    def _asked(self, ask: Callable[..., Any], work: Measure, key: Any) -> dict[int, Any]:
        found = {}
        for n in range(self.agents):
            source = Traced(self.task.world, jax.tree.map(lambda x, n=n: x[n], self.tables))
            start = Start(self.model, self.client, jax.random.fold_in(key, n))
            found[n] = jax.device_get(ask(work, self.task, start, source))
        return found


@jax.jit
def _measure(work: Measure, task: Task, start: Start, source: Traced) -> Measurement:
    return work(task, start, source)[0]


@jax.jit
def _collect(work: Measure, task: Task, start: Start, source: Traced) -> Trajectories:
    return source.collect(work.behaviour(task, start), work.trajectories, start.key)


def _logits(policy: np.ndarray) -> np.ndarray:
    return np.log(policy).astype(np.float32)
