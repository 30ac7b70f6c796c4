"""Measuring heterogeneity beside training: what is logged, who is believed, what it costs."""

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.engines import Failure
from fedkl.io.arrays import size_in_bytes, to_arrays
from fedkl.server.loop import Federation
from fedkl.server.setup import local_engine
from fedkl.server.state import broadcast

SMALL = {"heterogeneity.trajectories": 8, "heterogeneity.features": 4}


def parameters(federation):
    return to_arrays(federation.state.model)


def same(a, b):
    assert a.keys() == b.keys()
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name])


def test_measuring_for_the_log_changes_nothing_else(tiny):
    plain, measured = Federation(tiny()), Federation(tiny(**SMALL, **{"heterogeneity.every": 2}))
    records = list(plain), list(measured)
    same(parameters(plain), parameters(measured))
    one, other = ([{**r, "seconds": 0} for r in some] for some in records)
    changed = ("heterogeneity", "steps_measured", "bytes_measured")
    assert [{k: v for k, v in r.items() if k not in changed} for r in one] == [
        {k: v for k, v in r.items() if k not in changed} for r in other
    ]
    assert [r["heterogeneity"] is not None for r in other] == [True, False, True]
    assert all(r["heterogeneity"] is None and r["steps_measured"] == 0 for r in one)


def test_clients_that_see_on_scales_of_their_own_are_not_compared(tiny):
    federation = Federation(tiny(federation__observation_statistics="local", **SMALL))
    with pytest.raises(UserError, match=r"^federation\.observation_statistics must be fed"):
        federation.measure()


def test_a_record_has_everybody_and_what_it_cost(tiny):
    federation = Federation(tiny(**SMALL, **{"heterogeneity.every": 1}))
    model = size_in_bytes(broadcast(federation.state.model))
    record = federation.run_round()
    assert [row["client"] for row in record["heterogeneity"]] == [0, 1, 2, 3]
    horizon = federation.config.world.horizon
    assert record["steps_measured"] == 4 * 8 * horizon
    # Three vectors of two halves, of 4 features times 2 functions of the action, in 4 bytes each.
    assert record["bytes_measured"] == 4 * (model + 3 * 2 * 4 * 2 * 4)


def test_what_is_measured_before_a_round_can_be_measured_again(tiny):
    federation = Federation(tiny(**SMALL, **{"heterogeneity.every": 1}))
    alone = federation.measure().levels()
    record = federation.run_round()
    for row in record["heterogeneity"]:
        assert row["learning_potential"] == alone[row["client"]].learning_potential


@pytest.mark.parametrize("name", ["potential", "alignment"])
def test_a_selector_gets_what_it_asks_for_whatever_is_logged(tiny, name):
    by = {"selection.name": name, "selection.candidates": 3}
    quiet = Federation(tiny(**SMALL, **by))
    loud = Federation(tiny(**SMALL, **by, **{"heterogeneity.every": 1}))
    chosen = [[r["selected"] for r in federation] for federation in (quiet, loud)]
    assert chosen[0] == chosen[1]
    same(parameters(quiet), parameters(loud))


class Liar:
    """An engine some of whose clients do not measure as they should."""

    def __init__(self, config, answer):
        self._engine, self._answer = local_engine(config), answer

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run(self, work, model, jobs, key):
        for client, answer in self._engine.run(work, model, jobs, key):
            if work.name == "measure" and client == 1:
                answer = self._answer(answer)
                if answer is None:
                    continue
            yield client, answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda m: m._replace(expected=m.expected * np.nan), "expected is not finite"),
        (lambda m: m._replace(weighted=m.weighted[:, 1:]), "weighted has the shape"),
        (lambda m: Failure("its battery is empty"), "its battery is empty"),
        (lambda m: None, "it did not answer"),
    ],
)
def test_who_cannot_be_believed_is_left_out_with_a_reason(tiny, answer, reason):
    config = tiny(**SMALL)
    measured = Federation(config, Liar(config, answer)).measure()
    assert sorted(measured.measurements) == [0, 2, 3]
    assert reason in measured.refused[1]
    assert sorted(measured.levels()) == [0, 2, 3]


def test_the_log_shows_what_a_selector_went_by(tiny):
    config = tiny(
        **{
            "federation.clients": 6,
            "selection.name": "potential",
            "selection.candidates": 4,
            "heterogeneity.trajectories": 4,
            "heterogeneity.features": 2,
        }
    )
    record = Federation(config).run_round()
    found = sorted(record["heterogeneity"], key=lambda row: -row["learning_potential"])
    assert len(found) == 4
    assert sorted(row["client"] for row in found[:2]) == record["selected"]


def test_an_odd_number_of_trajectories_cannot_be_halved(tiny):
    with pytest.raises(UserError, match="must be even, not 7"):
        tiny(**{"heterogeneity.trajectories": 7})


def test_clients_that_are_selected_by_weights_weigh_as_much_in_the_federations_average(tiny):
    """All weight on client 0: it is the federation, and nothing sets it apart."""
    world = {"world.spread": 1.0, **SMALL}
    weights = {"selection.name": "weighted", "selection.weights": [1.0, 1e-9, 0.0, 0.0]}
    alike = Federation(tiny(**world)).measure()
    weighted = Federation(tiny(**world, **weights)).measure()
    assert alike.weights is None
    assert alike.levels()[0].heterogeneity_squared != pytest.approx(0, abs=1e-6)
    assert weighted.levels()[0].heterogeneity_squared == pytest.approx(0, abs=1e-6)
    # Among clients without any weight all weigh alike.
    among = weighted.levels([2, 3])
    same = alike.levels([2, 3])
    assert among[2].heterogeneity == same[2].heterogeneity
