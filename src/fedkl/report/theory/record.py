"""The numbers of the page on theory, as plain values for `theory.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedkl.report.theory.claims import tightness
from fedkl.report.theory.examples import Example
from fedkl.tabular.studies import GAMMA, Improvement, Movement, Studies
from fedkl.tabular.verification import Result


def record(
    results: Sequence[Result], studies: Studies, examples: Sequence[Example]
) -> dict[str, Any]:
    """Everything that the table, the figures and the examples show."""
    slopes = studies.slopes
    return {
        "claims": [_claim(result) for result in results],
        "movement": {
            "families": studies.sizes.movement_families,
            "settings": [_movement(found) for found in studies.movements],
        },
        "improvement": {
            "families": studies.sizes.improvement_families,
            "gamma": GAMMA,
            "settings": [_improvement(found) for found in studies.improvements],
        },
        "corollary_1": {
            "families": studies.sizes.slope_families,
            "level_over_potential": slopes.ratio,
            "normalised_slope": slopes.cosine,
            "left_out": slopes.left_out,
        },
        "examples": {example.name: example.numbers for example in examples},
    }


def _claim(result: Result) -> dict[str, Any]:
    if not result.looseness.size:
        return result.record()
    _, low, _, high = tightness(result)
    return result.record() | {"penalty_over_gap_5": low, "penalty_over_gap_95": high}


def _movement(found: Movement) -> dict[str, Any]:
    return asdict(found.setting) | {"gamma": found.gammas, "share_that_moves": found.shares}


def _improvement(found: Improvement) -> dict[str, Any]:
    curves = {name: asdict(found.curve(name)) for name in found.shares}
    return asdict(found.setting) | {
        "share_of_possible_improvement": curves,
        "never_lost": sorted(found.monotone),
        "share_of_ceiling": found.of_ceiling,
    }
