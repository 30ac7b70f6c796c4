"""A run's directory tells who differs in what, however the run was made."""

import csv

import numpy as np
import pytest

import fedkl
from fedkl.experiments import compare
from fedkl.training import lifecycle
from fedkl.training.directory import RunDirectory


def silent(_):
    """Watches and warns of nothing."""


def rows(path):
    with (path / "clients.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_new_run_has_a_line_for_each_client(tiny, tmp_path):
    config = tiny(world__clients={"target": [0.25, 0.5], "action_offset": 0.1})
    run = lifecycle.create(config, tmp_path / "run")
    assert rows(run.path) == [
        {"client": str(i), "target": ["0.25", "0.5"][i % 2], "action_offset_0": "0.1"}
        for i in range(4)
    ]
    assert "\n[world.clients]\naction_offset = 0.1\n" in (run.path / "config.toml").read_text()


def test_the_table_is_what_the_federation_trains_on(tiny, tmp_path):
    config = tiny(world__clients={"target": {"normal": [0, 1]}}, federation__rounds=1)
    run = lifecycle.create(config, tmp_path / "run")
    federation = lifecycle.run_remaining(run, silent, silent)
    told = np.float32([float(row["target"]) for row in rows(run.path)])
    np.testing.assert_array_equal(told, federation.engine._site._params.target)


def test_a_run_of_a_comparison_gets_its_table_when_it_starts(tiny, tmp_path):
    config = tiny(world__spread=1.0, federation__rounds=1)
    plan = compare.ComparisonPlan("probe-point", ("fedkl",), (0,), 1)
    compare.create(tmp_path / "several", plan, lambda *_: config)
    run = RunDirectory.open(tmp_path / "several" / "fedkl-seed0")
    assert not (run.path / "clients.csv").exists()
    lifecycle.run_remaining(run, silent, silent)
    targets = [float(row["target"]) for row in rows(run.path)]
    np.testing.assert_allclose(targets, [-0.5, 1 / 6, 5 / 6, 1.5], rtol=1e-6)


def test_clients_that_are_alike_have_no_table(tiny, tmp_path):
    run = lifecycle.create(tiny(), tmp_path / "run")
    assert not (run.path / "clients.csv").exists()


def test_a_hundred_thousand_clients_have_a_table(tmp_path):
    many = {"federation.clients": 100_000, "evaluation.clients": 10}
    config = fedkl.preset("reacher-dynamics", set=many)
    run = lifecycle.create(config, tmp_path / "run")
    assert (run.path / "clients.csv").read_bytes().count(b"\n") == 100_001


def test_a_run_of_before_there_were_words_says_what_is_missing(tmp_path):
    mapping = fedkl.preset("reacher-iid").mapping()
    mapping["world"] |= {"scenario": "iid"}
    run = RunDirectory.create(tmp_path / "run", mapping)
    with pytest.raises(
        fedkl.UserError, match=r"^world\.scenario is not a setting; the world reacher has: cl"
    ):
        lifecycle.load(run, silent)
