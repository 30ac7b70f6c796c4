"""A PettingZoo environment whose agents leave one by one."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Leaving(ParallelEnv):
    """Agents that drift with their actions; each is gone after a step of its own.

    Args:
        leaves: that step of each agent.
        cuts: the step after which all that are left are cut off; 0: none.
        unequal: which spaces differ between agents: "", "seen" or "acted".
        what: what goes wrong in step 2: "", "raise" or "nan".
        limit: whether there is a `max_cycles`.
    """

    metadata = {"name": "leaving_v0"}  # noqa: RUF012 (PettingZoo's own form)

    def __init__(self, leaves=(2, 4, 3), cuts=0, unequal="", what="", limit=True):
        self.possible_agents = [f"walker_{n}" for n in range(len(leaves))][::-1]
        self.agents = []
        self._leaves = dict(zip(self.possible_agents, leaves, strict=True))
        self._cuts = cuts
        self._unequal = unequal
        self._what = what
        if limit:
            self.max_cycles = 6

    def observation_space(self, agent):
        last = agent == self.possible_agents[-1] and self._unequal == "seen"
        return spaces.Box(-1, 1, (3 if last else 2,), np.float32)

    def action_space(self, agent):
        last = agent == self.possible_agents[-1] and self._unequal == "acted"
        return spaces.Box(-3 if last else -1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        self._random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._time = 0
        self._state = {agent: self._random.uniform(-1, 1, 2) for agent in self.agents}
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert actions.keys() == set(self.agents)
        self._time += 1
        if self._what == "raise" and self._time == 2:
            raise KeyError("lost")
        for agent, action in actions.items():
            self._state[agent] = np.tanh(self._state[agent] + action)
        if self._what == "nan" and self._time == 2:
            self._state[self.agents[0]][:] = np.nan
        seen = self._seen()
        rewards = {agent: float(np.nan_to_num(self._state[agent]).sum()) for agent in self.agents}
        ended = {agent: self._time >= self._leaves[agent] for agent in self.agents}
        cut = {agent: self._time == self._cuts for agent in self.agents}
        infos = {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (ended[agent] or cut[agent])]
        return seen, rewards, ended, cut, infos

    def _seen(self):
        return {agent: self._state[agent].astype(np.float32) for agent in self.agents}


def parallel_env(nameless=False, **arguments):
    env = Leaving(**arguments)
    if nameless:
        del env.possible_agents
    return env
