"""Any PettingZoo environment whose agents act at once and are of one kind, as a simulator."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fedkl.core.errors import UserError
from fedkl.core.own_code import explained
from fedkl.core.text import one_line
from fedkl.simulators.base import Seed, Step, environment_error
from fedkl.simulators.spaces import Box, Numbers, ObservationFlattener, actions_of, actuator_of


class PettingZooFacts(NamedTuple):
    """Spaces, limit and agents of an environment."""

    agents: int
    observation_size: int
    actions: Box | Numbers
    limit: int | None
    """Steps in an episode, as far as the environment says."""


def make(module: str, arguments: Mapping[str, Any]) -> Any:
    """Make the parallel environment of a module.

    Raises:
        UserError: there is none, or it cannot be made.
    """
    # Many of these environments import pygame, which greets on the terminal.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = importlib.import_module(module)
        except Exception as error:
            sentence = f"world.module: {module} cannot be imported: {one_line(error)}"
            raise explained(sentence, error) from error
        if not callable(function := getattr(found, "parallel_env", None)):
            raise UserError(f"world.module: {module} has no parallel_env, which PettingZoo's have")
        try:
            return function(**arguments)
        except Exception as error:
            sentence = f"world.module: the environment {module} cannot be made: {one_line(error)}"
            raise explained(sentence, error) from error


def examine(module: str, arguments: Mapping[str, Any]) -> PettingZooFacts:
    """Make an environment once, and read its spaces and agents.

    Raises:
        UserError: it cannot be made here, names no agents, or they are not of one kind.
    """
    env, who = make(module, arguments), f"world.module: the environment {module}"
    if not (agents := list(getattr(env, "possible_agents", None) or ())):
        raise UserError(f"{who} names no agents in possible_agents, which PettingZoo's do")
    first, *others = agents
    size = ObservationFlattener(env.observation_space(first), who).size
    actions = actions_of(env.action_space(first), who)
    for other in others:
        unequal = ObservationFlattener(env.observation_space(other), who).size != size
        if unequal or env.action_space(other) != env.action_space(first):
            raise UserError(
                f"{who} has agents with different spaces ({first} and {other}), and one policy "
                "cannot serve both"
            )
    limit = getattr(env.unwrapped, "max_cycles", None)
    return PettingZooFacts(len(agents), size, actions, limit if isinstance(limit, int) else None)


class ParallelEnvironment:
    """An environment whose agents are numbered as in its `possible_agents`."""

    def __init__(self, module: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Args:
        module: that has a `parallel_env`.
        arguments: of that.

        Raises:
            UserError: it cannot be made.
        """
        self._env = make(module, arguments or {})
        self._who = f"the environment {module}"
        self._names = list(self._env.possible_agents)
        first = self._names[0]
        self._flatten = ObservationFlattener(self._env.observation_space(first), self._who)
        self._act = actuator_of(self._env.action_space(first), self._who)
        self._steps = 0
        self.agents = len(self._names)

    def reset(self, seed: Seed, params: Any = None) -> Float[np.ndarray, "n o"]:
        """Start an episode of all agents.

        Raises:
            UserError: the environment failed.
        """
        self._steps = 0
        try:
            observations, _ = self._env.reset(seed=seed.number())
            return self._seen(observations)
        except Exception as error:
            raise environment_error(self._who, error, self._steps) from error

    def step(self, actions: Float[np.ndarray, "n a"] | Int[np.ndarray, " n"]) -> Step:
        """Let all agents that are left act.

        Raises:
            UserError: the environment failed.
        """
        self._steps += 1
        left = set(self._env.agents)
        acts = {n: self._act(a) for n, a in zip(self._names, actions, strict=True) if n in left}
        try:
            observations, rewards, terminated, truncated, _ = self._env.step(acts)
            seen = self._seen(observations)
            paid = np.array([rewards.get(name, 0.0) for name in self._names], np.float32)
        except Exception as error:
            raise environment_error(self._who, error, self._steps) from error
        if not np.isfinite(paid).all():
            mistake = UserError(f"{self._who} returned a reward that is not finite")
            raise environment_error(self._who, mistake, self._steps)
        return Step(seen, paid, self._each(terminated, True), self._each(truncated, False))

    def picture(self) -> Float[np.ndarray, " 0"]:
        """Return nothing: there is no renderer."""
        return np.zeros(0, np.float32)

    def _seen(self, observations: Mapping[str, Any]) -> Float[np.ndarray, "n o"]:
        """Return every agent's observation; zeros for those that are gone."""
        rows = np.zeros((self.agents, self._flatten.size), np.float32)
        for n, name in enumerate(self._names):
            if name in observations:
                rows[n] = self._flatten(observations[name])
        return rows

    def _each(self, flags: Mapping[str, bool], gone: bool) -> bool | Bool[np.ndarray, " n"]:
        """Return the flags of all agents; False where there are none, which costs less than an
        array."""
        each = np.array([bool(flags.get(name, gone)) for name in self._names])
        return each if each.any() else False
