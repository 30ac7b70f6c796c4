"""The method section of the page: how its numbers are made."""

from __future__ import annotations

from collections.abc import Sequence

from fedkl.report.charts import MOST_PANELS, TOGETHER
from fedkl.report.groups import MOST_POINTS, Group, drawn, judged
from fedkl.report.lines import MOST_SEEDS
from fedkl.report.statistics import RESAMPLES, final_window, settling


def target_note(target: float | None, given: bool, groups: Sequence[Group]) -> str:
    """Say how the target was chosen."""
    if target is None:
        return ""
    if given:
        return "as asked for."
    if len(judged(groups)) == 1:
        return (
            "where the algorithm itself ended (but no lower than half-way from the first to the "
            "highest value of its curve)."
        )
    return (
        "where the second-best algorithm ended (but no lower than half-way from the first to the "
        "highest value of the best algorithm's curve)."
    )


def legend(groups: Sequence[Group]) -> str:
    """Explain how to read the figures."""
    text = (
        "In all figures a colour is an algorithm. Thin lines are seeds, the thick line is the "
        "interquartile mean over seeds, and the band is its 95 % bootstrap interval."
    )
    everything = drawn(groups)
    groups = judged(everything)
    if len(groups) > MOST_PANELS:
        text = (
            "In all figures a colour is an algorithm, and a line the interquartile mean over its "
            "seeds. There are too many to show seeds and intervals."
        )
    if all(len(group.counted) == 1 for group in groups):
        text = "In all figures a colour is an algorithm, and a line is its one run."
    elif any(len(group.counted) > MOST_SEEDS for group in groups):
        text += (
            f" Of algorithms with more than {MOST_SEEDS} seeds the thin lines and small dots are "
            "left out."
        )
    if TOGETHER < len(groups) <= MOST_PANELS:
        text += " Where an algorithm has a panel of its own, the others are grey in it."
    if len(groups) < len(everything):
        text += (
            " Grey dashes are references, which are not judged: each client alone, or all data in "
            "one place."
        )
    text += " Point at a line, or use the arrow keys, to read its values."
    if any(run.rounds.size > MOST_POINTS for group in groups for run in group.counted):
        text += (
            " Each point is the mean of a few neighbouring rounds, so that a line has at most "
            f"{MOST_POINTS} of them."
        )
    return text


def method(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return terms and their definitions."""
    evaluated = [g.curves("return_mean").rounds.size for g in groups if g.evaluated]
    windows = sorted({final_window(size) for size in evaluated}) or [1]
    here = " or ".join(str(window) for window in windows)
    skipped = sorted({settling(g.last_round) for g in groups if g.evaluated}) or [0]
    settled = " or ".join(str(round_) for round_ in skipped)
    several = any(len(group.counted) > 1 for group in groups)
    entries = [
        (
            "Return",
            "The mean over clients of each client's mean return, of the global policy (with the "
            "client's own part, where federation.personal keeps one) as it acts in training, with "
            "exploration. The deterministic policy takes the mean action.",
        ),
        (
            "Final return",
            "The mean over the last tenth of the evaluated rounds, rounded down and at least one "
            f"(here {here}), for each seed.",
        ),
        (
            "Best",
            "The highest return of any evaluated round of a seed. It picks the luckiest "
            "evaluation, so it flatters; compare final returns.",
        ),
        (
            "Largest drop",
            "How far the return of an evaluated round lay below the best evaluated round before "
            f"it, at the most, for each seed; 0 if it never did. Rounds up to {settled} are not "
            "counted, because the first steps of learning jump. An evaluation is noisy, so that "
            "even a policy that never gets worse has a small drop.",
        ),
        (
            "Worst client",
            "The lowest of the clients' mean returns over the same final rounds. The figure over "
            "rounds shows the lowest return of each single evaluation, which lies lower.",
        ),
        (
            "To target",
            "The first evaluated round in which the curve of the algorithm (the interquartile mean "
            "over seeds) reaches the target, and the traffic and the seconds of training up to the "
            "end of that round, mean over seeds. “Never” means: not within these rounds.",
        ),
        (
            "MB",
            "10⁶ bytes, to and from all selected clients together. A round's are those to the "
            "clients (down) and from them (up), mean over rounds and seeds.",
        ),
        (
            "Seconds of a run",
            "Wall-clock time of its rounds. It depends on the machine and on what ran beside it.",
        ),
        (
            "Seconds of training, and to target",
            "The same without compilation: of rounds with an evaluation, and of those without, the "
            "median of all but the first, which compiles, times their number; mean over seeds. "
            "Steps a second are the environment steps of training, divided by that. Evaluations "
            "are in the time and not in the steps, so compare runs that are evaluated alike.",
        ),
    ]
    if several:
        entries += [
            (
                "Across seeds",
                "The interquartile mean: the mean of the middle half of the seeds, with the seeds "
                "at the cut counted in part.",
            ),
            (
                "95 % interval",
                f"Percentile bootstrap over seeds, {RESAMPLES} draws from a fixed seed, each round "
                "on its own. It tells how the number might change with other seeds of the same "
                "experiment, nothing else, and cannot reach beyond the lowest and the highest "
                "seed. Differences resample each algorithm independently. The best algorithm is "
                "named after looking, and no correction is made for comparing several.",
            ),
            *_clients(groups),
            (
                "Probability of improvement",
                "The share of pairs (a run of one, a run of the other) in which the first ends "
                "higher; ties count one half; 0.5 means no difference.",
            ),
        ]
    else:
        entries.append(
            (
                "No interval",
                "Each algorithm ran with one seed, and one seed says nothing about other seeds.",
            )
        )
    entries.append(
        (
            "Unfinished runs",
            "Where an algorithm has finished runs, only these are counted; else all its runs, up "
            "to the last round that they share.",
        )
    )
    return entries


def _clients(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Say whether clients were the same in all seeds, as far as runs have tables of them."""
    tables = [
        [path.read_bytes() for run in group.counted if (path := run.path / "clients.csv").is_file()]
        for group in groups
    ]
    tables = [table for table in tables if len(table) > 1]
    if not tables:
        return []
    same = [len({*table}) == 1 for table in tables]
    if all(same):
        text = (
            "The same in all seeds: an interval is of training on this population, and says "
            "nothing of others."
        )
    elif not any(same):
        text = (
            "Drawn anew for each seed: an interval has in it how populations differ (world_seed "
            "gives all seeds the same)."
        )
    else:
        text = "The same in all seeds of some algorithms, and drawn anew for each seed of others."
    return [("Clients", text)]
