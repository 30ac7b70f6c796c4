"""Gymnasium environments that do something wrong, or unusual. As a plugin it registers them."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

UNIT = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Toy(gymnasium.Env):
    """Drifts with its actions; rewarded by where it is.

    Args:
        what: what is unusual in step 3, or in a space.
        length: the step that ends an episode truly; 0: none does.
        cuts: the step after which it truncates by itself; 0: none.
    """

    def __init__(self, what="", length=0, cuts=0):
        self._what = what
        self._length = length
        self._cuts = cuts
        self._episodes = 0
        self.gain = 0.1
        self.state = np.zeros(2)
        self.observation_space = {
            "dict": spaces.Dict({"a": UNIT, "b": spaces.Discrete(3)}),
            "discrete": spaces.Discrete(4, start=2),
            "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "grey": spaces.Dict({"a": UNIT, "b": spaces.Box(0, 255, (8, 8), np.uint8)}),
            "text": spaces.Text(5),
            "sequence": spaces.Sequence(UNIT),
        }.get(what, UNIT)
        self.action_space = {
            "multidiscrete": spaces.MultiDiscrete([2, 3]),
            "multibinary": spaces.MultiBinary(2),
            "whole": spaces.Box(0, 5, (2,), np.int32),
            "buttons": spaces.Discrete(3, start=5),
        }.get(what, spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), dtype=np.float64))
        if what == "make":
            raise ValueError("no\nlegs")

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        if self._what == "reset":
            raise RuntimeError("cannot stand up")
        self._episodes += 1
        self._time = 0
        self.state = self.np_random.uniform(-0.1, 0.1, 2)
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._time += 1
        wrong = self._what if self._time == 3 else ""
        if wrong == "raise":
            raise ZeroDivisionError("the toy's own")
        self.state = np.tanh(self.state + self.gain * np.asarray(action, float).ravel()[:1])
        seen = self._seen()
        if wrong == "nan":
            seen = np.full(2, np.nan, np.float32)
        elif wrong == "infinite":
            seen = np.array([np.inf, -np.inf], np.float32)
        elif wrong == "huge":
            seen = np.array([3e38, -3e38], np.float32)
        elif wrong == "shape":
            seen = np.zeros(3, np.float32)
        reward = np.inf if wrong == "reward" else float(self.state.sum())
        ended = self._time == self._length
        return seen, reward, ended, self._time == self._cuts, {}

    def _seen(self):
        if self._what == "leaks":
            return np.full(2, self._episodes, np.float32)
        if self._what == "dict":
            return {"a": self.state.astype(np.float32), "b": self._time % 3}
        if self._what == "discrete":
            return 2 + self._time % 4
        return self.state.astype(np.float32)


class Actions(gymnasium.Env):
    """Pays the sum of an action, whose space is what the constructor is told."""

    observation_space = UNIT

    def __init__(self, buttons=0, size=2, reach=1.0):
        self.action_space = spaces.Box(-reach, reach, (size,), np.float64)
        if buttons:
            self.action_space = spaces.Discrete(buttons)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(np.sum(action)), False, False, {}


def register(name, limit=10, entry_point=Toy, wrappers=(), **arguments):
    id = f"toys/{name}-v0"
    gymnasium.registry.pop(id, None)  # several test files load this one, in the same process
    gymnasium.register(
        id, entry_point, max_episode_steps=limit, additional_wrappers=wrappers, kwargs=arguments
    )


for name in (
    "raise", "nan", "shape", "reward", "reset", "make", "dict", "discrete", "image", "grey", "text",
    "sequence", "multidiscrete", "multibinary", "whole", "buttons", "leaks",
    "infinite", "huge",
):  # fmt: skip
    register(name.capitalize(), what=name)
register("Plain", length=4)
register("Cuts", cuts=3)
register("Endless", limit=None)
register("Actions", entry_point=Actions)
PENDULUM = "gymnasium.envs.classic_control:PendulumEnv"
register("Pendulum", 20, PENDULUM)
WRAPPERS = (TimeLimit.wrapper_spec(max_episode_steps=7),)
register("Short", 20, PENDULUM, WRAPPERS)
register("Cheetah", 20, "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv", WRAPPERS)
