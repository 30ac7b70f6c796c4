"""Averaging beside a mixture, in a round's record: nothing else changes."""

import numpy as np
import pytest

from fedkl.clients.mixture import EvaluateAveraging
from fedkl.core.errors import UserError
from fedkl.io.arrays import to_arrays
from fedkl.server.loop import Federation

ON = {"evaluation.averaging": True}


def test_it_changes_nothing_else(tiny):
    plain, measured = Federation(tiny()), Federation(tiny(**ON, **{"evaluation.every": 1}))
    records = list(plain), list(measured)
    for name, array in to_arrays(plain.state).items():
        np.testing.assert_array_equal(array, to_arrays(measured.state)[name])
    assert all("averaging" not in record for record in records[0])
    assert all("averaging" in record for record in records[1])
    one, other = (
        [{k: v for k, v in r.items() if k not in ("averaging", "seconds")} for r in some]
        for some in records
    )
    assert one == other


def test_a_record_has_each_member_where_it_is_and_where_it_is_not(tiny):
    record = Federation(tiny(**ON)).run_round()
    found = record["averaging"]
    assert [row["client"] for row in found["members"]] == record["selected"]
    assert np.isfinite([found["mixture_return_mean"], found["kl"], found["tv"]]).all()
    for row in found["members"]:
        assert 0 < row["distance_mean"] <= row["distance_max"] + 1e-6
        assert 0 < row["distance_mean_elsewhere"] <= row["distance_max_elsewhere"] + 1e-6


def test_the_average_of_one_is_the_mixture_of_one(tiny):
    record = Federation(tiny(**ON, **{"federation.clients_per_round": 1})).run_round()
    found = record["averaging"]
    assert found["kl"] == pytest.approx(0.0, abs=1e-5)
    assert found["tv"] == pytest.approx(0.0, abs=1e-5)
    # The same states and the same noise as in the evaluation of the global policy.
    (member,) = found["members"]
    assert member["return_mean"] == pytest.approx(record["return_mean"], rel=1e-5)


def test_rounds_that_are_not_evaluated_have_none(tiny):
    records = list(Federation(tiny(**ON, **{"evaluation.every": 2})))
    assert ["averaging" in record for record in records] == [False, True, True]


def test_a_sample_of_clients_may_lack_the_members(tiny):
    federation = Federation(tiny(**ON, **{"evaluation.clients": 1}))
    record = federation.run_round()
    for row in record["averaging"]["members"]:
        own = row["client"] in federation.evaluated
        assert (row["distance_mean"] is not None) == own
        assert (row["distance_max_elsewhere"] is not None) == (not own)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"federation.personal": "action-bias"}, "where federation.personal is action-bias"),
        ({"preset": "figure-eight"}, "inside JAX"),
    ],
)
def test_what_cannot_be_compared_is_refused(tiny, settings, sentence):
    import fedkl

    preset = settings.pop("preset", "probe-point")
    with pytest.raises(UserError, match=rf"^evaluation\.averaging must be false .*{sentence}"):
        fedkl.preset(preset, set=settings | ON)


@pytest.mark.parametrize("absurd", [3e38, np.inf, np.nan])
def test_returns_that_no_world_pays_are_left_out_of_the_mixture(tiny, monkeypatch, absurd):
    """Without them, the others' are as they would be alone."""
    federation = Federation(tiny(**ON))
    run = federation.engine.run

    def first_is_broken(work, *asked):
        for client, answer in run(work, *asked):
            if isinstance(work, EvaluateAveraging) and client == 0:
                answer = answer._replace(mixture=np.float32(absurd))
            yield client, answer

    honest = Federation(tiny(**ON)).run_round()["averaging"]["mixture_return_mean"]
    monkeypatch.setattr(federation.engine, "run", first_is_broken)
    found = federation.run_round()["averaging"]["mixture_return_mean"]
    assert np.isfinite(found)
    assert found != honest
