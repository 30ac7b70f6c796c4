"""Checking all claims on many random cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedkl.tabular.claims import CLAIMS, Claim, Finding, Verdict
from fedkl.tabular.family import Family
from fedkl.tabular.sampling import samples
from fedkl.tabular.validation import FloatArray, InvalidFamily

_FAMILIES_AT_ONCE = 500
_NUMBERS_AT_ONCE = 500_000  # transitions that all policies see in all MDPs, for a draw each


@dataclass(frozen=True)
class Result:
    """The result of checking a claim.

    Attributes:
        claim: what was checked.
        checks: in how many cases it says something.
        violations: in how many of them it does not hold.
        counterexample: the smallest seed of a family with a violation.
        looseness: penalty over gap in every case where there is a gap; empty if it is no bound.
        promised: to how many policies the bound promises an improvement where gamma >= 2 - sqrt(3).
        asked: out of how many.
    """

    claim: Claim
    checks: int
    violations: int
    counterexample: int | None
    looseness: FloatArray
    promised: int
    asked: int

    @property
    def tightest(self) -> float | None:
        """The smallest penalty over gap; 1 means that the bound is attained."""
        return float(self.looseness.min()) if self.looseness.size else None

    @property
    def typical(self) -> float | None:
        """The median penalty over gap."""
        return float(np.median(self.looseness)) if self.looseness.size else None

    @property
    def verdict(self) -> Verdict | None:
        """From what was found alone; None where nothing was checked."""
        if self.violations:
            return "false"
        if self.asked and not self.promised:
            return "holds but vacuous"
        return "holds" if self.checks else None

    @property
    def outcome(self) -> str:
        """The verdict in words that claim no more than so many cases can tell."""
        documented = self.claim.documented
        if self.verdict is None:
            return "not checked"
        if self.verdict == "holds" and documented == "false":
            return "no counterexample found"
        if self.verdict == "holds but vacuous" and documented == "holds":
            return "holds"  # too few cases were asked to call it vacuous
        if self.verdict == "holds" and documented == "holds but vacuous" and not self.asked:
            return "holds, vacuity not asked"
        return self.verdict

    @property
    def contradicts(self) -> bool:
        """True if the documentation says otherwise; that nothing was found contradicts nothing."""
        if self.violations:
            return self.claim.documented != "false"
        return self.promised > 0 and self.claim.documented == "holds but vacuous"

    def record(self) -> dict[str, object]:
        """Everything but the single ratios, as plain values."""
        return {
            "claim": self.claim.name,
            "source": self.claim.source,
            "statement": self.claim.statement,
            "verdict": self.verdict,
            "documented": self.claim.documented,
            "checks": self.checks,
            "violations": self.violations,
            "counterexample_seed": self.counterexample,
            "penalty_over_gap_min": self.tightest,
            "penalty_over_gap_median": self.typical,
            "promised_beyond_threshold": self.promised,
            "asked_beyond_threshold": self.asked,
        }


@dataclass
class _Tally:
    """The findings on a claim so far."""

    checks: int = 0
    violations: int = 0
    seeds: list[int] = field(default_factory=list)
    looseness: list[FloatArray] = field(default_factory=list)
    promised: int = 0
    asked: int = 0

    def add(self, finding: Finding, seeds: np.ndarray) -> None:
        violated = finding.violated & finding.applies
        self.checks += int(finding.applies.sum())
        self.violations += int(violated.sum())
        self.seeds += [int(s) for s in seeds[violated.reshape(len(seeds), -1).any(axis=1)]]
        if finding.looseness is not None:
            self.looseness.append(finding.looseness[np.isfinite(finding.looseness)])
        if finding.promises is not None and finding.asked is not None:
            self.promised += int(finding.promises.sum())
            self.asked += int(finding.asked.sum())

    def result(self, claim: Claim) -> Result:
        return Result(
            claim=claim,
            checks=self.checks,
            violations=self.violations,
            counterexample=min(self.seeds, default=None),
            looseness=np.concatenate([*self.looseness, np.zeros(0)]),
            promised=self.promised,
            asked=self.asked,
        )


def check_counts(families: int, seed: int) -> None:
    """Raise an error unless there is a family to check, and the seed is at least 0."""
    for name, value, least in (("families", families, 1), ("seed", seed, 0)):
        if value < least:
            raise InvalidFamily(f"{name} must be at least {least}, not {value}")


def verify(
    families: int,
    seed: int = 0,
    claims: Sequence[Claim] = CLAIMS,
    show: Callable[[int], None] = lambda done: None,
    family: Family | None = None,
) -> list[Result]:
    """Check claims on random families, twenty policies and steps in each.

    Family i has the seed `seed + i`: `verify(1, s)` looks again at a counterexample of seed s.

    Args:
        families: how many.
        seed: of the first.
        claims: what to check.
        show: told how many families are done.
        family: checks on this one alone, drawing only policies and steps, `families` times.

    Raises:
        ValueError: if a policy does not reach some state of the given family, since most claims
            of the paper need that.
    """
    check_counts(families, seed)
    tallies = [_Tally() for _ in claims]
    at_once = _FAMILIES_AT_ONCE
    if family is not None:
        at_once = max(1, _NUMBERS_AT_ONCE // (family.agents * family.states) ** 2)
    for start in range(0, families, at_once):
        stop = min(start + at_once, families)
        done = start
        for sample in samples(range(seed + start, seed + stop), family):
            for claim, tally in zip(claims, tallies, strict=True):
                tally.add(claim.check(sample), sample.seeds)
            done += len(sample.seeds)
            show(done)
    return [tally.result(claim) for claim, tally in zip(claims, tallies, strict=True)]
