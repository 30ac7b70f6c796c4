"""Quick looks: what each points to, beside the verdict of the whole runs.

A run is a function of its config, so the first rounds of a whole run are those of a quick one.
"""

from __future__ import annotations

from fedkl.experiments.reproduce.experiment import OPEN, Experiment, ExperimentResult, Runs
from fedkl.experiments.reproduce.judges import JUDGES

_AGAIN = 1_000_000
"""Added to a seed: the same run once more."""


def pointers(experiment: Experiment, runs: Runs) -> dict[str, str]:
    """The verdicts on an experiment's claims if its seeds were as good as all, by claim.

    One seed has no interval, and so no verdict. Judged as if every other seed were to give the
    same, it points somewhere.

    Args:
        experiment: as it was cut down.
        runs: its tables.
    """
    judge = JUDGES[experiment.judge]
    twice = {
        name: {**seeds, **{seed + _AGAIN: rows for seed, rows in seeds.items()}}
        for name, seeds in runs.items()
    }
    found = {one.claim: one.verdict for one in judge(experiment, twice).verdicts}
    told = {one.claim: one.verdict for one in judge(experiment, runs).verdicts}
    return {claim: found[claim] if said == OPEN else said for claim, said in told.items()}


def with_pointers(
    experiment: Experiment, runs: Runs, finding: ExperimentResult
) -> ExperimentResult:
    """A finding that also says what its seeds point to, where that is not enough for a verdict."""
    pointed = pointers(experiment, runs)
    verdicts = [
        one._replace(measured=f"{one.measured} This alone points to: {pointed[one.claim]}.")
        if one.verdict == OPEN != pointed[one.claim]
        else one
        for one in finding.verdicts
    ]
    return finding._replace(verdicts=verdicts)


def quick_pointers(experiment: Experiment, runs: Runs) -> dict[str, str]:
    """Return what `--quick` points to, by claim, from the whole runs; nothing if some are missing
    that the experiment needs.

    Args:
        experiment: the whole.
        runs: its tables.
    """
    quick = experiment.quickly()
    first = {
        case.name: {
            seed: rows[: case.rounds]
            for seed, rows in runs.get(case.name, {}).items()
            if seed in case.seeds
        }
        for case in quick.cases
    }
    return pointers(quick, first) if quick.enough(first) else {}
