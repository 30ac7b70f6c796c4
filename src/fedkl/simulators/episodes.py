"""Episodes in simulators, several side by side: every agent acts with a policy of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Shaped

from fedkl.simulators.actors import Actor, Actors
from fedkl.simulators.base import Flags, Lockstep, Pictured, Seed, Simulator, step_each


class EpisodeJob(NamedTuple):
    """Columns to be run. They come out the same wherever and however often they are run.

    A column is an episode from its start to its end, or, with `refill`, as many episodes as fill
    it, one after the other. It is a function of its own seed, the actors and the params alone:
    the columns beside it in a job only save time.
    """

    seeds: tuple[Seed, ...]
    """One for each column."""
    actors: list[Actor]
    """One for each agent."""
    lengths: tuple[int, ...]
    """Steps that each column has at the most, or, with `refill`, exactly."""
    refill: bool = False
    """True if the next episode begins in a column when one is over."""
    pictures: bool = False
    """True to keep what pictures are drawn from, of the first column."""
    params: Any = None
    """A client's row of the world's params, which `Simulator.reset` is given. It travels to the
    worker: arrays are NumPy's, and containers are of a module that does not import JAX."""

    def reseeded(self, number: int) -> EpisodeJob:
        """Return the same job with other seeds, which follow from its own."""
        return self._replace(seeds=tuple(seed.fold(0, number) for seed in self.seeds))


class Columns(NamedTuple):
    """Trajectories by row, agent and column. Entries that do not count are zero and false."""

    observation: Float[np.ndarray, "h n c o"]
    action: Shaped[np.ndarray, "h n c *a"]
    reward: Float[np.ndarray, "h n c"]
    terminated: Bool[np.ndarray, "h n c"]
    """True where an agent's episode truly ended with that step."""
    truncated: Bool[np.ndarray, "h n c"]
    """True where a limit of the simulator's own cut it off with that step."""
    mask: Bool[np.ndarray, "h n c"]
    """True for the steps that an agent took part in."""
    last_observation: Float[np.ndarray, "n c o"]
    """After the last step of each column."""
    after: Float[np.ndarray, "h n c o"] | None
    """The observation after a step that is truncated; None if none is."""
    pictures: Shaped[np.ndarray, "f p"] | None

    def returns(self) -> Float[np.ndarray, "n c"]:
        """Return each agent's undiscounted sum of rewards in each column."""
        return self.reward.sum(axis=0, dtype=np.float64)


def run_job(simulators: Sequence[Simulator], job: EpisodeJob) -> Columns:
    """Run the columns of a job side by side, each in a simulator of its own."""
    for simulator in simulators:
        if simulator.agents != len(job.actors):
            raise ValueError(f"{len(job.actors)} actors for {simulator.agents} agents")
    columns = list(range(len(job.seeds)))
    step_all = simulators[0].step_all if isinstance(simulators[0], Lockstep) else step_each
    if job.pictures and isinstance(simulators[0], Pictured):
        simulators[0].prepare_pictures()
    act = Actors(job.actors, job.lengths)
    seen = [s.reset(seed, job.params) for s, seed in zip(simulators, job.seeds, strict=True)]
    rows = max(job.lengths)
    observation = np.zeros((rows + 1, len(job.actors), len(columns), seen[0].shape[-1]), np.float32)
    observation[0] = np.stack(seen, axis=1)
    rows_seen = list(observation)
    span = _Span(columns, [], [])
    spans = [span]
    stops = set(job.lengths)
    pictures = [simulators[0].picture()] if job.pictures else None
    ends = _Ends(job, observation)
    last = np.zeros_like(observation[0])
    for row in range(rows):
        action = act(rows_seen[row], row)
        span.actions.append(action)
        following = rows_seen[row + 1]
        paid, ended = step_all(simulators, columns, action, following)
        span.rewards.append(paid)
        if pictures is not None:
            pictures.append(simulators[0].picture())
        if not ended and row + 1 not in stops:
            continue
        over = {c for c in columns if job.lengths[c] == row + 1}
        for c, terminated, truncated in ended:
            if not ends.add(row, c, terminated, truncated, following):
                continue
            if not job.refill:
                over.add(c)
            elif c not in over:
                following[:, c] = simulators[c].reset(ends.next_seed(row, c), job.params)
        if not over:
            continue
        last[:, list(over)] = following[:, list(over)]
        columns = [c for c in columns if c not in over]
        if not columns:
            break
        span = _Span(columns, [], [])
        spans.append(span)
        width = columns[-1] + 1
        # Not whenever an episode is over: it would take longer than it saves.
        if row + 1 in stops and width < action.shape[1]:
            act.narrow(width)
            rows_seen = list(observation[:, :, :width])
    return Columns(
        observation=_where(ends.mask, observation[:-1]),
        action=_where(ends.mask, _actions(spans, ends.mask.shape)),
        reward=_where(ends.mask, _rewards(spans, ends.mask.shape)),
        terminated=ends.terminated,
        truncated=ends.truncated,
        mask=ends.mask,
        last_observation=last,
        after=ends.after,
        pictures=None if pictures is None else _side_by_side(pictures),
    )


def _side_by_side(pictures: list[Shaped[np.ndarray, " _"]]) -> Shaped[np.ndarray, "f p"]:
    """Stack pictures, those that are shorter with zeros after them."""
    longest = max(map(len, pictures))
    return np.stack([np.pad(picture, (0, longest - len(picture))) for picture in pictures])


class _Ends:
    """The ends of a job's episodes, and the agents that take part in each step."""

    def __init__(self, job: EpisodeJob, observation: Float[np.ndarray, "_ n c o"]) -> None:
        shape = (len(observation) - 1, *observation.shape[1:3])
        self._job = job
        self._width = observation.shape[-1]
        self._begun = [0 for _ in job.seeds]
        self.terminated = np.zeros(shape, bool)
        self.truncated = np.zeros(shape, bool)
        self.after: Any = None
        self.mask = np.arange(shape[0])[:, None, None] < np.array(job.lengths)
        self.mask = np.array(np.broadcast_to(self.mask, shape))

    def add(
        self,
        row: int,
        c: int,
        terminated: Flags,
        truncated: Flags,
        following: Float[np.ndarray, "n c o"],
    ) -> bool:
        """Record the agents that ended with a step; return True if none is left."""
        present = self.mask[row, :, c]
        terminated = present & terminated
        truncated = present & truncated & ~terminated
        self.terminated[row, :, c] = terminated
        self.truncated[row, :, c] = truncated
        if truncated.any():
            if self.after is None:
                self.after = np.zeros((*self.mask.shape, self._width), np.float32)
            self.after[row, truncated, c] = following[truncated, c]
        gone = terminated | truncated
        self.mask[row + 1 :, :, c][:, gone] = False
        return bool(gone[present].all())

    def next_seed(self, row: int, c: int) -> Seed:
        """Let all agents take part again, in an episode that has this seed."""
        self.mask[row + 1 : self._job.lengths[c], :, c] = True
        self._begun[c] += 1
        return self._job.seeds[c].fold(2, self._begun[c])


class _Span(NamedTuple):
    """Rows in which the same columns took a step."""

    columns: list[int]
    actions: list[Any]
    """Of each row, by agent and column, up to the last of these columns or beyond it."""
    rewards: list[Any]
    """Of each row, the rewards in these columns, each of every agent or one for all of them."""


def _actions(spans: list[_Span], shape: tuple[int, ...]) -> Shaped[np.ndarray, "h n c *a"]:
    """Return the actions of all columns, with zeros after their end; integers as in JAX."""
    first = spans[0].actions[0]
    dtype = np.float32 if np.issubdtype(first.dtype, np.floating) else np.int32
    result = np.zeros((*shape, *first.shape[2:]), dtype)
    row = 0
    for _, actions, _ in spans:
        # Much faster than `np.stack`.
        rows = np.concatenate(actions).reshape(len(actions), *actions[0].shape)
        result[row : row + len(actions), :, : rows.shape[2]] = rows
        row += len(actions)
    return result


def _rewards(spans: list[_Span], shape: tuple[int, ...]) -> Float[np.ndarray, "h n c"]:
    result = np.zeros(shape, np.float32)
    row = 0
    for columns, _, rewards in spans:
        paid = np.asarray(rewards, np.float32).reshape(len(rewards), len(columns), -1)
        result[row : row + len(rewards), :, columns] = paid.transpose(0, 2, 1)
        row += len(rewards)
    return result


def _where(
    mask: Bool[np.ndarray, "h n c"], x: Shaped[np.ndarray, "h n c *a"]
) -> Shaped[np.ndarray, "h n c *a"]:
    """x where it counts, and zero elsewhere."""
    if mask.all():
        return x
    return np.where(mask.reshape(*mask.shape, *[1] * (x.ndim - 3)), x, np.zeros((), x.dtype))
