"""Every benchmark runs, at its smallest size, and its JSON has what README.md says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fedkl.io.user_folders import cache_folder

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALL = ["learner.iterations=1", "learner.epochs=1", "critic.epochs=1"]
SMALL_NETWORKS = ["learner.hidden=[4]", "critic.hidden=[4]"]
REACHER = [*SMALL, *SMALL_NETWORKS, "learner.steps=50", "evaluation.episodes=1"]
TRAFFIC = [*SMALL, *SMALL_NETWORKS, "learner.steps=20", "world.horizon=20"]

needs_sumo = pytest.mark.skipif(find_spec("libsumo") is None, reason="needs the extra `sumo`")
needs_sb3 = pytest.mark.skipif(
    find_spec("stable_baselines3") is None, reason="needs the extra `bench`"
)


def run(name: str, *arguments: str) -> str:
    """What a benchmark prints, with code that is compiled quickly and kept."""
    environment = os.environ | {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(cache_folder()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def result_of(name: str, *arguments: str) -> dict[str, Any]:
    return json.loads(run(name, *arguments))


def test_local_training_runs_without_stable_baselines3() -> None:
    result = result_of(
        "local_training", "--without-sb3", "--repetitions", "1", "--set", *REACHER[:-1]
    )
    assert result["setting"]["baseline"] == "left out"
    assert result["setting"]["steps_per_repetition"] == {"fedkl": 50}
    assert result["steps_per_second"]["fedkl"]["wall"]["median"] > 0
    assert result["times_faster"] is None
    parts = {"rollout", "policy_gradient_steps", "critic_gradient_steps", "shuffling", "rest"}
    assert set(result["iteration"]["shares"]) == parts
    assert {"measured_peak_gflops", "policy", "critic"} == set(result["gradient_steps"])


@needs_sb3
def test_local_training_runs_beside_stable_baselines3() -> None:
    result = result_of("local_training", "--repetitions", "1", "--set", *REACHER[:-1])
    assert result["times_faster"]["wall"]["median"] > 0


@pytest.mark.skipif(find_spec("stable_baselines3") is not None, reason="the extra is installed")
def test_local_training_says_what_is_missing() -> None:
    command = [sys.executable, str(BENCHMARKS / "local_training.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--without-sb3" in done.stderr


def test_local_training_compares_algorithms_with_fedavg() -> None:
    small = ["--repetitions", "1", "--set", *REACHER[:-1]]
    result = result_of("local_training", "--algorithm", "fedkl", "fedavg", *small)
    assert list(result["round_seconds"]) == ["fedavg", "fedkl"]
    ratios = result["relative_to_fedavg"]
    assert ratios["fedavg"]["cpu"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert ratios["fedkl"]["wall"]["median"] > 0


@needs_sb3
def test_plain_ppo_does_not_train_again_what_is_there(tmp_path: Path) -> None:
    results = tmp_path / "plain_ppo.jsonl"
    small = ["--steps", "6150", "--seeds", "3", "--episodes", "2", "--results", str(results)]
    result = result_of("plain_ppo", *small)
    # Three iterations of 2,050 steps: a third of them is the first.
    assert [row["steps"] for row in result["curve"]] == [2050, 4100, 6150]
    assert result["at_a_third"]["steps"] == 2050
    assert result["curve"][0]["return_mean"]["mean"] < -20
    (line,) = results.read_text().splitlines()
    told = json.loads(line)
    assert (told["seed"], told["episodes"]) == (3, 2)
    told["curve"][-1]["return_mean"] = 42.0
    results.write_text(json.dumps(told) + "\n")
    again = result_of("plain_ppo", *small)
    assert again["at_the_end"]["return_mean"]["mean"] == 42
    assert len(results.read_text().splitlines()) == 1


@pytest.mark.skipif(find_spec("stable_baselines3") is not None, reason="the extra is installed")
def test_plain_ppo_says_what_is_missing() -> None:
    command = [sys.executable, str(BENCHMARKS / "plain_ppo.py"), "--results", "none.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "the extra `bench`" in done.stderr


@needs_sb3
def test_gymnasium_worlds_compares_with_stable_baselines3_and_with_the_twin() -> None:
    small = ["--repetitions", "1", "--set", *SMALL, *SMALL_NETWORKS, "learner.steps=64"]
    result = result_of("gymnasium_worlds", "--ids", "Pendulum-v1", "Acrobot-v1", *small)
    assert result["setting"]["learner.steps"] == 64
    if hasattr(os, "sched_setaffinity"):
        assert result["machine"]["cores_used"] == 1
    for kind in ("collecting", "training"):
        for id, names in (
            ("Pendulum-v1", {"sb3", "fedkl", "twin"}),
            ("Acrobot-v1", {"sb3", "fedkl"}),
        ):
            found = result["environments"][id][kind]
            measured = names | ({"alone"} if kind == "collecting" else set())
            assert set(found["microseconds_a_step"]) == measured
            assert set(found["times_sb3"]) == measured - {"sb3"}
            assert ("host_over_twin" in found) == ("twin" in names)


@pytest.mark.skipif(find_spec("stable_baselines3") is not None, reason="the extra is installed")
def test_gymnasium_worlds_says_what_is_missing() -> None:
    command = [sys.executable, str(BENCHMARKS / "gymnasium_worlds.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "the extra `bench`" in done.stderr


def test_c1_within_a_round_sees_what_is_logged_and_draws_it(tmp_path: Path) -> None:
    figure = tmp_path / "c1.png"
    small = ["--rounds", "2", "--rules", "iteration", "round", "--figure", str(figure)]
    # Two clients of two, so that the one that is watched has trained before.
    few = ["federation.clients=2", "federation.clients_per_round=2", "learner.iterations=3"]
    result = result_of("c1_within_a_round", *small, "--set", *REACHER[1:], *few)
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert list(result["rules"]) == ["iteration", "round"]
    for first, second in result["rules"].values():
        assert (first["trained_before"], second["trained_before"]) == (False, True)
        assert len(first["c1"]) == 4
        assert len(first["distance_global"]) == len(first["guarded"]) == 3
        for seen in (first, second):
            assert seen["c1"][-1] == seen["logged_c1"]
        assert second["c1"][0] == first["c1"][-1]
    start, *within, _ = result["rules"]["round"][0]["c1"]
    assert within == [start, start]


def test_scaling_measures_a_round_its_checkpoint_and_its_line() -> None:
    small = ["--repetitions", "1", "--trained", "1", "--per-round", "--clients", "--large", "20"]
    result = result_of("scaling", *small, "--cache", str(cache_folder()), "--set", *REACHER)
    assert result["by_clients_per_round"] == result["by_clients"] == []
    row = result["whole_rounds"][0]
    assert (row["clients"], row["per_round"], row["rounds_measured"]) == (20, 3, 2)
    for part in ("round", "checkpoint", "log"):
        assert row[f"{part}_seconds"]["cpu"]["median"] > 0
        growth = result["whole_rounds_relative_to_fewest_clients"][part]
        assert growth["wall"] == growth["cpu"] == {"20": 1.0}
    assert row["checkpoint_bytes"]["median"] > 0
    assert row["log_bytes"]["median"] > 0
    assert row["peak_mb"] > 0


def test_start_has_a_row_for_each_command() -> None:
    rows = run("start", "--repetitions", "1").splitlines()
    assert len(rows) == 7
    assert rows[1].startswith("fedkl --help")


def test_threads_counts_what_differs() -> None:
    sizes = ["--features", "2", "64", "--samples", "64", "1000", "--threads", "1", "2", "3"]
    result = result_of("threads", *sizes)
    kinds = {"a.T @ b", "sum_of_products", "a @ b", "a @ b.T", "sum"}
    assert set(result["all"]) == set(result["but_one_thread"]) == kinds
    assert result["all"]["sum_of_products"] == {"tried": 8, "differ": 0, "fewest_samples": 0}
    assert result["all"]["a.T @ b"]["differ"] > 0  # else it is no test
    assert result["but_one_thread"]["sum"]["differ"] == 0


def test_tabular_compares_and_races() -> None:
    result = result_of("tabular", "--repetitions", "1", "--families", "1", "--rounds", "2")
    assert all(row["largest_difference"] < 1e-9 for row in result["argmax"])
    assert [(race["gamma"], race["heterogeneity"]) for race in result["races"]] == [
        (0.9, "P"),
        (0.9, "all"),
        (0.99, "P"),
        (0.99, "all"),
    ]


@needs_sumo
def test_figure_eight_measures_steps_and_a_round() -> None:
    result = result_of("figure_eight", "--repetitions", "1", "--rounds", "1", "--set", *TRAFFIC)
    for part in ("bare_step_us", "full_step_us", "full_relative_to_bare", "reset_ms"):
        assert result[part]["median"] > 0
    assert "sumo" in result["breakdown_us"]
    assert result["round"]["steps"] == 20
    assert result["round"]["relative_to_bare"]["median"] > 0


@needs_sumo
def test_figure_eight_critic_trains_every_way_once(tmp_path: Path) -> None:
    out = tmp_path / "critic.json"
    small = ["--rounds", "1", "--ways", "1x8", "--out", str(out), "--set", *TRAFFIC]
    run("figure_eight_critic", *small)
    ((name, way),) = [(n, w) for n, w in json.loads(out.read_text()).items() if n != "machine"]
    assert name.startswith("1 epochs of 8, seed 0, 1 rounds")
    assert len(way["returns"]) == len(way["seconds"]) == 1


def test_robustness_does_not_train_again_what_is_there(tmp_path: Path) -> None:
    results = tmp_path / "robustness.jsonl"
    small = ["--rounds", "4", "--iterations", "1", "--seeds", "5", "--jobs", "1"]
    small += ["--results", str(results), "--reducers", "mean", "grouped, r = 1", "grouped, r = 4"]
    small += ["--attacks", "none", "constant", "--set", "federation.clients=12", *REACHER[1:]]
    result = result_of("robustness", *small)
    table = result["table"]
    assert set(table) == {
        "mean | none",
        "mean | constant",
        "grouped, r = 1 | none",
        "grouped, r = 4 | none",
    }
    assert result["refused_by_validation"] == 0
    for measure in ("return", "sampled_return"):
        honest = result[f"by_{measure}"]["honest"]
        assert honest["low"] == honest["high"] == table["mean | none"][measure]["mean"]
    often, seldom = (table[f"grouped, r = {r} | none"]["bytes_up_regions"] for r in (1, 4))
    assert often == 4 * seldom > 0

    told = [json.loads(line) for line in results.read_text().splitlines()]
    told[0]["return"] = 42.0
    marked = "".join(json.dumps(line) + "\n" for line in told)
    results.write_text(marked)
    again = result_of("robustness", *small)["table"]
    assert again[f"{told[0]['reducer']} | {told[0]['attack']}"]["return"]["mean"] == 42
    assert results.read_text() == marked


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `ray`")
def test_a_comparison_on_ray_is_measured_beside_worker_processes() -> None:
    tiny = ["--pairs", "1", "--seeds", "1", "--rounds", "2", "--preset", "probe-point"]
    result = result_of("ray_comparison", *tiny, "--set", "learner.iterations=1")
    assert set(result["seconds"]) == {"jobs", "ray"}
    ratio = result["seconds"]["ray"]["median"] / result["seconds"]["jobs"]["median"]
    assert result["ratio"]["median"] == pytest.approx(ratio, rel=0.01)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `ray`")
def test_the_engine_on_ray_is_measured_beside_one_process() -> None:
    tiny = ["--preset", "probe-point", "--pairs", "1", "--short-pairs", "1", "--losses", "0"]
    result = result_of("ray_engine", *tiny, "--clients", "200", "400", "--rounds", "1")
    for name in ("reacher", "short"):
        assert result[name]["relative_to_in_process"]["median"] > 0
    assert result["losses"] is None
    assert [row["clients"] for row in result["large"]] == [200, 400]
    assert all(row["driver_peak_mb"] > 100 < row["actor_peak_mb"] for row in result["large"])


def test_a_report_over_several_runs_is_measured() -> None:
    result = result_of("report", "--runs", "6", "--rounds", "3", "--repetitions", "1")
    assert result["seconds"]["median"] > 0
    assert 10_000 < result["bytes"]["page"] < result["bytes"]["limit"]


def test_glitches_are_counted_named_and_resumed(tmp_path: Path) -> None:
    results = tmp_path / "glitches.jsonl"
    small = ["--glitches", "2", "--rewards", "1", "--healthy", "1", "--control", "2"]
    small += ["--worlds", "chain", "--set", "federation.rounds=2", "--results", str(results)]
    result = result_of("glitches", *small)
    lines = results.read_text().splitlines()
    assert len(lines) == 5
    assert result["found"]["observations"]["chain"]["runs"] == 2
    assert result["found"]["rewards"]["all"]["runs"] == 1
    assert result["found"]["nothing"]["all"]["runs"] == 1
    assert result_of("glitches", *small)["found"] == result["found"]
    assert results.read_text().splitlines() == lines


def test_lies_are_told_refused_and_resumed(tmp_path: Path) -> None:
    results = tmp_path / "lies.jsonl"
    small = ["--lies", "1", "--honest", "1", "--control", "2", "--rounds", "2"]
    small += ["--reducers", "suggested"]
    small += ["--results", str(results), "--set", *REACHER]
    result = result_of("lies", *small)
    assert result["found"]["suggested"]["honest"]["seeds"] == 1
    judged = result["found"]["suggested"]["lies"]
    assert list(judged) == ["everything", "all", "none"]
    assert judged["everything"] == judged["all"]
    for found in judged.values():
        assert (found["lies"], found["honest_refused"]) == (1, 0)
    lines = results.read_text()
    assert result_of("lies", *small)["found"] == result["found"]
    assert results.read_text() == lines


def test_the_range_of_honest_clients_is_within_what_is_allowed(tmp_path: Path) -> None:
    results = str(tmp_path / "honest.jsonl")
    result = result_of("honest_range", "--presets", "probe-point", "--results", results)
    assert (result["cells"], result["refused"]) == (6, {})
    assert {"policy, in norms", "rewards.mean, in scales", "a return"} <= result["found"].keys()
    for found in result["found"].values():
        assert found["allowed"] is None or 0 <= found["most"] < found["allowed"]
