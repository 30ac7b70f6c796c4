"""Every claim of the paper, and ours, as something that can be checked on a sample."""

from fedkl.tabular.claims import (
    anchored,
    continuity,
    heterogeneity,
    improvement,
    preliminaries,
    second_order,
    weighted,
)
from fedkl.tabular.claims.base import VACUOUS_FROM, Claim, Finding, Verdict

CLAIMS: list[Claim] = [
    *preliminaries.CLAIMS,
    *heterogeneity.CLAIMS,
    *improvement.CLAIMS,
    *continuity.CLAIMS,
    *second_order.CLAIMS,
    *anchored.CLAIMS,
    *weighted.CLAIMS,
]

__all__ = ["CLAIMS", "VACUOUS_FROM", "Claim", "Finding", "Verdict"]
