"""The studies behind the page on theory: what must hold of them at any size."""

import numpy as np
import pytest

from fedkl.tabular import Exact, studies
from fedkl.tabular.claims import VACUOUS_FROM
from fedkl.tabular.iteration import ALGORITHMS
from fedkl.tabular.sampling import samples
from fedkl.tabular.studies import (
    ALIKE,
    DYNAMICS,
    EVERYTHING,
    SLIGHTLY,
    Improvement,
    Setting,
    Sizes,
    improvement,
    movement,
    slopes,
    study,
)

GAMMAS = np.array([0.02, 0.2, VACUOUS_FROM, 0.4, 0.5, 0.9, 0.99])


@pytest.fixture(scope="module")
def short() -> Improvement:
    """A few rounds of every algorithm where everything differs."""
    return improvement(EVERYTHING, 3, dict.fromkeys(ALGORITHMS, 5))


@pytest.mark.parametrize("setting", [ALIKE, SLIGHTLY, DYNAMICS, EVERYTHING])
def test_nobody_moves_beyond_the_thresholds_but_second_order_does(setting: Setting) -> None:
    found = movement(setting, 6, GAMMAS)
    assert list(found.shares) == list(studies.OBJECTIVES)
    for shares in found.shares.values():
        assert shares.shape == GAMMAS.shape
        assert ((shares >= 0) & (shares <= 1)).all()
    assert (found.shares["paper"][GAMMAS >= VACUOUS_FROM] == 0).all()
    assert (found.shares["corrected"][GAMMAS >= 0.5] == 0).all()
    assert (found.shares["second-order"] > 0).all()
    assert (found.shares["second-order-exact"] > 0).all()
    # A larger constant can only keep more agents from moving.
    assert (found.shares["paper"] <= found.shares["corrected"]).all()


def test_agents_alike_move_while_they_hardly_look_ahead() -> None:
    found = movement(ALIKE, 6, GAMMAS)
    assert found.shares["paper"][0] == 1
    assert found.shares["corrected"][3] > 0


def test_a_discount_is_studied_by_itself() -> None:
    together, alone = movement(SLIGHTLY, 5, GAMMAS), movement(SLIGHTLY, 5, GAMMAS[1:2])
    for name in studies.OBJECTIVES:
        assert together.shares[name][1] == alone.shares[name][0]


def test_improvement_starts_at_nothing_and_never_exceeds_what_is_possible(
    short: Improvement,
) -> None:
    for shares in short.shares.values():
        assert shares.shape == (6, 3)
        assert (shares[0] == 0).all()
        assert (shares <= 1 + 1e-6).all()
    assert (short.shares["paper"] == 0).all()
    assert (short.shares["second-order"][-1] > 0).all()
    assert (short.shares["line-search"][-1] > short.shares["second-order"][-1]).all()
    assert short.monotone >= {"paper", "second-order", "second-order-exact", "common-radius"}
    assert ((short.of_ceiling > 0) & (short.of_ceiling <= 1)).all()


def test_a_curve_runs_from_the_first_round_to_the_last() -> None:
    shares = np.stack([np.linspace(0, 1, 101), np.linspace(0, 0.5, 101)], axis=1)
    curve = Improvement(ALIKE, {"x": shares}, frozenset(), np.ones(2)).curve("x", points=3)
    assert curve.rounds.tolist() == [1, 10, 100]
    assert curve.low == pytest.approx([0.005, 0.05, 0.5])
    assert curve.mean == pytest.approx([0.0075, 0.075, 0.75])
    assert curve.high == pytest.approx([0.01, 0.1, 1.0])
    many = Improvement(ALIKE, {"x": shares}, frozenset(), np.ones(2)).curve("x")
    assert (np.diff(many.rounds) > 0).all()


def test_slopes_have_the_sign_and_the_size_of_a_small_step() -> None:
    seed = 2  # a family that refutes Corollary 1
    found = slopes(1, seed)
    sample = next(samples([seed]))
    at = Exact(sample.at.family[0, 0], sample.at.policy[0, 1])
    t = 1e-6
    weight = at.visitation[..., None] * at.policy
    for agent in range(at.family.agents):
        own = at.advantage[agent]
        after = Exact(at.family, at.policy * (1 + t * own))
        slope = (after.expected_return - at.expected_return) / t
        both = at.global_advantage / at.visitation[agent][:, None]
        norms = [np.sqrt((weight[agent] * x**2).sum()) for x in (own, both)]
        assert found.cosine[agent] == pytest.approx(slope / np.prod(norms), abs=1e-4)
        level = np.linalg.norm(at.heterogeneity_matrix[agent])
        assert found.ratio[agent] == pytest.approx(level / np.linalg.norm(own))


def test_slopes_account_for_every_agent_and_contradict_corollary_1() -> None:
    found = slopes(100)
    agents = sum(s.at.family.agents * len(s.seeds) for s in samples(range(100)))
    assert found.ratio.size + found.left_out == agents
    assert found.left_out > 0  # agents that are alike have no ratio
    assert (abs(found.cosine) <= 1).all()
    assert found.contradicts.any()
    assert (found.ratio[found.contradicts] >= 1).all()
    assert (found.cosine[found.contradicts] > 0).all()


def test_a_study_says_what_it_does_and_is_as_large_as_asked() -> None:
    lines: list[str] = []
    sizes = Sizes(2, (0.1, 0.9), 2, {"paper": 2, "qavg": 3}, 10)
    found = study(sizes, 3, lines.append)
    assert [m.setting for m in found.movements] == [ALIKE, SLIGHTLY, DYNAMICS, EVERYTHING]
    assert [i.setting for i in found.improvements] == [DYNAMICS, EVERYTHING]
    assert {n: s.shape for n, s in found.improvements[0].shares.items()} == {
        "paper": (3, 2),
        "qavg": (4, 2),
    }
    assert found.movements[0].gammas.tolist() == [0.1, 0.9]
    assert len(lines) == 4
