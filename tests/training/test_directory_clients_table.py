"""Who differs in what, as a table."""

import csv
import time

import numpy as np
import pytest

from fedkl.training.directory import RunDirectory, as_csv, columns

WORDS = {
    "gravity": np.float32([9.8, 7.25]),
    "offset": np.array([[0.1, -0.5], [1e-7, 2.0]]),
    "delay": np.int32([0, 3]),
}


def test_a_vector_has_a_column_for_each_entry():
    found = columns(WORDS)
    assert list(found) == ["gravity", "offset_0", "offset_1", "delay"]
    assert found["offset_1"].tolist() == [-0.5, 2.0]


def test_a_line_for_each_client_tells_numbers_exactly():
    lines = as_csv(WORDS).splitlines()
    assert lines == [
        "client,gravity,offset_0,offset_1,delay",
        "0,9.8,0.1,-0.5,0",
        "1,7.25,1e-07,2.0,3",
    ]
    read = list(csv.DictReader(lines))
    assert np.float32(read[0]["gravity"]) == np.float32(9.8)


def test_single_precision_survives():
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    read = [float(line.split(",")[1]) for line in as_csv({"x": values}).splitlines()[1:]]
    np.testing.assert_array_equal(np.float32(read), values)


def test_a_hundred_thousand_clients_take_a_moment():
    words = {"x": np.random.default_rng(0).standard_normal((100_000, 2)).astype(np.float32)}
    start = time.process_time()
    text = as_csv(words)
    assert time.process_time() - start < 5
    assert text.count("\n") == 100_001


def test_a_run_keeps_the_table_and_never_writes_it_twice(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"a": 1})
    path = run.path / "clients.csv"
    run.write_clients({})
    assert not path.exists()
    run.write_clients(WORDS)
    assert path.read_text() == as_csv(WORDS)
    path.write_text("mine")
    run.write_clients(WORDS)
    assert path.read_text() == "mine"


def test_a_table_without_words_cannot_be_written():
    with pytest.raises(StopIteration):
        as_csv({})
