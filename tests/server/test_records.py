"""What is logged of a round, and that the page on metrics says all of it."""

import re
from pathlib import Path
from typing import get_type_hints

import jax
import numpy as np
import pytest

from fedkl.clients.records import Model, Trained, Update
from fedkl.engines import Failure
from fedkl.learning.diagnostics import DIAGNOSTICS
from fedkl.learning.policy import Policy
from fedkl.learning.settings import LearnerSettings
from fedkl.server import records
from fedkl.server.loop import Federation
from fedkl.server.records import ClientRecord, Evaluated, Record
from fedkl.worlds import PointTarget

pytestmark = pytest.mark.usefixtures("quick_compilation")

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
ONLY_IN_THE_LOG = {"returns_file", "returns_sha256", "time"}
MODEL = Model(
    Policy(PointTarget(), LearnerSettings(hidden=()), jax.random.key(0)), None, None, None, {}, ()
)


def documented(heading):
    """The keys of the first table after a heading (or line) of the page."""
    table = PAGE[PAGE.index(heading) :].split("| key |")[1].split("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [key for cell in first_cells for key in re.findall(r"`(.*?)`", cell)]


def trained(kl_local, guarded, weight=64, **coefficients):
    metrics = {
        "kl_local": np.asarray(kl_local, np.float32),
        "distance_global": np.asarray(kl_local, np.float32) * 10,
        "guarded": np.asarray(guarded),
        "train_return": np.array([-5.0, -4.0], np.float32),
        "outliers": np.array([0.0, 1.0], np.float32),
        "step_scale": np.float32(0.5),
        "coefficients": {name: np.float32(c) for name, c in coefficients.items()},
    }
    return Trained(Update(MODEL, np.float32(weight), ()), metrics)


def test_the_page_on_metrics_has_every_key_of_a_round_and_no_other():
    keys = documented("## A round")
    assert len(keys) == len(set(keys))
    assert set(keys) == set(get_type_hints(Record)) | ONLY_IN_THE_LOG


def test_the_page_on_metrics_has_every_key_of_a_client_and_no_other():
    keys = documented("Each entry of `clients`")
    assert len(keys) == len(set(keys))
    assert set(keys) == set(get_type_hints(ClientRecord))


def test_returns_that_no_world_pays_are_left_out_of_the_mean():
    far = np.full(3, 3e38, np.float32)  # finite, but their sum is not
    ours = np.array([-1, -2, -3], np.float32)
    found = records.evaluated({0: ours, 1: far}, range(2), 3)
    assert found.failures == {1: "its returns are beyond 1e+15"}
    logged = records.returns(found, found, None)
    assert logged["return_mean"] == -2
    assert logged["evaluated"] == [0]


def test_averages_of_returns_are_in_float64():
    """In float32, three times 0.1 and 9e14 add up to 9e14, and its square would be rounded."""
    most = np.float32(9e14)
    answers = {0: np.array([most, -most, 0.3], np.float32), 1: np.full(3, 0.1, np.float32)}
    found = records.evaluated(answers, range(2), 3)
    assert found.returns.dtype == np.float64
    logged = records.returns(found, found, None)
    assert logged["return_per_client"] == pytest.approx([0.1, 0.1], rel=1e-6)
    assert logged["return_mean"] == pytest.approx(0.1, rel=1e-6)


def test_a_client_is_named_from_more_than_a_thousandth_of_broken_readings_on():
    def row(client, outliers):
        return {"client": client, "steps": 2000, "outliers": outliers}

    assert records.outliers([row(0, 0), row(1, 2)]) == {}
    named = records.outliers([row(0, 2), row(1, 3), row(2, 2000)])
    assert named == {
        "outliers": [{"client": 1, "share": 0.0015}, {"client": 2, "share": 1.0}],
    }


@pytest.mark.parametrize("algorithm", ["fedkl", "fedavg", "scaffold"])
def test_a_record_has_the_keys_of_its_type(tiny, algorithm):
    record = Federation(tiny(algorithm)).run_round()
    not_always = {
        "actors_replaced", "averaging", "held_back", "outliers", "retried", "simulators_replaced",
        "traffic_received", "traffic_sent", "unevaluated",
    }  # fmt: skip
    assert set(record) == set(get_type_hints(Record)) - not_always
    for client in record["clients"]:
        assert set(client) == set(get_type_hints(ClientRecord))
        assert set(client["learner"]) == set(DIAGNOSTICS)
    each = [client["learner"]["entropy"] for client in record["clients"]]
    assert record["learner"]["entropy"] == pytest.approx(np.mean(each))


def test_returns_are_means_over_episodes_then_over_clients():
    stochastic = Evaluated(np.array([[1.0, 3.0], [5.0, 7.0]]), {})
    found = records.returns(stochastic, Evaluated(stochastic.returns + 1, {}), [4, 9])
    assert found == {
        "return_mean": 4.0,
        "return_min": 2.0,
        "return_std": 2.0,
        "return_per_client": [2.0, 6.0],
        "deterministic_return_mean": 5.0,
        "evaluated": [4, 9],
    }
    assert records.returns(stochastic, stochastic, None)["evaluated"] is None


@pytest.mark.parametrize("sample", [None, [0, 1, 2]])
@pytest.mark.parametrize("lie", [np.inf, -np.inf, np.nan])
def test_a_return_that_is_no_finite_number_counts_nowhere_and_is_named(lie, sample):
    honest = np.array([1.0, 3.0], np.float32)
    answers = {0: np.array([9.0, lie], np.float32), 1: honest, 2: Failure("it is gone")}
    both = records.evaluated(answers, range(3), 2)
    found = records.returns(both, both, sample)
    assert found == {
        "return_mean": 2.0,
        "return_min": 2.0,
        "return_std": 0.0,
        "return_per_client": [2.0],
        "deterministic_return_mean": 2.0,
        "evaluated": [1],
        "unevaluated": [
            {"client": 0, "reason": "its returns are not finite numbers"},
            {"client": 2, "reason": "it is gone"},
        ],
    }


def test_of_returns_that_nobody_gave_the_reasons_are_left():
    nobody = records.evaluated({3: Failure("it is gone")}, [3], 2)
    assert np.isnan(nobody.returns).all()
    reasons = [{"client": 3, "reason": "it is gone"}]
    assert records.returns(nobody, nobody, [3]) == {
        **records.NOT_EVALUATED,
        "unevaluated": reasons,
    }


def test_diagnostics_are_of_each_client_and_unweighted_means_of_all():
    found = records.diagnostics(
        {
            5: trained([0.5, 0.25], [False, False], weight=32, c1=2.0, c2=1.0),
            2: trained([0.125, 0.125], [False, False], weight=64, c1=4.0, c2=3.0),
        }
    )
    assert [row["client"] for row in found["clients"]] == [2, 5]
    assert found["clients"][1] == {
        "client": 5,
        "kl_local": 0.375,
        "distance_global": 2.5,
        "guarded": 0,
        "step_scale": 0.5,
        "train_return": -4.0,
        "steps": 32,
        "outliers": 1,
        "coefficients": {"c1": 2.0, "c2": 1.0},
    }
    assert found["kl_local"] == 0.25
    assert found["distance_global"] == (1.25 + 2.5) / 2
    assert found["coefficients"] == {"c1": 3.0, "c2": 2.0}
    assert found["guarded"] == 0


def test_iterations_that_were_rolled_back_say_nothing_of_divergences():
    found = records.diagnostics(
        {
            0: trained([0.25, 99.0], [False, True]),
            1: trained([99.0, 99.0], [True, True]),
        }
    )
    assert [row["kl_local"] for row in found["clients"]] == [0.25, 0.0]
    assert [row["distance_global"] for row in found["clients"]] == [2.5, 0.0]
    assert found["guarded"] == 3


def test_of_nobody_there_is_nothing_to_say():
    assert records.diagnostics({}) == {
        "kl_local": None,
        "distance_global": None,
        "coefficients": {},
        "guarded": 0,
        "clients": [],
    }


def test_the_page_on_metrics_has_every_diagnostic_and_no_other():
    assert documented("### Diagnostics") == list(DIAGNOSTICS)


def test_a_learners_own_metrics_are_means_of_what_is_known_and_counts():
    """An iteration that was rolled back does not count, and one that has no number says nothing."""

    def client(counted, guarded):
        done = trained([0.1] * 3, guarded)
        return done._replace(metrics=done.metrics | {"counted": np.array(counted, np.float32)})

    found = records.diagnostics(
        {
            0: client([1.0, 2.0, 99.0], [False, False, True]),
            1: client([np.nan, 3.5, 4.5], [False, False, False]),
            2: client([np.nan, np.nan, 1.0], [False, False, True]),
        }
    )
    assert [row["learner"] for row in found["clients"]] == [
        {"counted": 1.5},
        {"counted": 4.0},
        {"counted": None},
    ]
    assert found["learner"] == {"counted": 2.75}
