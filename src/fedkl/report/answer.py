"""The result of the runs in a few sentences that claim no more than the runs do."""

from __future__ import annotations

from collections.abc import Sequence

from fedkl.core.text import few
from fedkl.report.groups import Group, drawn, judged, levels, worlds
from fedkl.report.labels import differing, flat, telling
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import (
    Estimate,
    difference,
    estimate,
    iqm,
    probability_of_improvement,
)
from fedkl.report.table import number

_MOST_TASKS = 4  # that the answer has a sentence about
_ENOUGH_SEEDS = 5  # with fewer, even the range of all seeds covers the true median too seldom


def answer(groups: Sequence[Group]) -> str:
    """Say in a few sentences which ended best, by how much, how far to trust it, and against which
    references."""
    verdict, own = _verdict(judged(groups)), {group.label for group in judged(groups)}
    others = [group for group in groups if group.label not in own and group.evaluated]
    against = few([f"{group.label} {_ended(group)}" for group in others])
    return f"{verdict} For reference: {against}." if others else verdict


def _verdict(groups: Sequence[Group]) -> str:
    """Say which ended best, by how much, and how far to trust it; within each task if there are
    several."""
    groups = [group for group in groups if group.evaluated]
    if not groups:
        return "No round has been evaluated yet, so there is no return to report."
    tasks = levels(groups)
    if len(tasks) == 1:
        return _best(groups)
    names, kind = ([*tasks], "tasks")
    if len(found := worlds(groups)) > 1:
        names, kind = found, "worlds"
    apart = f"These are different {kind} ({few(names)}): returns are not comparable"
    if all(len(within) == 1 for within in tasks.values()):
        return f"{apart}, so none of the runs is called best, and there is no common target."
    shown = [*tasks.items()][:_MOST_TASKS]
    more = f" {len(tasks) - len(shown)} more are in the table." if len(shown) < len(tasks) else ""
    within = " ".join(f"With {level}: {_best(own)}" for level, own in shown)
    return f"{apart} between them. {within}{more}"


def _best(groups: Sequence[Group]) -> str:
    """Say which of several groups of one task ended best."""
    ranked = _ranked(groups)
    best = ranked[0]
    if len(ranked) == 1:
        return _alone(best)
    ends = sorted({group.last_round for group in groups})
    if len(ends) > 1:
        reached = few([f"{group.label} {group.last_round}" for group in groups])
        return (
            f"The algorithms have not been evaluated up to the same round ({reached}), so none of "
            "them is called best."
        )
    gap = difference(best.finals(), ranked[1].finals())
    ended = f"{best.label} ended with the highest return after {_count(ends[0], 'round')}"
    lead = f"{number(gap.value)} above {ranked[1].label}"
    lead += ", which ended second" if len(ranked) > 2 else ""
    if gap.low is None or gap.high is None:
        return (
            f"{ended}: {_with_interval(estimate(best.finals()))}, {lead}. A single seed cannot "
            "tell such a difference from chance."
        )
    verdict = (
        "the interval does not include zero"
        if gap.low > 0
        else "the interval includes zero, so these runs do not separate the two"
    )
    return (
        f"Over {_seeds(groups)}, {ended}: {_with_interval(estimate(best.finals()))}. That is {lead}"
        f" (95 % interval of the difference {number(gap.low)} to {number(gap.high)}): {verdict}."
    )


def _ranked(groups: Sequence[Group]) -> list[Group]:
    """Return groups of one task, the one that ended highest first."""
    return sorted(groups, key=lambda group: -float(iqm(group.finals())))


def _alone(group: Group) -> str:
    ended = f"{group.label} {_ended(group)}"
    if len(group.counted) == 1:
        return f"{ended}, in one run; how much that varies between seeds, one run cannot tell."
    return f"Over {_seeds([group])}, {ended}."


def _ended(group: Group) -> str:
    reached = _with_interval(estimate(group.finals()))
    return f"ended with a return of {reached} after {_count(group.last_round, 'round')}"


def _with_interval(value: Estimate) -> str:
    if value.low is None:
        return number(value.value)
    return f"{number(value.value)} (95 % interval {number(value.low)} to {number(value.high)})"


def _seeds(groups: Sequence[Group]) -> str:
    counts = sorted({len(group.counted) for group in groups})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds for each algorithm"
    seeds = _count(counts[0], "seed")
    return f"{seeds} for each algorithm" if len(groups) > 1 else seeds


def improvements(groups: Sequence[Group]) -> list[tuple[str, str, Estimate]]:
    """Return the probability that a run of the algorithm that ended highest ends above one of each
    other algorithm, within each task.

    Only of algorithms with two seeds or more, evaluated up to the same round as that one.
    """
    groups = [group for group in judged(groups) if group.evaluated and len(group.counted) > 1]
    return [
        (
            first.label,
            other.label,
            probability_of_improvement(first.finals(), other.finals()),
        )
        for first, *others in map(_ranked, levels(groups).values())
        for other in others
        if other.last_round == first.last_round
    ]


def notes(runs: Sequence[LoadedRun], groups: Sequence[Group], missing: Sequence[str]) -> list[str]:
    """List the caveats that a careful reader needs."""
    found = []
    for group in groups:
        if not group.finished:
            names = few([run.name for run in group.counted if not run.finished])
            found.append(f"Not finished, and counted as far as they got: {names}.")
        if group.left_out:
            names = few([run.name for run in group.left_out])
            found.append(f"Left out of the statistics because they have not finished: {names}.")
    if missing:
        found.append(f"Planned, but without a finished round: {few(missing)}.")
    for run in runs:
        if run.not_finite:
            rounds = _count(run.not_finite, "evaluated round")
            found.append(
                f"The return of {run.name} was not a finite number in {rounds}; "
                f"those rounds are missing for every seed of {run.label}."
            )
    if unchanged := {run.name: run.round_notes for run in runs if run.round_notes}:
        rounds = few([f"{_count(len(why), 'round')} of {name}" for name, why in unchanged.items()])
        reason = next(iter(unchanged.values()))[0]
        found.append(f"Nothing changed in {rounds}. The first reason given: {reason}")
    if sizes := sorted({size for run in runs for size in run.sample_sizes}):
        of_them = " or ".join(map(str, sizes))
        found.append(
            f"Only a sample of the clients was evaluated at a time ({of_them} of them), so means, "
            "worst clients and deviations are those of samples."
        )
    if (shown := len(drawn(groups))) < len(groups):
        found.append(
            f"Figures show {shown} of the {len(groups)} groups, those that ended highest; tables "
            "have all."
        )
    if unequal := _unequal_settings(runs):
        found.append(
            "The runs differ in more than algorithm and seed, which may explain differences "
            f"between them: {few(unequal)}."
        )
    counts = [len(group.counted) for group in groups if len(group.counted) > 1]
    if counts and min(counts) < _ENOUGH_SEEDS:
        found.append(
            f"With so few seeds ({min(counts)}) the intervals are rough and rather too narrow."
        )
    return found


def _unequal_settings(runs: Sequence[LoadedRun]) -> list[str]:
    """Return the settings that differ although neither the algorithm nor the seed explains it."""
    runs = [run for run in runs if run.reference is None] or runs
    configs = [flat(run.config) for run in runs]
    # What labels name is no secret, and what an algorithm alone has is its own.
    named = ["seed", *telling(configs)]
    keys = [k for k in differing(configs) if k not in named and not k.startswith("algorithm.")]
    for label in dict.fromkeys(run.label for run in runs):
        same = [flat(run.config) for run in runs if run.label == label]
        keys += [key for key in differing(same) if key.startswith("algorithm.")]
    return list(dict.fromkeys(keys))


def _count(number_of: int, noun: str) -> str:
    return f"{number_of} {noun}" if number_of == 1 else f"{number_of} {noun}s"
