"""Sources of a client's episodes: a world inside jit, a simulator on the host, or all worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from fedkl.clients.behaviour import Behaviour, actors, seeds_of
from fedkl.core.errors import UserError
from fedkl.io.arrays import AnyArray, Array
from fedkl.learning.trajectories import Trajectories, columns_for, first
from fedkl.simulators.actors import Actor
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import Columns, EpisodeJob
from fedkl.simulators.pool import Workers
from fedkl.worlds.base import AnyWorld, HostedWorld, World


class Recording(NamedTuple):
    """One episode to look at: its states from the first to the last, and the rewards between."""

    states: PyTree
    """Every leaf with the h + 1 states along its first axis."""
    reward: Float[AnyArray, " h"]
    mask: Bool[AnyArray, " h"]
    """True for the steps before its end."""
    params: PyTree
    """Of the world it happened in (None in a shared one)."""


@runtime_checkable
class Source(Protocol):
    """Episodes of one client's world."""

    def collect(self, behaviour: Behaviour, episodes: int, key: PRNGKeyArray) -> Trajectories:
        """Run `episodes` whole episodes; `key` is for everything random in them."""

    def fill(self, behaviour: Behaviour, steps: int, key: PRNGKeyArray) -> Trajectories:
        """Run exactly `steps` steps, in columns as long as the time limit, one after the other.

        After an episode's end the next one begins in the same column; where the column or the steps
        end, it is cut.
        """

    def record(self, behaviour: Behaviour, key: PRNGKeyArray) -> Recording:
        """One episode with all its states."""


Act = Callable[[Float[Array, "n o"], PRNGKeyArray], Array]


class Traced(eqx.Module):
    """One client's world: pure functions and that client's row of params."""

    world: World
    params: PyTree

    def collect(self, behaviour: Act, episodes: int, key: PRNGKeyArray) -> Trajectories:
        """Run `episodes` whole episodes at once.

        Args:
            behaviour: maps a batch of observations and a key to a batch of actions.
            episodes: how many.
            key: for everything random in it.
        """
        reset_key, step_key = jax.random.split(key)
        params, axis = self._params_of(episodes, key)
        state, observation = jax.vmap(self.world.reset, in_axes=(axis, 0))(
            params, jax.random.split(reset_key, episodes)
        )

        def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            state, observation, alive = carry
            act_key, world_key = jax.random.split(key)
            # What is left out by a weight of 0 must be finite: 0 times NaN is NaN.
            observation = jnp.where(alive[:, None], observation, 0.0)
            action = behaviour(observation, act_key)
            next_state, next_observation, reward, terminated = jax.vmap(
                self.world.step, in_axes=(axis, 0, 0, 0)
            )(params, state, action, jax.random.split(world_key, episodes))
            reward = jnp.where(alive, reward, 0.0)
            seen = (observation, action, reward, terminated & alive, alive)
            return (next_state, next_observation, alive & ~terminated), seen

        start = (state, observation, jnp.ones(episodes, bool))
        keys = jax.random.split(step_key, self.world.horizon)
        (_, last_observation, _), seen = jax.lax.scan(one_step, start, keys)
        observation, action, reward, terminated, alive = seen
        return Trajectories(observation, action, reward, terminated, alive, last_observation)

    def fill(self, behaviour: Act, steps: int, key: PRNGKeyArray) -> Trajectories:
        """Run exactly `steps` steps, in columns as long as the time limit.

        Args:
            behaviour: maps a batch of observations and a key to a batch of actions.
            steps: how many.
            key: for everything random in it.
        """
        rows, columns = self.world.horizon, columns_for(self.world, steps)
        data = self._columns(behaviour, columns, key)
        counted = first(steps, rows, columns)
        # The last column may be cut before its last row: what is seen there comes after it.
        if left := steps % rows:
            after = data.last_observation.at[-1].set(data.observation[left, -1])
            data = data._replace(last_observation=after)
        return data._replace(mask=counted, terminated=data.terminated & counted)

    def _columns(self, behaviour: Act, columns: int, key: PRNGKeyArray) -> Trajectories:
        """Return columns without gaps: after an end the next episode begins."""
        if not self.world.terminates:
            return self.collect(behaviour, columns, key)
        params, axis = self._params_of(columns, key)
        reset = jax.vmap(self.world.reset, in_axes=(axis, 0))
        step = jax.vmap(self.world.step, in_axes=(axis, 0, 0, 0))
        reset_key, step_key = jax.random.split(key)

        def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            state, observation = carry
            act_key, world_key, again_key = jax.random.split(key, 3)
            action = behaviour(observation, act_key)
            moved = step(params, state, action, jax.random.split(world_key, columns))
            new = reset(params, jax.random.split(again_key, columns))
            over = moved.terminated
            following = jax.tree.map(
                lambda a, b: jnp.where(over.reshape(-1, *[1] * (a.ndim - 1)), a, b),
                new,
                (moved.state, moved.observation),
            )
            return following, (observation, action, moved.reward, over)

        start = reset(params, jax.random.split(reset_key, columns))
        keys = jax.random.split(step_key, self.world.horizon)
        (_, last), (observation, action, reward, over) = jax.lax.scan(one_step, start, keys)
        return Trajectories(observation, action, reward, over, jnp.ones_like(over), last)

    def _params_of(self, columns: int, key: PRNGKeyArray) -> tuple[PyTree, int | None]:
        """The params of each column's world, and the axis along which columns have their own."""
        return self.params, None

    def record(self, behaviour: Act, key: PRNGKeyArray) -> Recording:
        """One episode with all its states, to the horizon."""
        reset_key, step_key = jax.random.split(key)
        state, observation = self.world.reset(self.params, reset_key)

        def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            state, observation, alive = carry
            act_key, world_key = jax.random.split(key)
            action = behaviour(observation[None], act_key)[0]
            next_state, next_observation, reward, terminated = self.world.step(
                self.params, state, action, world_key
            )
            return (next_state, next_observation, alive & ~terminated), (next_state, reward, alive)

        start = (state, observation, jnp.asarray(True))
        keys = jax.random.split(step_key, self.world.horizon)
        states, reward, alive = jax.lax.scan(one_step, start, keys)[1]
        everything = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state, states)
        return Recording(everything, reward, alive, self.params)


COLUMNS_IN_A_JOB = (8, 16)
"""As many as make a job for each core, within these limits. A call of the policy costs little more
for eight observations than for one, and for sixteen than for eight; more of them would save less,
and leave fewer jobs to share. What comes of a column does not depend on it."""


class Hosted:
    """One client's own simulator: its row of params, and the processes that simulate it."""

    def __init__(
        self, workers: Workers, params: PyTree, horizon: int, truncates: bool = False
    ) -> None:
        """Args:
        workers: the processes, which clients take turns with.
        params: the client's row of the world's params.
        horizon: steps in an episode.
        truncates: whether the simulator may cut episodes off by itself.
        """
        self._workers = workers
        self._params = jax.device_get(params)
        self._horizon = horizon
        self._truncates = truncates

    def collect(self, behaviour: Behaviour, episodes: int, key: PRNGKeyArray) -> Trajectories:
        """Run `episodes` episodes, some in each process."""
        return self._run(self._jobs(behaviour, [self._horizon] * episodes, key))

    def fill(self, behaviour: Behaviour, steps: int, key: PRNGKeyArray) -> Trajectories:
        """Run exactly `steps` steps: columns in which one episode follows the other."""
        jobs = self._jobs(behaviour, lengths_for(steps, self._horizon), key)
        return self._run([job._replace(refill=True) for job in jobs])

    def record(self, behaviour: Behaviour, key: PRNGKeyArray) -> Recording:
        """One episode with what pictures are drawn from."""
        (job,) = self._jobs(behaviour, [self._horizon], key)
        (episode,) = self._workers.run([job._replace(pictures=True)])
        return recording(episode, 0, job.params)

    def _jobs(
        self, behaviour: Behaviour, lengths: Sequence[int], key: PRNGKeyArray
    ) -> list[EpisodeJob]:
        stacked, words = _plan(behaviour, key)
        (seed,) = seeds_of(words)
        seeds = [seed.fold(column) for column in range(len(lengths))]
        (actor,) = actors(stacked, [[s.fold(1) for s in seeds]])
        return [
            EpisodeJob(
                seeds=tuple(seeds[column] for column in part),
                actors=[actor._replace(seeds=tuple(actor.seeds[column] for column in part))],
                lengths=tuple(lengths[column] for column in part),
                params=params,
            )
            for part, params in self._parts(len(seeds), seed)
        ]

    def _parts(self, columns: int, seed: Seed) -> list[tuple[Int[np.ndarray, " c"], PyTree]]:
        """The columns of each job, and the params of their world."""
        most, fewest = (-(-columns // number) for number in COLUMNS_IN_A_JOB)
        jobs = min(most, max(fewest, self._workers.number))
        return [(part, self._params) for part in np.array_split(np.arange(columns), jobs)]

    def _run(self, jobs: list[EpisodeJob]) -> Trajectories:
        done = self._workers.run(jobs)
        found = trajectories(done, [0], self._horizon, self._truncates)
        return jax.tree.map(lambda x: x[0], found)


def source_of(world: AnyWorld, params: PyTree, workers: Workers | None, pooled: bool) -> Source:
    """Make the source of a client's episodes.

    Args:
        world: the client's.
        params: its row of the world's params; those of all clients, stacked, if data are pooled.
        workers: the processes that simulate a world on the host; None: JAX steps it.
        pooled: whether it works in the worlds of all clients.
    """
    if workers is None:
        assert isinstance(world, World)
        return (PooledTraced if pooled else Traced)(world, params)
    assert isinstance(world, HostedWorld)
    return (PooledHosted if pooled else Hosted)(workers, params, world.horizon, world.truncates)


def lengths_for(steps: int, horizon: int) -> list[int]:
    """The lengths of the columns that hold exactly `steps` steps: all but the last are full.

    Example:
        >>> lengths_for(250, 100)
        [100, 100, 50]
    """
    full, rest = divmod(steps, horizon)
    return [horizon] * full + [rest] * (rest > 0)


def trajectories(
    parts: Sequence[Columns], agents: Sequence[int], rows: int, truncates: bool
) -> Trajectories:
    """Stack trajectories of some agents by agent.

    Args:
        parts: the results of the jobs.
        agents: which of them.
        rows: how long the columns are to be; what is added counts for nothing.
        truncates: whether the world's simulator may cut episodes off by itself. What JAX compiles
            depends on it, so it is a property of the world and not of the data.

    Raises:
        UserError: the simulator did what the world says that it does not.
    """

    def joined(arrays: Sequence[Shaped[np.ndarray, "_ n _ *f"]]) -> Any:
        """Join columns; axes: agent, row, column."""
        padded = [_padded(x[:, agents], rows) for x in arrays]
        return np.moveaxis(padded[0] if len(padded) == 1 else np.concatenate(padded, 2), 1, 0)

    def each(name: str) -> Any:
        return joined([getattr(part, name) for part in parts])

    if not truncates and any(part.truncated.any() for part in parts):
        raise UserError(
            "the simulator cut an episode off by itself (`truncated`); its world must say that "
            "this may happen: `truncates = True`"
        )
    after = [np.zeros_like(p.observation) if p.after is None else p.after for p in parts]
    last: Any = np.concatenate([part.last_observation[agents] for part in parts], axis=1)
    return Trajectories(
        observation=each("observation"),
        action=each("action"),
        reward=each("reward"),
        terminated=each("terminated"),
        mask=each("mask"),
        last_observation=last,
        truncated=each("truncated") if truncates else None,
        after=joined(after) if truncates else None,
    )


def recording(episode: Columns, agent: int, params: PyTree) -> Recording:
    """An episode to look at, with the rewards of one agent."""
    return Recording(
        episode.pictures, episode.reward[:, agent, 0], episode.mask[:, agent, 0], params
    )


def _padded(x: Shaped[np.ndarray, "_ n c *f"], rows: int) -> Shaped[np.ndarray, "h n c *f"]:
    if len(x) == rows:
        return x
    return np.pad(x, [(0, rows - len(x))] + [(0, 0)] * (x.ndim - 1))


@jax.jit
def _plan(behaviour: Behaviour, key: PRNGKeyArray) -> tuple[Actor, Array]:
    """The actor, as a stack of one, and the words of the key: in one call, which is cheaper."""
    return jax.tree.map(lambda x: x[None], behaviour.actor()), jax.random.key_data(key)


WHOSE = 2
"""Folded into the key that worlds are drawn by; what it is split into for episodes is 0 and 1."""


class PooledTraced(Traced):
    """Worlds inside jit; `params` are those of all clients, stacked."""

    def _params_of(self, columns: int, key: PRNGKeyArray) -> tuple[PyTree, int]:
        key = jax.random.fold_in(key, WHOSE)
        drawn = jax.random.randint(key, (columns,), 0, _clients(self.params))
        return jax.tree.map(lambda x: x[drawn], self.params), 0

    def record(self, behaviour: Act, key: PRNGKeyArray) -> Recording:
        """One episode in one of the worlds."""
        drawn, _ = self._params_of(1, key)
        one = Traced(self.world, jax.tree.map(lambda x: x[0], drawn))
        return one.record(behaviour, key)


class PooledHosted(Hosted):
    """Simulators on the host; `params` are those of all clients, stacked."""

    def _parts(self, columns: int, seed: Seed) -> list[tuple[Int[np.ndarray, " c"], PyTree]]:
        random = seed.fold(columns, WHOSE).generator()
        drawn = random.integers(_clients(self._params), size=columns)
        parts = []
        for client in np.unique(drawn).tolist():
            own = np.flatnonzero(drawn == client)
            params = jax.tree.map(lambda x, client=client: x[client], self._params)
            jobs = -(-len(own) // max(COLUMNS_IN_A_JOB))
            parts += [(part, params) for part in np.array_split(own, jobs)]
        return parts


def _clients(params: PyTree) -> int:
    """The number of clients in stacked params; 1 where worlds have no params."""
    return max((len(x) for x in jax.tree.leaves(params)), default=1)
