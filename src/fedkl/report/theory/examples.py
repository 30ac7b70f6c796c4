"""Counterexamples in words, every number of them computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkl.report.table import number
from fedkl.report.theory.claims import THRESHOLD
from fedkl.tabular import bounds, counterexamples, families, objectives
from fedkl.tabular.best_response import best_response
from fedkl.tabular.claims import VACUOUS_FROM
from fedkl.tabular.distances import differ, frobenius, total_variation
from fedkl.tabular.exact import Exact
from fedkl.tabular.sampling import Sample, samples
from fedkl.tabular.step import Step
from fedkl.tabular.validation import FloatArray
from fedkl.tabular.verification import Result

_COEFFICIENTS = (0.5, 0.9, 1.6, 2.5)  # one for each thing that agents of `own_states` may do


@dataclass(frozen=True)
class Example:
    """A case in which a statement of the paper fails, or a bound is sharp.

    Attributes:
        name: to refer to it.
        title: what it is about.
        text: what happens, in two or three sentences.
        numbers: those of the text.
    """

    name: str
    title: str
    text: str
    numbers: dict[str, Any]


def examples(results: Sequence[Result], seed: int) -> list[Example]:
    """Return all counterexamples; those that claims are refuted by stand for the smallest seed
    found.

    Args:
        results: of the claims.
        seed: of the families that are drawn for an example.
    """
    found = {result.claim.name: result for result in results}
    made = [
        _corollary_1(),
        _bandit(),
        _own_states(),
        _shaped(seed),
        _alternating(seed),
        _eq_23(found["eq-23"]),
        _frobenius(found["frobenius-expansion"]),
    ]
    return [example for example in made if example is not None]


def _corollary_1() -> Example:
    family = counterexamples.corollary_1()
    at = Exact(family, family.uniform_policy())
    ratio = float(at.heterogeneity_level[0] / frobenius(at.advantage)[0])
    off = float(abs(at.heterogeneity_matrix[0] - 2 * at.advantage[0]).max())
    t = 0.1 / float(at.largest_advantage[0])
    after = Exact(family, at.policy * (1 + t * at.advantage[0]))
    before, reached = float(at.expected_return), float(after.expected_return)
    direction = "raises" if reached > before else "does not raise"
    return Example(
        "corollary-1",
        "Corollary 1: what is good for one is good for all",
        "Two agents share dynamics and start, and the second's rewards are five times the first's. "
        f"Under the uniform policy B_1 = 2 A_1 (to within {number(off)}), so ||B_1||_F / ||A_1||_F "
        f"= {number(ratio)} and Corollary 1 rules out that agent 1 improves the global objective. "
        f"Its own step pi (1 + t A_1) with t = {number(t)} {direction} eta from "
        f"{number(before)} to {number(reached)} all the same.",
        {"ratio": ratio, "t": t, "eta_before": before, "eta_after": reached},
    )


def _bandit() -> Example:
    said, numbers = [], {}
    for gamma in (0.2679, 0.268):
        family = counterexamples.bandit(gamma)
        objective = objectives.paper(Exact(family, family.uniform_policy()))
        best = best_response(objective)
        gained = float(objective(best)[0])
        moves = bool(differ(best, objective.policy).any())
        does = f"moves and is promised {number(gained)}" if moves else "stays where it is"
        said.append(f"at gamma = {gamma:g} it {does}")
        numbers[f"{gamma:g}"] = {"moves": moves, "promised": gained}
    return Example(
        "bandit",
        "Where Algorithm 1 stops",
        "The simplest agent has one state and two actions, with the rewards 1 and -1. From the "
        f"uniform policy, Algorithm 1 with the paper's constants behaves so: {said[0]}; {said[1]}, "
        f"although one action is plainly better. The threshold {THRESHOLD} = {VACUOUS_FROM:.6f} "
        "is between the two, so it is sharp.",
        numbers,
    )


def _own_states() -> Example:
    family = counterexamples.own_states()
    at = Exact(family, family.uniform_policy())
    said, numbers = [], {}
    for coefficient in _COEFFICIENTS:
        rises = {}
        for where in ("own", "federation"):
            visits = at.visitation if where == "own" else at.federation_visitation[None]
            objective = objectives.with_coefficient(at, np.array(coefficient), visits)
            step = Step(at, best_response(objective))
            rises[where] = float(step.global_return[0] - at.expected_return)
        own, federation = (number(rise) for rise in rises.values())
        said.append(f"{own} and {federation} with c = {coefficient:g}")
        numbers[f"{coefficient:g}"] = rises
    return Example(
        "own-states",
        "Whose states: the harm is done where the agent seldom is",
        "Two agents stay where they start. The first is in state 1 three times out of four, and "
        "else in state 2, where the second always is and wants the opposite. The first maximises "
        "AA_1 - c E[TV]; its best step changes eta by the following, with TV in its own states "
        f"and in those of the federation: {'; '.join(said)}. In its own states it gains most for "
        "each visit in state 2, so no c forbids that step and allows the one in state 1.",
        numbers,
    )


def _shaped(seed: int) -> Example:
    drawn = families.random(agents=3, states=4, actions=3, gamma=0.9, seed=seed)
    family = counterexamples.shaped(drawn)
    at = Exact(family, family.uniform_policy())
    apart = float(np.ptp(family.rewards, axis=-3).max())
    level, potential = float(at.heterogeneity_level.max()), float(frobenius(at.advantage).max())
    return Example(
        "shaped-rewards",
        "Definition 1: different agents, no heterogeneity",
        f"Three agents share dynamics, and their rewards differ by as much as {number(apart)} in "
        "the same state and action, by a potential: R_n = R_1 + gamma P Phi_n - Phi_n. Potentials "
        f"change no advantage, so the largest ||B_n||_F is {number(level)}, zero to rounding, "
        f"beside ||A_n||_F = {number(potential)}. The level of heterogeneity is not a distance "
        "between agents.",
        {"largest_reward_difference": apart, "level": level, "advantage_norm": potential},
    )


def _alternating(seed: int) -> Example:
    drawn = families.random(agents=3, states=4, actions=3, gamma=0.9, seed=seed)
    family = counterexamples.without_rewards(drawn)
    one = family.uniform_policy()
    other = np.random.default_rng(seed).dirichlet(np.ones(3), 4)
    there, back = (objectives.paper(Exact(family, policy)) for policy in (one, other))
    ways = ((there, other), (back, one))
    short = max(float((o(best_response(o)) - o(to)).max()) for o, to in ways)
    apart = float(total_variation(one, other).max())
    return Example(
        "no-rewards",
        "Theorem 3: where no action matters",
        "If nothing is rewarded, every policy maximises h_n. Of two policies whose total variation "
        f"is as large as {number(apart)}, each is an argmax at the other: it falls short of the "
        f"maximum of h_n by {number(short)}. So Algorithm 1, which may return any argmax, can "
        "alternate between the two for ever. This is the only exception: where any action matters "
        "to any agent, the policies converge.",
        {"total_variation": apart, "falls_short_by": short},
    )


def _eq_23(result: Result) -> Example | None:
    if result.counterexample is None:
        return None
    sample = next(samples([result.counterexample]))
    sides = bounds.equation_23(sample.step)
    case = _clearest(result, sample, -sides.slack)
    h, bound = float(sides.left[case]), float(sides.right[case])
    return Example(
        "eq-23",
        "Equation 23: not a lower bound",
        f"In the family of seed {result.counterexample} (gamma = {_gamma(sample):g}) there is a "
        f"local policy of agent {case[-1] + 1} with h_n = {number(h)}, where the right side of eq. "
        f"23 is {number(bound)}, which is more. The step from TV_max to an expectation over rho_n "
        "is the one that fails: the largest total variation may be in a state that is seldom "
        "visited.",
        {"seed": result.counterexample, "agent": int(case[-1]), "h": h, "printed_bound": bound},
    )


def _frobenius(result: Result) -> Example | None:
    if result.counterexample is None:
        return None
    sample = next(samples([result.counterexample]))
    printed = bounds.printed_expansion(sample.at)
    # Both sides at one policy are enough; the first that is refuted is the plainest.
    case = _clearest(result, sample, 0 * printed)
    level, total = float(sample.at.heterogeneity_level[case]), float(printed[case])
    return Example(
        "frobenius-expansion",
        "The expansion of ||B_n||_F",
        f"In the family of seed {result.counterexample} (gamma = {_gamma(sample):g}) agent "
        f"{case[-1] + 1} has ||B_n||_F = {number(level)}, where the printed expansion gives "
        f"{number(total)}. It lacks the square root, and it sums over agents outside of the square "
        "instead of inside.",
        {"seed": result.counterexample, "agent": int(case[-1]), "level": level, "printed": total},
    )


def _clearest(result: Result, sample: Sample, excess: FloatArray) -> tuple[int, ...]:
    """Return the index [1, D, N] of the case that refutes a claim by the most."""
    finding = result.claim.check(sample)
    refuted = np.where(finding.violated & finding.applies, excess, -np.inf)
    return tuple(int(i) for i in np.unravel_index(refuted.argmax(), refuted.shape))


def _gamma(sample: Sample) -> float:
    return float(sample.at.family.gamma.ravel()[0])
