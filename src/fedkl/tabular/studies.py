"""Three studies on random families: who moves, how fast returns rise, and which way a step leads.

They are computed on batches of families at once; `report.theory` draws what they find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedkl.tabular import families, objectives, optimum
from fedkl.tabular.best_response import best_response
from fedkl.tabular.distances import differ, frobenius
from fedkl.tabular.exact import Exact
from fedkl.tabular.families import Heterogeneity
from fedkl.tabular.family import Family
from fedkl.tabular.iteration import iterate
from fedkl.tabular.objectives import Objective
from fedkl.tabular.sampling import samples
from fedkl.tabular.validation import FloatArray

AGENTS, STATES, ACTIONS = 5, 10, 4
GAMMA = 0.9  # of the families on which algorithms run for many rounds

OBJECTIVES: dict[str, Callable[[Exact], Objective]] = {
    "paper": objectives.paper,
    "corrected": objectives.corrected,
    "second-order": objectives.second_order,
    "second-order-exact": objectives.second_order_exact,
}

_ZERO = 1e-9  # norms this small are zero but for rounding; rewards are of the size of 1
_DRAW = 1  # of the policies that a sample has for each family, the first that is random and full


@dataclass(frozen=True)
class Setting:
    """The heterogeneity of the agents of a study.

    Attributes:
        name: to refer to it.
        words: the same for people, after "agents that".
        heterogeneity: in what they differ.
        level: how far, from 0 (alike) to 1 (independent).
    """

    name: str
    words: str
    heterogeneity: Heterogeneity
    level: float = 1.0


ALIKE = Setting("alike", "are alike", "none")
SLIGHTLY = Setting("slightly", "differ slightly in P, R and mu", "all", 0.05)
DYNAMICS = Setting("dynamics", "differ in P", "P")
EVERYTHING = Setting("everything", "differ in P, R and mu", "all")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the studies.

    Attributes:
        movement_families: for each setting of the study of who moves.
        gammas: of that study.
        improvement_families: for each setting of the study of many rounds.
        rounds: for each algorithm of that study.
        slope_families: of the study of small steps.
    """

    movement_families: int = 40
    gammas: tuple[float, ...] = (*(percent / 100 for percent in range(2, 100, 2)), 0.99)
    improvement_families: int = 20
    # The slow ones are seen to the end; the others have ended long before.
    rounds: Mapping[str, int] = field(
        default_factory=lambda: {
            "paper": 1000,
            "second-order": 1000,
            "second-order-exact": 1000,
            "anchored": 1000,
            "own-states": 1000,
            "common-radius": 200,
            "line-search": 100,
            "qavg": 1000,
            "pavg": 100,
        }
    )
    slope_families: int = 400


@dataclass(frozen=True)
class Movement:
    """The share of agents that move, at each discount.

    Attributes:
        setting: how the agents differ.
        gammas: [G].
        shares: for each objective the share of agents whose best response is not pi, [G]. Of
            `second-order-exact`, which has one objective for all, the share of families.
    """

    setting: Setting
    gammas: FloatArray
    shares: Mapping[str, FloatArray]


@dataclass(frozen=True)
class Curve:
    """A share over rounds, at rounds spaced as on a logarithmic axis; [R] each.

    Attributes:
        rounds: from 1 to the last.
        mean: over families.
        low: the lowest of any family.
        high: the highest.
    """

    rounds: np.ndarray
    mean: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class Improvement:
    """The improvement by each algorithm, round by round.

    Attributes:
        setting: how the agents differ.
        shares: for each algorithm the share of the possible improvement over the uniform policy,
            [T + 1, F]; entry 0 is the start.
        monotone: the algorithms that lost nothing in any round.
        of_ceiling: the possible improvement as found, over that of every agent playing its own
            best policy, which bounds it, [F].
    """

    setting: Setting
    shares: Mapping[str, FloatArray]
    monotone: frozenset[str]
    of_ceiling: FloatArray

    def curve(self, algorithm: str, points: int = 60) -> Curve:
        """Return an algorithm's improvement after 1 round, the last one, and points between."""
        shares = self.shares[algorithm]
        spaced = np.geomspace(1, len(shares) - 1, points)
        rounds = np.unique(spaced.round().astype(int))
        at = shares[rounds]
        return Curve(rounds, at.mean(axis=1), at.min(axis=1), at.max(axis=1))


@dataclass(frozen=True)
class Slopes:
    """The slope of the global objective along each agent's own small step pi (1 + t A_n).

    Attributes:
        ratio: ||B_n||_F / ||A_n||_F of every agent, [K].
        cosine: the slope of eta along the step, normalised to [-1, 1], [K]. The slope is
            <A_n + B_n, A_n> with <X, Y> = E_{rho_n, pi}[X Y], so divided by the norms of the two it
            is the cosine of the angle between them.
        left_out: how many agents have no ratio or no slope to speak of, because B_n, A_n or their
            sum is 0.
    """

    ratio: FloatArray
    cosine: FloatArray
    left_out: int

    @property
    def excluded(self) -> np.ndarray:
        """True where ||B_n||_F >= ||A_n||_F: Corollary 1 says that eta cannot improve. [K]"""
        return self.ratio >= 1

    @property
    def contradicts(self) -> np.ndarray:
        """True where eta improves all the same. [K]"""
        return self.excluded & (self.cosine > 0)


@dataclass(frozen=True)
class Studies:
    """All that the studies found."""

    sizes: Sizes
    movements: tuple[Movement, ...]
    improvements: tuple[Improvement, ...]
    slopes: Slopes


def study(sizes: Sizes, seed: int = 0, show: Callable[[str], None] = lambda line: None) -> Studies:
    """Compute all studies; `show` is told in a line what starts."""
    show(f"finding who moves at {len(sizes.gammas)} discounts")
    settings = (ALIKE, SLIGHTLY, DYNAMICS, EVERYTHING)
    movements = tuple(
        movement(setting, sizes.movement_families, np.array(sizes.gammas), seed)
        for setting in settings
    )
    improvements = []
    for setting in (DYNAMICS, EVERYTHING):
        show(f"running {len(sizes.rounds)} algorithms on agents that {setting.words}")
        improvements.append(improvement(setting, sizes.improvement_families, sizes.rounds, seed))
    show("taking small steps, for Corollary 1")
    return Studies(sizes, movements, tuple(improvements), slopes(sizes.slope_families, seed))


def movement(setting: Setting, count: int, gammas: FloatArray, seed: int = 0) -> Movement:
    """Compute which agents move from a random policy, in the same families at every gamma.

    Args:
        setting: how the agents differ.
        count: of families, of seeds `seed`, `seed + 1`, ...
        gammas: the discounts, [G].
        seed: of the first family, and of the policies.
    """
    batch = (count, gammas.size)

    def change(name: str, array: FloatArray) -> FloatArray:
        if name == "gamma":
            return np.broadcast_to(gammas, batch)
        return np.broadcast_to(array[:, None], (*batch, *array.shape[1:]))

    family = _families(setting, count, seed).changed(change)
    # Not default_rng(seed) itself, from which the first family is drawn.
    draws = np.random.default_rng([seed, 1]).dirichlet(np.ones(ACTIONS), (count, 1, STATES))
    at = Exact(family, np.broadcast_to(draws, (*batch, STATES, ACTIONS)))
    shares = {}
    for name, make in OBJECTIVES.items():
        objective = make(at)
        moved = differ(best_response(objective), objective.policy)
        shares[name] = moved.mean(axis=(0, 2))
    return Movement(setting, gammas, shares)


def improvement(
    setting: Setting, count: int, rounds: Mapping[str, int], seed: int = 0
) -> Improvement:
    """Compute every algorithm's improvement from the uniform policy.

    Args:
        setting: how the agents differ.
        count: of families, of seeds `seed`, `seed + 1`, ...
        rounds: for each algorithm.
        seed: of the first family, and of the search for the best policy.

    Raises:
        RuntimeError: if a round brought less than its algorithm guarantees.
    """
    family = _families(setting, count, seed)
    best = optimum.search(family, seed)
    start = Exact(family, family.uniform_policy()).expected_return
    paths = {name: iterate(family, name, rounds[name]) for name in rounds}
    return Improvement(
        setting=setting,
        shares={name: best.share(start, path.returns) for name, path in paths.items()},
        monotone=frozenset(name for name, path in paths.items() if path.monotone),
        of_ceiling=(best.found - start) / (best.ceiling - start),
    )


def slopes(count: int, seed: int = 0) -> Slopes:
    """Corollary 1 on the cases that claims are checked on, one random policy for each family.

    Args:
        count: of families, of seeds `seed`, `seed + 1`, ...
        seed: of the first.
    """
    parts = []
    for sample in samples(range(seed, seed + count)):
        at = Exact(sample.at.family[:, 0], sample.at.policy[:, _DRAW])
        weight = at.visitation[..., None] * at.policy[..., None, :, :]
        both = at.advantage + at.heterogeneity_matrix
        own, total = (np.sqrt((weight * x**2).sum(axis=(-2, -1))) for x in (at.advantage, both))
        level, potential = at.heterogeneity_level, frobenius(at.advantage)
        parts.append(np.stack([level, potential, at.alignment, own, total]).reshape(5, -1))
    level, potential, slope, own, total = np.concatenate(parts, axis=1)
    drawn = (level > _ZERO * potential) & (own > _ZERO) & (total > _ZERO)
    cosine = np.clip(slope[drawn] / (own * total)[drawn], -1.0, 1.0)
    return Slopes(level[drawn] / potential[drawn], cosine, int((~drawn).sum()))


def _families(setting: Setting, count: int, seed: int) -> Family:
    return Family.stack(
        [
            families.random(
                agents=AGENTS,
                states=STATES,
                actions=ACTIONS,
                gamma=GAMMA,
                seed=seed + index,
                heterogeneity=setting.heterogeneity,
                level=setting.level,
            )
            for index in range(count)
        ]
    )
