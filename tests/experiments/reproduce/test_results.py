"""What is kept of a run: small, exact to six digits, and refused where it is damaged."""

import gzip

import numpy as np
import pytest
import tables

from fedkl.core.errors import UserError
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.results import (
    COLUMNS,
    column,
    read_table,
    read_tables,
    row_of,
    table_path,
    write_table,
)

CASE = EXPERIMENTS["reacher-init-state"].cases[0]._replace(rounds=3, seeds=(10, 11))


def test_a_table_comes_back_as_it_was_written_and_the_same_rows_give_the_same_bytes(tmp_path):
    rows = tables.table([-39.2246361, None, -1e-7], distance_global=[0.5, None, 1 / 3])
    for name in ("a", "b"):
        write_table(tmp_path / name, rows)
    assert read_table(tmp_path / "a") == rows
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    np.testing.assert_array_equal(column(rows, "return_mean"), [-39.2246, np.nan, -1e-7])


def test_a_row_has_what_was_measured_of_all_clients_and_of_those_selected():
    def measured(client, g, alignment):
        return {
            "client": client, "advantage": 5.0, "heterogeneity": 5.0 - g, "learning_potential": g,
            "alignment": alignment,
        }  # fmt: skip

    record = tables.EMPTY | {
        "round": 1,
        "selected": [0, 2],
        "heterogeneity": [measured(0, -1.0, 2.0), measured(1, -9.0, -9.0), measured(2, 4.0, 3.0)],
        "rejected": [{"client": 2, "reason": "x"}],
        "coefficients": {"c1": 0.25, "c2": 0.5},
    }
    row = row_of(record)
    assert tuple(row) == COLUMNS
    assert (row["learning_potential"], row["share_below_0"]) == (-2.0, pytest.approx(2 / 3, 1e-5))
    assert row["selected_learning_potential_mean"] == 1.5
    assert row["selected_learning_potential_least"] == -1.0
    assert row["selected_learning_potential_sum"] == 3.0
    assert row["selected_alignment_sum"] == 5.0
    assert (row["c1"], row["c2"], row["rejected"]) == (0.25, 0.5, 1.0)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"round,return_mean\n1,2\n", id="not compressed"),
        pytest.param(gzip.compress(b""), id="nothing compressed"),
        pytest.param(gzip.compress(b"round,magic\n1,2\n"), id="another column"),
        pytest.param(gzip.compress(b"return_mean\n2\n"), id="no rounds"),
        pytest.param(gzip.compress(b"round,return_mean\n1,2,3\n"), id="a cell too many"),
        pytest.param(gzip.compress(b"round,return_mean\n1,x\n"), id="no number"),
        pytest.param(gzip.compress(b"round,return_mean\n1,2\n3,4\n"), id="a round is missing"),
        pytest.param(gzip.compress(b"round,return_mean\n1,2\n" * 9)[:20], id="cut off"),
        pytest.param(gzip.compress(b"\xff\xfe"), id="no text"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(tmp_path, content):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.csv\.gz is damaged, or no table of a run"):
        read_table(path)


def test_the_tables_that_are_there_are_read_and_no_others(tmp_path):
    path = table_path(tmp_path, CASE, 11)
    path.parent.mkdir()
    write_table(path, rows := tables.table([1.0, 2.0, 3.0]))
    assert read_tables(tmp_path, [CASE]) == {CASE.name: {11: rows}}


def test_a_table_of_a_quick_look_is_refused_but_not_of_a_run_that_gave_up(tmp_path):
    path = table_path(tmp_path, CASE, 10)
    path.parent.mkdir()
    write_table(path, tables.table([1.0, 2.0]))
    with pytest.raises(UserError, match=r"has 2 rounds and its case 3: .* or of a quick one"):
        read_tables(tmp_path, [CASE])
    write_table(path, tables.table([1.0, 2.0], rejected=[[], [{"client": 0, "reason": "NaN"}]]))
    assert len(read_tables(tmp_path, [CASE])[CASE.name][10]) == 2
