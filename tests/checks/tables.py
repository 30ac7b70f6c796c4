"""Tables of runs whose answers are known, for the tests of `fedkl reproduce`."""

from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.results import row_of

EMPTY = {
    "return_mean": None, "return_min": None, "return_std": None, "deterministic_return_mean": None,
    "kl_local": 0.01, "distance_global": 0.5, "guarded": 0, "env_steps": 0, "bytes_down": 10,
    "bytes_up": 10, "bytes_down_regions": 0, "bytes_up_regions": 0, "seconds": 1.0,
    "coefficients": {"c2": 1.0}, "rejected": [], "selected": [], "heterogeneity": None,
}  # fmt: skip


def table(returns, **columns):
    """The table of a run with these returns, and other columns by name."""
    return [
        row_of(
            {
                **EMPTY,
                "round": t,
                "return_mean": value,
                **{name: values[t - 1] for name, values in columns.items()},
            }
        )
        for t, value in enumerate(returns, start=1)
    ]


def of_group(experiment, group, curves, **columns):
    """Tables of a group's cases: of each algorithm or reference, returns for each seed."""
    return {
        case.name: {
            10 + i: table(returns, **columns) for i, returns in enumerate(curves[case.kind])
        }
        for case in EXPERIMENTS[experiment].cases
        if case.group == group and case.kind in curves
    }


def verdicts(finding):
    """By the name of the claim."""
    return {one.claim: one.verdict for one in finding.verdicts}
