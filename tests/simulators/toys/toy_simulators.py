"""Simulators so simple that what they do is known, and that come to harm when told to.

They live in a folder of their own, which the fixture `toys` puts where workers find it.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np

from fedkl.core.errors import UserError
from fedkl.simulators.base import SimulatorError, Step


class Walk:
    """Agents that drift with their actions and with noise; rewarded by where they are.

    Args:
        agents: how many.
        ends: the step that truly ends an episode; 0: none does.
        cuts: the step after which the simulator itself cuts it off; 0: none.
        leaves: the step that ends an episode for each of the agents alone; empty: for none.
        mishap: what happens in step 3: `die`, `hang`, `lose`, `bug` or `mistake`.
        tickets: a folder; a mishap uses up one file in it, and without files there is none.
            Without a folder it happens every time.
    """

    def __init__(self, agents=2, ends=0, cuts=0, leaves=(), mishap="", tickets=""):
        self.agents = agents
        self._ends = ends
        self._cuts = cuts
        self._leaves = leaves
        self._mishap = mishap
        self._tickets = tickets

    def reset(self, seed, params=None):
        self._random = seed.generator()
        self._state = self._random.standard_normal((self.agents, 2)).astype(np.float32)
        self._time = 0
        return self._state.copy()

    def step(self, actions):
        self._time += 1
        if self._mishap and self._time == 3 and self._allowed():
            getattr(self, f"_{self._mishap}")()
        noise = self._random.standard_normal(self._state.shape).astype(np.float32)
        self._state = np.tanh(self._state + actions + noise / 10)
        ended = self._time == self._ends
        if self._leaves:
            ended = np.array([self._time >= step for step in self._leaves])
        return Step(
            self._state.copy(), self._state.sum(axis=1), ended, bool(self._time == self._cuts)
        )

    def picture(self):
        return self._state.ravel()

    def _allowed(self):
        if not self._tickets:
            return True
        for ticket in Path(self._tickets).iterdir():
            try:
                ticket.unlink()
            except FileNotFoundError:
                continue
            return True
        return False

    def _die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _hang(self):
        time.sleep(1000)

    def _lose(self):
        raise SimulatorError("a walker is lost")

    def _bug(self):
        raise ZeroDivisionError("the walker's own")

    def _mistake(self):
        raise UserError("the walker's shoes are untied")


class Points:
    """`probe-point` for several agents at once: one step, reward -(action - target)^2."""

    def __init__(self, targets):
        self.agents = len(targets)
        self._targets = np.array(targets, np.float32)

    def reset(self, seed, params=None):
        return np.ones((self.agents, 1), np.float32)

    def step(self, actions):
        reward = -np.square(actions[:, 0] - self._targets)
        return Step(np.ones((self.agents, 1), np.float32), reward, True)

    def picture(self):
        return self._targets


class Point:
    """`probe-point` for one agent, whose target is in the params.

    Args:
        length: the step that truly ends an episode.
    """

    agents = 1

    def __init__(self, length=1):
        self._length = length

    def reset(self, seed, params=None):
        self._target = params["target"]
        self._time = 0
        return np.ones((1, 1), np.float32)

    def step(self, actions):
        self._time += 1
        reward = -np.square(actions[:, 0] - self._target)
        return Step(np.ones((1, 1), np.float32), reward, self._time == self._length)

    def picture(self):
        return np.array([self._target, self._time], np.float32)


class Buttons:
    """One agent that is paid the number of the button it presses; observes its last payment.

    Args:
        length: the step that truly ends an episode.
    """

    agents = 1

    def __init__(self, length=3):
        self._length = length

    def reset(self, seed, params=None):
        self._time = 0
        return np.full((1, 1), seed.number() % 100, np.float32)

    def step(self, actions):
        self._time += 1
        seen = np.array(actions, np.float32)[:, None]
        return Step(seen, float(actions[0]), self._time == self._length)

    def picture(self):
        return np.zeros(0)


class Counter:
    """Counts the episodes it was used for, and so is not fit to be used again."""

    agents = 1

    def __init__(self):
        self._episodes = 0

    def reset(self, seed, params=None):
        self._episodes += 1
        return np.full((1, 1), self._episodes, np.float32)

    def step(self, actions):
        return Step(np.full((1, 1), self._episodes, np.float32), 0.0, False)

    def picture(self):
        return np.zeros(0)


def refuses():
    raise UserError("there is no road to walk on")


def breaks():
    raise RuntimeError("no legs")


class Unlucky(Walk):
    """Loses a walker in every episode whose seed was not folded by the pool."""

    def reset(self, seed, params=None):
        self._mishap = "lose" if len(seed.numbers) < 2 else ""
        return super().reset(seed, params)
