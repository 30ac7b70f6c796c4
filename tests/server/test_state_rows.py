"""Clients' rows in a checkpoint."""

import jax
import numpy as np
import pytest

from fedkl.io.arrays import to_arrays
from fedkl.server.loop import Federation
from fedkl.server.state import Known, SavedRows, read_rows

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture
def first(tiny):
    return Federation(tiny())._first_client


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def test_what_is_saved_of_a_client_is_read_again(first):
    other = jax.tree.map(lambda x: np.asarray(x + 1, x.dtype), first)
    rows = SavedRows(Known({3: 7, 1: 2}, {3: other, 1: first}))
    assert sorted(rows) == [1, 3]
    assert len(rows) == 2
    assert rows[3]["since"] == 7
    assert rows[3]["own.coefficients.c1"] == other.coefficients["c1"]
    since, own = read_rows(dict(rows), first)
    assert since == {3: 7, 1: 2}
    assert same_bits(own, {3: other, 1: first})


def test_where_clients_keep_their_states_themselves_the_server_knows_only_since_when(first):
    rows = SavedRows(Known({3: 7}, {}))
    assert dict(rows[3]) == {"since": np.asarray(7)}
    assert read_rows(dict(rows), first) == ({3: 7}, {})


def test_rows_are_made_when_they_are_asked_for(first, monkeypatch):
    """A save writes what has changed; of the rest no arrays are made."""
    made = []

    def counted(row):
        made.append(int(row["since"]))
        return to_arrays(row)

    monkeypatch.setattr("fedkl.server.state.to_arrays", counted)
    since = {c: 10 * c for c in range(1000)}
    rows = SavedRows(Known(since, dict.fromkeys(range(1000), first)))
    assert len(rows) == 1000
    rows[5]
    assert made == [50]


def test_a_row_of_another_federation_is_named(first):
    row = dict(SavedRows(Known({0: 1}, {0: first}))[0])
    del row["own.step_scale"]
    with pytest.raises(ValueError, match=r"step_scale is missing"):
        read_rows({0: row}, first)
