"""Loading run directories, whole and broken."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.report import load_runs
from fedkl.report.groups import grouped
from fedkl.report.runs import without_rounds
from fedkl.report.table import run_row


def test_a_run(make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=5, seed=3, every=2)
    (run,) = load_runs(path)
    assert (run.label, run.seed, run.name, run.finished) == ("fedkl", 3, "run", True)
    assert run.rounds.tolist() == [1, 2, 3, 4, 5]
    assert np.isfinite(run.series("return_mean")).tolist() == [False, True, False, True, False]
    assert len(list(run.client_returns())) == 2
    assert len(list(run.client_returns([1, 2, 3]))) == 1
    np.testing.assert_allclose(run.megabytes, [0.4, 0.8, 1.2, 1.6, 2.0])
    np.testing.assert_allclose(run.seconds, [0.4, 0.8, 1.2, 1.6, 2.0])
    assert run.setting("algorithm", "d_global") == 0.05
    assert run.setting("nowhere", "nothing") is None


def test_a_comparison_keeps_the_order_of_its_algorithms(
    make_comparison: Callable[..., Path],
) -> None:
    runs = load_runs(make_comparison(["fmarl", "fedavg"], [10, 9], rounds=2))
    assert [(r.label, r.seed) for r in runs] == [
        ("fmarl", 9),
        ("fmarl", 10),
        ("fedavg", 9),
        ("fedavg", 10),
    ]


def test_a_torn_last_line_is_ignored(make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=3)
    whole = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(whole[:-40])
    (run,) = load_runs(path)
    assert run.rounds.tolist() == [1, 2]
    assert not run.finished


def test_a_torn_line_in_the_middle_is_an_error(make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=3)
    whole = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text("{" + whole)
    with pytest.raises(UserError, match=r"line 1\b"):
        load_runs(path)


def test_a_damaged_summary_is_named(make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=3)
    (path / "summary.json").write_text('{"seconds": 1')
    with pytest.raises(UserError, match=r"summary\.json is not valid JSON"):
        load_runs(path)


def test_a_run_without_a_summary_is_unfinished(make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=3)
    (path / "summary.json").unlink()
    (run,) = load_runs(path)
    assert run.summary is None
    assert not run.finished


def test_nothing_to_report(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="there is no directory"):
        load_runs(tmp_path / "missing")
    with pytest.raises(UserError, match="is no run, and holds none"):
        load_runs(tmp_path)
    with pytest.raises(UserError, match=r"no run in .* has finished a round"):
        load_runs(make_run(rounds=3, done=0))


def test_a_config_that_is_no_config(make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=1)
    (path / "config.toml").write_text("seed = 1\n")
    with pytest.raises(UserError, match="does not name its algorithm"):
        load_runs(path)
    (path / "config.toml").write_text("seed = = 1\n")
    with pytest.raises(UserError, match="is not valid TOML"):
        load_runs(path)


def test_runs_without_rounds_are_named(make_comparison: Callable[..., Path]) -> None:
    path = make_comparison(["fedkl", "fedavg"], [0, 1], rounds=2)
    shutil.rmtree(path / "fedavg-seed1")
    (path / "fedkl-seed1" / "metrics.jsonl").write_text("")
    runs = load_runs(path)
    assert without_rounds([path], runs) == ["fedavg-seed1", "fedkl-seed1"]
    assert [run.name for run in runs] == ["fedkl-seed0", "fedavg-seed0"]
    assert without_rounds([path / "fedkl-seed0"], runs[:1]) == []


def test_a_comparison_made_by_hand(
    make_comparison: Callable[..., Path], make_run: Callable[..., Path]
) -> None:
    path = make_comparison(["fedkl"], [0], rounds=2)
    make_run(path / "another", "fmarl", 7, rounds=2)
    make_run(path / "begun", "fmarl", 8, rounds=2, done=0)
    for plan in ("", 'title = "mine"\njobs = 0\nseeds = 3\nalgorithms = ["fmarl"]\n'):
        (path / "compare.toml").write_text(plan)
        runs = load_runs(path)
        order = ["another", "fedkl-seed0"] if plan else ["fedkl-seed0", "another"]
        assert [run.name for run in runs] == order
        assert without_rounds([path], runs) == ["begun"]
    (path / "compare.toml").write_text("seeds = = 1")
    with pytest.raises(UserError, match="is not valid TOML"):
        load_runs(path)


def test_coefficients_by_name(make_run: Callable[..., Path]) -> None:
    def edit(record: dict[str, Any]) -> None:
        found = {1: {"mine": 2.0}, 2: None, 3: {}, 4: {"mine": None, "c2": 1.0}}
        record["coefficients"] = found[record["round"]]

    (run,) = load_runs(make_run(rounds=4, edit=edit))
    assert run.coefficients == {"mine", "c2"}
    np.testing.assert_array_equal(run.coefficient("mine"), [2, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(run.coefficient("c2"), [np.nan, np.nan, np.nan, 1])


@pytest.mark.parametrize("value", [1e308, -1e200])
def test_a_return_that_cannot_be_squared_is_no_finite_one(
    make_run: Callable[..., Path], value: float
) -> None:
    (run,) = load_runs(make_run(rounds=3, edit=lambda record: record.update(return_mean=value)))
    assert run.not_finite == 3
    assert not grouped([run])[0].evaluated


def test_versions_that_are_no_table_are_named(make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=1)
    (path / "summary.json").write_text('{"versions": ["fedkl"]}')
    with pytest.raises(UserError, match=r"summary\.json has versions that are no table"):
        load_runs(path)


def test_as_many_clients_were_evaluated_as_have_returns(make_run: Callable[..., Path]) -> None:
    (run,) = load_runs(make_run(rounds=2, edit=lambda record: record.update(evaluated=[1, 2])))
    with pytest.raises(UserError, match="round 1 has 10 returns of 2 evaluated clients"):
        list(run.client_returns())


@pytest.mark.parametrize("returns", [np.array(["x"] * 10), np.zeros((2, 5)), np.zeros(10, "M8[s]")])
def test_a_file_of_returns_holds_numbers_of_clients(
    make_run: Callable[..., Path], returns: np.ndarray
) -> None:
    (run,) = load_runs(make_run(rounds=2, in_files=True))
    np.save(run.path / "returns" / "000002.npy", returns)
    with pytest.raises(UserError, match="the file with the returns of round 2"):
        list(run.client_returns())


def test_clients_returns_in_files_are_those_of_the_log(make_run: Callable[..., Path]) -> None:
    (logged,) = load_runs(make_run("a", rounds=4, every=2))
    (filed,) = load_runs(make_run("b", rounds=4, every=2, in_files=True))
    assert "return_per_client" not in filed.records[1]
    for there, here in zip(logged.client_returns(), filed.client_returns(), strict=True):
        np.testing.assert_array_equal(here.clients, there.clients)
        np.testing.assert_array_equal(here.returns, there.returns)
    (filed.path / "returns" / "000002.npy").unlink()
    assert len(list(filed.client_returns())) == 1


def test_each_client_of_a_sample_has_the_mean_of_its_own_evaluations(
    make_run: Callable[..., Path],
) -> None:
    def sample(record: dict[str, Any]) -> None:
        record["evaluated"] = [7, 2] if record["round"] == 19 else [2, 4]
        record["return_per_client"] = [-5.0, 1.0] if record["round"] == 19 else [3.0, 9.0]

    runs = load_runs(make_run(rounds=20, edit=sample))
    ((found,),) = [group.client_returns() for group in grouped(runs)]
    assert found.clients.tolist() == [2, 4, 7]
    assert found.returns.tolist() == [2.0, 9.0, -5.0]
    assert run_row(runs[0], target=0.0).worst_client_id == 7


def test_only_finished_runs_count_where_there_are_any(make_run: Callable[..., Path]) -> None:
    finished = load_runs(make_run("a", rounds=8))
    begun = load_runs(make_run("b", seed=1, rounds=8, done=3))
    begun += load_runs(make_run("c", seed=2, rounds=8, done=5))
    (group,) = grouped(finished + begun)
    assert [run.name for run in group.counted] == ["a"]
    assert [run.name for run in group.left_out] == ["b", "c"]
    (group,) = grouped(begun)
    assert [run.name for run in group.counted] == ["b", "c"]
    assert not group.finished
    assert group.curves("return_mean").rounds.tolist() == [1, 2, 3]
    assert group.curves("return_mean").values.shape == (2, 3)


def test_returns_that_are_not_finite_are_missing_for_all_seeds(
    make_run: Callable[..., Path],
) -> None:
    def diverge(record: dict[str, object]) -> None:
        if record["round"] == 2:
            record["return_mean"] = None  # what the log holds for nan

    runs = load_runs(make_run("a", rounds=3))
    runs += load_runs(make_run("b", seed=1, rounds=3, edit=diverge))
    runs += load_runs(make_run("c", seed=2, rounds=3, edit=diverge, in_files=True))
    (group,) = grouped(runs)
    assert group.curves("return_mean").rounds.tolist() == [1, 3]
    assert [run.not_finite for run in runs] == [0, 1, 1]
