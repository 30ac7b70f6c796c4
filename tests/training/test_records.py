"""A run's records, for whoever looks at them."""

import pytest

import fedkl
from fedkl.training.directory import RunDirectory

LINES = [{"round": 1, "return_mean": None}, {"round": 2, "return_mean": 3.5}]


@pytest.fixture
def run(tmp_path):
    made = RunDirectory.create(tmp_path / "run", {})
    for line in LINES:
        made.metrics.append(line)
    return made.path


def test_records_are_those_of_the_log_in_order(run):
    assert fedkl.records(run) == fedkl.records(str(run)) == LINES


def test_pandas_makes_a_table_of_them(run):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(fedkl.records(run))
    assert table["round"].tolist() == [1, 2]
    assert table["return_mean"].iloc[1] == 3.5


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(fedkl.UserError, match="is not a run directory"):
        fedkl.records(tmp_path)
