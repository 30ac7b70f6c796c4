"""Clients' rows in a checkpoint."""

import jax
import numpy as np
import pytest

from fedkl.server.loop import Federation
from fedkl.server.rows import SavedRows, read_rows


@pytest.fixture
def first(tiny):
    return Federation(tiny())._first_client


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def test_what_is_saved_of_a_client_is_read_again(first):
    other = jax.tree.map(lambda x: np.asarray(x + 1, x.dtype), first)
    rows = SavedRows({3: 7, 1: 2}, {3: other, 1: first})
    assert sorted(rows) == [1, 3]
    assert len(rows) == 2
    assert rows[3]["since"] == 7
    assert rows[3]["own.coefficients.c1"] == other.coefficients["c1"]
    since, own = read_rows(dict(rows), first)
    assert since == {3: 7, 1: 2}
    assert same_bits(own, {3: other, 1: first})


def test_where_clients_keep_their_states_themselves_the_server_knows_only_since_when(first):
    rows = SavedRows({3: 7}, {})
    assert dict(rows[3]) == {"since": np.asarray(7)}
    assert read_rows(dict(rows), first) == ({3: 7}, {})


def test_rows_are_made_when_they_are_asked_for(first):
    """A save writes what has changed; the rest is not even looked at."""
    asked = []

    class Counting(dict):
        def __getitem__(self, client):
            asked.append(client)
            return super().__getitem__(client)

    rows = SavedRows({c: 1 for c in range(1000)}, Counting({c: first for c in range(1000)}))
    assert len(rows) == 1000
    rows[5]
    assert asked == [5]


def test_a_row_of_another_federation_is_named(first):
    row = dict(SavedRows({0: 1}, {0: first})[0])
    del row["own.step_scale"]
    with pytest.raises(ValueError, match=r"own\.step_scale is missing"):
        read_rows({0: row}, first)
