"""The price of heterogeneity: what an algorithm loses because clients differ, and what others win
back of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedkl.core.errors import UserError
from fedkl.report.groups import Group, grouped, judged, levels
from fedkl.report.markup import html_table, paragraph
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import Estimate, FloatArray, estimate, iqm
from fedkl.report.table import minus, number, with_interval

_DRAWS = 10_000
_USUAL = (
    "fedavg"  # the algorithm whose loss is the price, where clients that are alike have several
)


class Price(NamedTuple):
    """The price of heterogeneity.

    Attributes:
        alike: runs on clients that are alike.
        base: runs of the same algorithm on clients that differ.
        value: how much higher the former end.
        won_back: the share of that by which each other algorithm ends above the base, by label.
    """

    alike: Group
    base: Group
    value: float
    won_back: dict[str, Estimate]

    def record(self) -> dict[str, Any]:
        """Return it for machines."""
        shares = [{"label": label, **share.__dict__} for label, share in self.won_back.items()]
        top = estimate(self.alike.finals()).__dict__
        found = {"alike": self.alike.label, "base": self.base.label, "final_alike": top}
        return {**found, "price": self.value, "won_back": shares}


def price_of(groups: Sequence[Group], alike: Sequence[LoadedRun]) -> Price:
    """Compare runs with those of one of their algorithms on clients that are alike.

    Raises:
        UserError: they cannot be compared.
    """
    own = [group for group in judged(groups) if group.evaluated]
    same = [group for group in grouped(alike) if group.evaluated]
    if len(levels(own)) != 1 or len(levels(same)) > 1:
        raise UserError(
            "--alike compares evaluated runs of one task on both sides; there are several or none"
        )
    tops = {_algorithm(group): group for group in same}
    name = next(iter(tops), "") if len(tops) == 1 else _USUAL
    bases = [group for group in own if _algorithm(group) == name]
    if name not in tops or len(bases) != 1:
        raise UserError(
            f"--alike needs one algorithm that both have once: clients that are alike have "
            f"{', '.join(tops) or 'none'}, the others {', '.join(map(_algorithm, own))}"
        )
    top, base = tops[name], bases[0]
    if top.last_round != base.last_round:
        raise UserError(
            f"--alike needs runs of as many rounds: {name} has been evaluated after "
            f"{top.last_round} where clients are alike, and after {base.last_round} where not"
        )
    finals = top.finals(), base.finals()
    if (value := float(iqm(finals[0]) - iqm(finals[1]))) <= 0:
        raise UserError(f"{name} ends no higher where clients are alike: there is no price")
    shares = {g.label: won_back(*finals, g.finals()) for g in own if g is not base}
    return Price(replace(top, label=f"{name}, clients alike"), base, value, shares)


def _algorithm(group: Group) -> str:
    return str(group.counted[0].setting("algorithm", "name"))


def won_back(top: FloatArray, base: FloatArray, own: FloatArray) -> Estimate:
    """Return the share of the price that an algorithm wins back, with a bootstrap interval over
    seeds."""
    generator = np.random.default_rng(0)

    def resampled(values: FloatArray) -> FloatArray:
        chosen = generator.integers(values.size, size=(_DRAWS, values.size))
        return np.asarray(iqm(values[chosen].T))

    def share(top: FloatArray, base: FloatArray, own: FloatArray) -> FloatArray:
        return (own - base) / (top - base)

    value = float(share(iqm(top), iqm(base), iqm(own)))
    if min(top.size, base.size, own.size) < 2:
        return Estimate(value)
    low, high = np.quantile(share(*map(resampled, (top, base, own))), [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def price_table(price: Price) -> str:
    """Return the section of the page."""
    ends = [(price.alike, ""), (price.base, "")]
    rows = [[g.label, minus(with_interval(estimate(g.finals()))), said] for g, said in ends]
    rows += [[label, "", _percent(share)] for label, share in price.won_back.items()]
    said = (
        f"{price.base.label} ends {minus(number(price.value))} lower because clients differ: that "
        "is the price of heterogeneity. Won back of it is how far another algorithm ends above "
        f"{price.base.label}, as a share; the seeds of all three are resampled independently."
    )
    table = html_table(["Algorithm", "Final return", "Of the price won back"], rows)
    return paragraph(said) + table


def _percent(share: Estimate) -> str:
    if share.low is None or share.high is None:
        return minus(f"{share.value:.0%}")
    return minus(f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]")
