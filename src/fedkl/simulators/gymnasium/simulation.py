"""One Gymnasium environment as a simulator of one agent."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8
from numpy import vdot

from fedkl.core.errors import UserError
from fedkl.simulators.base import Outcomes, Seed, Step, environment_error, step_each
from fedkl.simulators.gymnasium import pictures, registration
from fedkl.simulators.gymnasium.initial_state import InitialState
from fedkl.simulators.gymnasium.physics import Physics
from fedkl.simulators.gymnasium.quantities import Quantity
from fedkl.simulators.spaces import Box, Numbers, ObservationFlattener, actions_of, actuator_of


class GymnasiumFacts(NamedTuple):
    """Spaces, limit and parameters of an environment."""

    observation_size: int
    actions: Box | Numbers
    limit: int | None
    """Steps in an episode; None: Gymnasium sets no limit."""
    clean: bool
    """True if it is known that an environment may be used again, and never truncates by itself."""
    parameters: dict[str, Quantity]
    unseen: tuple[str, ...] = ()
    """Parameters that wrappers rule out, because they would not see what these change."""
    frames_per_second: float | None = None
    """At which it wants to be shown, if it says."""


def examine(id: str, arguments: Mapping[str, Any], raw: tuple[str, ...] = ()) -> GymnasiumFacts:
    """Make an environment once, and read its spaces and parameters.

    Args:
        id: as Gymnasium registered it.
        arguments: of its constructor.
        raw: names of quantities that no parameter is for (`quantities.RAW`); those that it does not
            have are left out.

    Raises:
        UserError: there is none, it cannot be made here, or its spaces are not for us.
    """
    spec = registration.find(id)
    env = registration.make(spec, arguments)
    who = f"world.id: the environment {spec.id}"
    size = ObservationFlattener(env.observation_space, who).size
    actions = actions_of(env.action_space, who)
    physics, initial = Physics(env.unwrapped), InitialState(env.unwrapped)
    parameters = physics.parameters | initial.parameters
    parameters |= {name: found for name in raw if (found := physics.raw(name)) is not None}
    unseen = initial.placed if env is not env.unwrapped else ()
    parameters = {name: found for name, found in parameters.items() if name not in unseen}
    return GymnasiumFacts(
        observation_size=size,
        actions=actions,
        limit=spec.max_episode_steps,
        clean=registration.is_clean(spec),
        parameters=parameters,
        unseen=unseen,
        frames_per_second=pictures.frames_per_second(env),
    )


class Environment:
    """An environment that is made once, and becomes another client's by its params."""

    agents = 1

    def __init__(self, id: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Args:
        id: as Gymnasium registered it.
        arguments: of its constructor.

        Raises:
            UserError: it cannot be made.
        """
        self._spec = registration.find(id)
        self._who = f"the environment {self._spec.id}"
        self._arguments = dict(arguments or {})
        self._made_with: dict[str, Any] = {}
        self._params: Any = None
        self._distortion: Distortion | None = None
        self._steps = 0
        self._make(self._arguments)

    def reset(self, seed: Seed, params: Any = None) -> Float[np.ndarray, "1 o"]:
        """Start an episode of the client whose row the params are.

        Raises:
            UserError: the environment failed.
        """
        if params is not self._params:
            if params or self._params:
                self._become(params or {})
            self._params = params
        self._steps = 0
        random = seed.fold(3).generator() if self._draws else None
        try:
            self._cure()
            observation, _ = self._env.reset(seed=seed.number(), options=self._options)
            if self._moves:
                assert random is not None
                observation = self._initial.place(self._params, random)
        except Exception as error:
            raise environment_error(self._who, error, self._steps) from error
        seen = self._look(observation)
        if self._distortion is not None:
            assert random is not None
            self._distortion.begin(random)
            seen = self._distortion.seen(seen)
        return seen[None]

    def step(self, actions: Float[np.ndarray, "1 a"] | Int[np.ndarray, " 1"]) -> Step:
        """Let the agent act.

        Raises:
            UserError: the environment failed.
        """
        self._steps += 1
        action = actions[0]
        if self._distortion is not None:
            action = self._distortion.acted(action)
        try:
            observation, reward, terminated, truncated, _ = self._env.step(self._act(action))
            reward = float(reward)
        except Exception as error:
            raise environment_error(self._who, error, self._steps) from error
        if not isfinite(reward):
            raise self._unpayable(reward)
        seen = self._look(observation)
        if self._distortion is not None:
            seen = self._distortion.seen(seen)
        return Step(seen[None], reward, bool(terminated), bool(truncated))

    def step_all(
        self,
        several: Sequence[Environment],
        columns: Sequence[int],
        actions: Shaped[np.ndarray, "1 c *a"],
        following: Float[np.ndarray, "1 c o"],
    ) -> Outcomes:
        """Return the agent acts in some columns; limits of actions, and finiteness, are seen to at
        once.

        Raises:
            UserError: an environment failed.
        """
        if self._distortion is not None or not self._flatten.plain:
            return step_each(several, columns, actions, following)
        acts, seen, size = self._act(actions[0]), following[0], self._flatten.size
        rewards, ended = outcomes = Outcomes([], [])
        for c in columns:
            one = several[c]
            one._steps += 1
            try:
                observation, reward, terminated, truncated, _ = one._env.step(acts[c])
                if len(observation) != size:
                    self._flatten(observation)
                seen[c] = observation
                reward = float(reward)
            except Exception as error:
                raise environment_error(self._who, error, one._steps) from error
            if not isfinite(reward):
                raise self._unpayable(reward)
            rewards.append(reward)
            if terminated or truncated:
                ended.append((c, bool(terminated), bool(truncated)))
        # As in `ObservationFlattener`, but once for all. A sum of squares is finite only if all
        # numbers are; if it is not, they may still be.
        if not isfinite(vdot(seen, seen)):
            for c in columns:
                several[c]._look(seen[c])
        return outcomes

    def prepare_pictures(self) -> None:
        """Become an environment that renders to an array, and stay one: it costs nothing else.

        Raises:
            UserError: it cannot.
        """
        if self._arguments.get("render_mode") == pictures.MODE:
            return
        pictures.require_frames(self._env, self._who)
        self._arguments["render_mode"] = pictures.MODE
        self._params = None
        self._make(self._arguments)

    def picture(self) -> UInt8[np.ndarray, " p"]:
        """Return the frame of this moment, compressed.

        Raises:
            UserError: it cannot be rendered here.
        """
        return pictures.render(self._env, self._who)

    def _look(self, observation: Any) -> Float[np.ndarray, " o"]:
        try:
            return self._flatten(observation)
        except Exception as error:
            raise environment_error(self._who, error, self._steps) from error

    def _unpayable(self, reward: SupportsFloat) -> UserError:
        mistake = UserError(f"{self._who} returned a reward of {reward}")
        return environment_error(self._who, mistake, self._steps)

    def _make(self, arguments: dict[str, Any]) -> None:
        self._env = registration.make(self._spec, arguments)
        registration.silence_mujoco()
        self._made_with = arguments
        self._bare: Any = self._env.unwrapped
        self._physics = Physics(self._bare)
        self._initial = InitialState(self._bare)
        self._flatten = ObservationFlattener(self._env.observation_space, self._who)
        self._act = actuator_of(self._env.action_space, self._who)
        self._options: dict[str, Any] | None = None
        self._moves = self._draws = False

    def _become(self, params: Mapping[str, Any]) -> None:
        """Set the environment to a client's params."""
        arguments = self._arguments | self._physics.arguments(params)
        if arguments != self._made_with:
            before = self._spaces()
            self._make(arguments)
            for now, then in zip(self._spaces(), before, strict=True):
                if now != then:
                    raise UserError(
                        f"{self._who} has {now} for one client and {then} for another: "
                        "world.clients must leave its spaces as they are"
                    )
        self._physics.apply(params)
        # A motor's limits may be among what was changed.
        self._act = actuator_of(self._env.action_space, self._who)
        self._options = self._initial.options(params)
        self._moves = self._initial.moves(params)
        self._distortion = Distortion(params) if params.keys() & set(PARAMETERS) else None
        self._draws = self._moves or self._distortion is not None

    def _spaces(self) -> tuple[str, str]:
        """Return the spaces that all clients must share, as text; limits of actions may differ."""
        actions = actions_of(self._env.action_space, self._who)
        what = "discrete actions" if isinstance(actions, Numbers) else "numbers in an action"
        return f"{self._flatten.size} numbers in an observation", f"{actions.size} {what}"

    def _cure(self) -> None:
        """Give BipedalWalker a new world: contacts of the last episode stay behind in its own."""
        if type(self._bare).__name__ != "BipedalWalker":
            return
        import Box2D

        self._bare._destroy()
        self._bare.world = Box2D.b2World()


PARAMETERS = ("action_delay", "action_offset", "action_noise", "observation_noise")


class Distortion:
    """Delay, offset and noise between a policy and its environment.

    Actions come late, then an offset and noise are added to them, as in
    `fedkl.worlds.distorted`. Until the first action has arrived, zeros act.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Args:
        params: a client's row; parameters that it does not have do nothing.
        """
        self._delay = int(params.get("action_delay", 0))
        offset = params.get("action_offset")
        self._offset = None if offset is None else np.asarray(offset, np.float32)
        self._action_noise = float(params.get("action_noise", 0.0))
        self._observation_noise = float(params.get("observation_noise", 0.0))
        self._waiting: deque[Any] = deque()
        self._random = np.random.default_rng(0)

    def begin(self, random: np.random.Generator) -> None:
        """Start an episode, with nothing on its way."""
        self._random = random
        self._waiting.clear()

    def acted(self, action: Any) -> Any:
        """Return the action that reaches the environment."""
        if self._delay:
            self._waiting.append(action)
            late = len(self._waiting) > self._delay
            action = self._waiting.popleft() if late else np.zeros_like(action)
        if self._offset is not None:
            action = action + self._offset
        if self._action_noise:
            noise = self._random.standard_normal(action.shape, np.float32)
            action = action + np.float32(self._action_noise) * noise
        return action

    def seen(self, observation: Float[np.ndarray, " o"]) -> Float[np.ndarray, " o"]:
        """Return the observation that the policy sees."""
        if not self._observation_noise:
            return observation
        noise = self._random.standard_normal(observation.shape, np.float32)
        return observation + np.float32(self._observation_noise) * noise
