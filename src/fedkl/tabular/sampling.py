"""Random cases to check claims on: families, policies, local policies and server weights.

A case is determined by one integer, so a counterexample is a number that can be run again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, get_args

import numpy as np

from fedkl.tabular import algorithms, families, objectives
from fedkl.tabular.best_response import Moves
from fedkl.tabular.exact import Exact
from fedkl.tabular.family import Family
from fedkl.tabular.step import Step
from fedkl.tabular.validation import FloatArray

AGENTS, STATES, ACTIONS = (2, 3, 4), (1, 2, 4, 7), (2, 3, 4)
GAMMAS = (0.02, 0.05, 0.1, 0.2, 0.25, 0.267, 0.269, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99)
_ROUNDS = 20  # of Algorithm 1
_DRAWS = 20  # cases for each family: five ways to step from four kinds of policy


@dataclass(frozen=True)
class Sample:
    """A batch of cases: F families of one size, and D draws for each.

    Attributes:
        seeds: of the families, [F].
        step: from the global policies to the local ones; its batch is [F, D].
        weights: of the server, [F, D, N]; some agents take no part.
    """

    seeds: np.ndarray
    step: Step
    weights: FloatArray

    @property
    def at(self) -> Exact:
        """The exact quantities at the global policies, batch [F, D]."""
        return self.step.before

    @property
    def rounding(self) -> FloatArray:
        """A generous bound on the rounding error of returns, [F, D]."""
        return self.at.rounding

    @cached_property
    def paper_rounds(self) -> list[PaperRound]:
        """Some rounds of Algorithm 1 from the global policies on."""
        rounds, at = [], self.at
        for _ in range(_ROUNDS):
            result = algorithms.paper(at, self.weights)
            after = Exact(at.family, result.policy)
            rounds.append(PaperRound(at, after, np.asarray(result.guarantee)))
            at = after
        return rounds


class PaperRound(NamedTuple):
    """A round of Algorithm 1: at which policies it starts and ends, and what it promises [F, D]."""

    before: Exact
    after: Exact
    promise: FloatArray

    @property
    def rise(self) -> FloatArray:
        """Of the global return, [F, D]."""
        return self.after.expected_return - self.before.expected_return


def samples(seeds: Iterable[int], family: Family | None = None) -> Iterator[Sample]:
    """The cases of the seeds, in batches of families of equal sizes.

    Args:
        seeds: of the families, or of the policies and steps alone if a family is given.
        family: the family of all cases; by default each seed draws its own.
    """
    groups = defaultdict(list)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        drawn = _family(rng, seed) if family is None else family
        groups[drawn.transitions.shape].append((seed, drawn, *_draws(rng, drawn)))
    for cases in groups.values():
        numbers, batch, policies, targets, lengths, weights = zip(*cases, strict=True)
        at = Exact(Family.stack(batch)[:, None], np.stack(policies))
        local = _local(at, np.stack(targets), np.stack(lengths))
        yield Sample(np.array(numbers), Step(at, local), np.stack(weights))


def _family(rng: np.random.Generator, seed: int) -> Family:
    N, S, A = (int(rng.choice(sizes)) for sizes in (AGENTS, STATES, ACTIONS))
    drawn = families.random(
        agents=N,
        states=S,
        actions=A,
        gamma=float(rng.choice(GAMMAS)),
        seed=seed,
        heterogeneity=rng.choice(np.array(get_args(families.Heterogeneity))),
        level=float(rng.choice([0.1, 0.5, 1.0])),
        concentration=float(rng.choice([0.05, 1.0, 10.0])),
    )
    ties = rng.random() < 0.25
    return Family(
        drawn.initial,
        drawn.transitions,
        drawn.rewards.round() if ties else drawn.rewards,
        drawn.gamma,
        rng.dirichlet(np.ones(N)) if rng.random() < 0.5 else None,
    )


def _draws(
    rng: np.random.Generator, family: Family
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Draw policies [D, S, A], random targets [D, N, S, A], lengths [D] and weights [D, N]."""
    N, S, A = family.agents, family.states, family.actions
    sparse = rng.dirichlet(np.full(A, 0.5), (_DRAWS, S)) * (rng.random((_DRAWS, S, A)) < 0.6)
    sparse[..., 0] += sparse.sum(axis=-1) == 0
    kinds = [
        np.full((_DRAWS, S, A), 1.0 / A),
        rng.dirichlet(np.ones(A), (_DRAWS, S)),
        families.dirichlet(rng, 0.1, (_DRAWS, S, A)),
        sparse / sparse.sum(axis=-1, keepdims=True),
    ]
    policies = np.stack([kinds[draw % 4][draw] for draw in range(_DRAWS)])
    targets = rng.dirichlet(np.ones(A), (_DRAWS, N, S))
    lengths = 10.0 ** rng.uniform(-3, 0, _DRAWS)
    weights = rng.dirichlet(np.ones(N), _DRAWS) * (rng.random((_DRAWS, N)) < 0.7)
    weights[:, 0] += weights.sum(axis=-1) == 0
    return policies, targets, lengths, weights / weights.sum(axis=-1, keepdims=True)


def _local(at: Exact, targets: FloatArray, lengths: FloatArray) -> FloatArray:
    """Local policies [F, D, N, S, A]: random, greedy, within a radius, harmful, in one state."""
    pi = at.policy[..., None, :, :]
    length = lengths[..., None, None, None]
    eye = np.eye(at.family.actions)
    greedy = eye[at.weighted_advantage.argmax(axis=-1)]
    harmful = np.broadcast_to(
        eye[at.global_advantage.argmin(axis=-1)][..., None, :, :], greedy.shape
    )
    radius = np.broadcast_to(lengths[..., None], at.agent_returns.shape)
    rarest = at.visitation == at.visitation.min(axis=-1, keepdims=True)
    ways = [
        (1 - length) * pi + length * targets,
        (1 - length) * pi + length * greedy,
        Moves.of(objectives.second_order(at)).policy(radius),
        (1 - length) * pi + length * harmful,
        np.where(rarest[..., None], (1 - length) * pi + length * targets, pi),
    ]
    return np.stack([ways[draw % 5][:, draw] for draw in range(_DRAWS)], axis=1)
