"""Two levels: a region is a server to its clients, and a client to the global server."""

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.io.arrays import size_in_bytes
from fedkl.server.aggregation import (
    SGD,
    AggregationChain,
    Grouped,
    Mean,
    Median,
    MultiKrum,
    NoStep,
    Regions,
)
from fedkl.server.state import broadcast

KEY = jax.random.key(0)
TWO = np.array([0, 0, 1, 1])


def regions(rounds=1, within=None, across=None, step=None, assignment=TWO):
    inner = AggregationChain((), within or Mean(), NoStep())
    return Regions(
        assignment, rounds, inner, AggregationChain((), across or Mean(), step or NoStep())
    )


def policy(model):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(model.policy)])


@pytest.mark.parametrize(("refused", "first"), [((), 1.0), ((8,), 3.0), ((9,), 1.0)])
def test_a_region_s_reducer_need_not_bear_those_that_were_refused_in_it(
    filled, update, refused, first
):
    """Of 0, 1, 2 and 9 the first region leaves 9 out, unless its liar (client 8) is found."""
    both = regions(within=MultiKrum(byzantine=1), assignment=np.array([0] * 4 + [1] * 4 + [0, 1]))
    model = filled(0.0)
    updates = {c: update(float(x), 1) for c, x in enumerate([0, 1, 2, 9])}
    result = both(both.init(model), 0, model, updates, KEY, refused).model
    assert policy(result).tolist() == [pytest.approx(first)] * 3


def test_one_round_of_means_in_both_levels_is_the_plain_mean(filled, update):
    rng = np.random.default_rng(0)
    model = filled(0.5, rng.normal(size=(10, 1)))
    updates = {
        c: update(rng.normal(), rng.integers(1, 99), rng.normal(c, 1, size=(5 + c, 1)))
        for c in range(4)
    }
    both = regions()
    two = both(both.init(model), 0, model, updates, KEY).model
    chain = AggregationChain((), Mean(), NoStep())
    one = chain(chain.init(model), 0, model, updates, KEY).model
    for a, b in zip(jax.tree.leaves(two), jax.tree.leaves(one), strict=True):
        assert a == pytest.approx(b, abs=1e-6)


def test_between_reports_clients_start_from_their_regions_model(filled, update):
    two, model = regions(rounds=2), filled(0.0)
    state = two.init(model)
    assert two.start(state, 0) is None
    first = two(state, 0, model, {0: update(2.0, 1), 1: update(4.0, 1), 2: update(9.0, 1)}, KEY)
    assert eqx.tree_equal(first.model, model)
    assert policy(two.start(first.state, 1)).tolist() == [3.0] * 3
    assert policy(two.start(first.state, 3)).tolist() == [9.0] * 3
    assert two.start(first.state, 0) is two.start(first.state, 1)
    # Region 0 goes on from 3 to 5, region 1 has nobody in this round: (2 + 1) to 1 by weight.
    second = two(first.state, 1, first.model, {0: update(5.0, 1)}, KEY)
    assert policy(second.model) == pytest.approx([(3 * 5 + 1 * 9) / 4] * 3)
    assert two.start(second.state, 0) is None


def test_statistics_cross_once_and_exactly(filled, update):
    rng = np.random.default_rng(3)
    parts = [rng.normal(2.0, 3.0, size=(n, 1)) for n in (20, 5, 6, 7)]
    two, model = regions(rounds=2), filled(0.0, parts[0])
    first = two(
        two.init(model), 0, model, {0: update(0, 5, parts[1]), 2: update(0, 6, parts[2])}, KEY
    )
    regional = two.start(first.state, 0).observations
    assert regional.mean == pytest.approx(np.concatenate(parts[:2]).mean(0), abs=1e-5)
    second = two(first.state, 1, first.model, {1: update(0, 7, parts[3])}, KEY).model
    everything = np.concatenate(parts)
    assert second.observations.count == 38
    assert second.observations.mean == pytest.approx(everything.mean(0), abs=1e-6)
    assert second.observations.squares / 38 == pytest.approx(everything.var(0), abs=1e-6)


def test_bytes_cross_only_when_regions_report(filled, update):
    model = filled(0.0)
    size = size_in_bytes(broadcast(model))
    updates = {0: update(1.0), 2: update(2.0)}
    crossed = {}
    for rounds in (1, 4):
        two = regions(rounds)
        state, total = two.init(model), 0
        for t in range(8):
            made = two(state, t, model, updates, KEY)
            state, total = made.state, total + made.bytes_up
            assert made.bytes_down in (0, 2 * size)
        crossed[rounds] = total
    assert crossed[1] == 8 * 2 * (size + 4)
    assert crossed[4] * 4 == crossed[1]


def test_any_reducer_at_either_level_and_a_step_above(filled, update):
    # Within: medians 2 and 20. Across: their mean 11. Step: half of the way from 0.
    assignment = np.array([0, 0, 0, 1, 1, 1])
    two = regions(within=Median(), step=SGD(server_learning_rate=0.5), assignment=assignment)
    values = [1.0, 2.0, 999.0, 20.0, 30.0, -999.0]
    updates = {c: update(v) for c, v in enumerate(values)}
    model = filled(0.0)
    assert policy(two(two.init(model), 0, model, updates, KEY).model) == pytest.approx([5.5] * 3)


def test_a_round_in_which_no_region_has_anything_to_report_changes_nothing(filled, update):
    two, model = regions(rounds=2), filled(1.0)
    state = two.init(model)
    made = two(state, 1, model, {}, KEY)
    assert eqx.tree_equal(made.model, model)
    assert made.bytes_up == 0


def test_the_state_keeps_its_structure(filled, update):
    two, model = regions(rounds=2), filled(0.0)
    first = two(two.init(model), 0, model, {0: update(1.0)}, KEY)
    assert jax.tree.structure(first.state) == jax.tree.structure(two.init(model))
    assert all(isinstance(x, np.ndarray | np.generic) for x in jax.tree.leaves(first.state))


def test_regions_are_equal_in_size_unless_told_otherwise():
    assert Grouped(regions=3).assignment(7).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert Grouped(region_of=(1, 0, 1)).assignment(3).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("settings", "clients", "sentence"),
    [
        ({"regions": 5}, 4, "aggregation.regions must be at most federation.clients (4), not 5"),
        ({"region_of": (0, 1)}, 3, "aggregation.region_of must name a region for each of"),
        ({"region_of": (0, 2)}, 2, "aggregation.region_of must name every region from 0"),
        ({"within": "grouped"}, 2, "aggregation.within must be a reducer of one level"),
        ({"across": "best"}, 2, "aggregation.across: there is no reducer 'best'"),
    ],
)
def test_regions_that_do_not_cover_the_clients_are_refused(settings, clients, sentence):
    with pytest.raises(UserError) as error:
        Grouped(**settings).assignment(clients)
    assert sentence in str(error.value)
