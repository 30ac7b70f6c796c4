"""What runs are called beside each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedkl.report import load_runs, records
from fedkl.report.labels import labels
from fedkl.report.style import BLACK, BLUE, colours


def texts(configs: list[dict[str, Any]]) -> list[str]:
    return [label.text for label in labels(configs)]


def config(which: str = "fedkl", seed: int = 0, **tables: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {"algorithm": {"name": which}, "world": {"name": "reacher"}, "seed": seed}
    for name, table in tables.items():
        own[name] = own.get(name, {}) | table
    return own


def test_runs_that_differ_in_their_seed_alone_are_called_by_their_algorithm() -> None:
    assert texts([config(seed=0), config(seed=1), config("fedavg", 0)]) == [
        "fedkl",
        "fedkl",
        "fedavg",
    ]


def test_what_follows_from_the_algorithm_is_not_named() -> None:
    configs = [
        config("fedkl", algorithm={"d_global": 0.1}, learner={"d_local": 0.01}),
        config("fedprox", algorithm={"mu": 0.1}, learner={"d_local": 0.02}),
    ]
    assert texts(configs) == ["fedkl", "fedprox"]


def test_what_differs_between_runs_of_one_algorithm_is_named() -> None:
    configs = [
        config(algorithm={"d_global": d}, learner={"d_local": x})
        for d in (0.1, 0.3)
        for x in (0.01, 0.02)
    ]
    assert texts(configs) == [
        "fedkl d_global=0.1 d_local=0.01",
        "fedkl d_global=0.1 d_local=0.02",
        "fedkl d_global=0.3 d_local=0.01",
        "fedkl d_global=0.3 d_local=0.02",
    ]
    # Beside them one without such a setting is called by what it has.
    assert texts([*configs, config("fedavg", learner={"d_local": 0.02})])[-1] == (
        "fedavg d_local=0.02"
    )


def test_another_world_is_always_named() -> None:
    configs = [config("fedkl"), config("fedavg", world={"name": "pendulum"})]
    assert texts(configs) == ["fedkl world=reacher", "fedavg world=pendulum"]


def test_a_setting_that_an_older_version_did_not_have_tells_nothing() -> None:
    assert texts([config(learner={"guard": True}), config(seed=1)]) == ["fedkl", "fedkl"]


@pytest.mark.parametrize("name", ["preset", "plugins", "tuned_on"])
def test_where_a_config_comes_from_tells_nothing(name: str) -> None:
    assert texts([config() | {name: ["a"]}, config() | {name: ["b"]}]) == ["fedkl", "fedkl"]


def test_long_values_are_numbered() -> None:
    many = [config(world={"clients": {"gravity": [*range(n, n + 30)]}}) for n in (0, 5, 0)]
    assert texts(many) == ["fedkl gravity=#1", "fedkl gravity=#2", "fedkl gravity=#1"]


def _with(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    import tomllib

    values = tomllib.loads((path / "config.toml").read_text())
    change(values)
    (path / "config.toml").write_text(tomli_w.dumps(values))
    return path


def test_any_runs_are_grouped_by_what_differs_and_none_counts_twice(
    make_run: Callable[..., Path], make_comparison: Callable[..., Path]
) -> None:
    comparison = make_comparison(["fedkl", "fedavg"], [0, 1], rounds=3)

    def tighter(values: dict[str, Any]) -> None:
        values["algorithm"]["d_global"] = 0.01

    alone = [_with(make_run(f"tight{s}", "fedkl", s, 3), tighter) for s in (0, 1)]
    runs = load_runs(comparison, *alone, comparison / "fedkl-seed0")
    assert len(runs) == 6
    rows = records(runs)
    assert [(row["label"], row["algorithm"], row["algorithm.d_global"]) for row in rows] == [
        ("fedkl d_global=0.05", "fedkl", 0.05),
        ("fedavg", "fedavg", None),
        ("fedkl d_global=0.01", "fedkl", 0.01),
    ]
    assert all(row["seeds"] == 2 for row in rows)
    assert rows[0]["final_low"] <= rows[0]["final"] <= rows[0]["final_high"]


def test_a_folder_of_runs_is_reported_like_a_comparison(
    tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    for seed in (0, 1):
        make_run(f"runs/fedkl-{seed}", "fedkl", seed, 3)
    assert [run.label for run in load_runs(tmp_path / "runs")] == ["fedkl", "fedkl"]


def test_every_cell_of_a_sweep_has_a_colour_of_its_own() -> None:
    cells = [f"fedkl d_global={n}" for n in range(40)]
    assert len(set(colours(cells).values())) == 40
    assert list(colours(["mine", "fedkl"]).values()) == [BLACK, BLUE]


def test_of_very_many_groups_figures_show_those_that_ended_highest() -> None:
    from types import SimpleNamespace

    from fedkl.report.groups import drawn

    groups: Any = [
        SimpleNamespace(label=str(n), level="", evaluated=n != 3, finals=lambda n=n: [float(n % 7)])
        for n in range(20)
    ]
    assert drawn(groups[:12]) == groups[:12]
    # 6, 13; 5, 12, 19; 4, 11, 18; 10, 17; and the first two of those that ended at 2.
    shown = [group.label for group in drawn(groups)]
    assert shown == ["2", "4", "5", "6", "9", "10", "11", "12", "13", "17", "18", "19"]
    # Of two tasks the six that ended highest in each, though all of the first ended lower.
    for group in groups:
        group.level = "hard" if int(group.label) < 10 else "easy"
        group.finals = lambda n=int(group.label): [float(n)]
    shown = [group.label for group in drawn(groups)]
    assert shown == ["4", "5", "6", "7", "8", "9", "14", "15", "16", "17", "18", "19"]


def test_settings_of_the_world_are_the_level_and_all_else_is_the_method() -> None:
    made = [
        config(which, world={"noise": noise}, learner={"d_local": 0.1})
        for which in ("fedkl", "fedavg")
        for noise in (0.0, 0.4)
    ]
    made.append(config("fedkl", world={"noise": 0.4}, learner={"d_local": 0.2}))
    found = labels(made)
    assert [label.level for label in found] == [
        "noise=0.0", "noise=0.4", "noise=0.0", "noise=0.4", "noise=0.4",
    ]  # fmt: skip
    assert found[1].method == "fedkl d_local=0.1"
    assert found[4].method == "fedkl d_local=0.2"
    assert found[1].text == "fedkl noise=0.4 d_local=0.1"
    assert {label.level for label in labels(made[:1])} == {""}


def at_gravity(which: str, value: Any = None, **more: Any) -> dict[str, Any]:
    clients = {} if value is None else {"gravity": value}
    return config(which, world={"name": "cartpole", "clients": clients | more})


def test_a_parameter_of_clients_is_a_level_as_a_whole_and_nominal_where_it_is_not_given() -> None:
    values = [None, 9.8, {"uniform": [5, 15]}, {"uniform": [5, 20]}, {"linspace": [5, 15]}]
    found = labels([at_gravity(which, v) for which in ("fedkl", "fedavg") for v in values])
    levels = [
        "gravity=nominal",
        "gravity=9.8",
        "gravity={uniform=[5,15]}",
        "gravity={uniform=[5,20]}",
        "gravity={linspace=[5,15]}",
    ]
    assert [label.level for label in found] == 2 * levels
    assert [label.method for label in found] == 5 * ["fedkl"] + 5 * ["fedavg"]
    assert found[2].text == "fedkl gravity={uniform=[5,15]}"


def test_the_same_value_written_in_another_way_is_the_same_level() -> None:
    whole, real = {"uniform": [5, 15]}, {"uniform": [5.0, 15.0]}
    found = [at_gravity("fedkl", whole), at_gravity("fedavg", real), at_gravity("fedavg", 5)]
    assert [label.level for label in labels(found)] == [
        "gravity={uniform=[5,15]}",
        "gravity={uniform=[5,15]}",
        "gravity=5",
    ]


def test_levels_are_told_apart_also_where_they_follow_from_the_algorithm() -> None:
    found = labels([at_gravity("fedkl", 5), at_gravity("fedavg", 15)])
    assert [label.level for label in found] == ["gravity=5", "gravity=15"]
    assert [label.method for label in found] == ["fedkl", "fedavg"]


def test_a_parameter_that_only_another_world_has_is_not_called_nominal() -> None:
    made = [at_gravity("fedkl"), at_gravity("fedkl", 5), config("fedkl")]
    assert texts(made) == [
        "fedkl world=cartpole gravity=nominal",
        "fedkl world=cartpole gravity=5",
        "fedkl world=reacher",
    ]


def test_a_reference_of_one_level_is_of_that_level() -> None:
    alone = {"federation": {"personal": "all"}}
    made = [at_gravity("fedkl", 5), at_gravity("fedkl", 15), at_gravity("fedavg", 15) | alone]
    assert [label.level for label in labels(made)] == ["gravity=5", "gravity=15", "gravity=15"]
    assert labels(made)[2].method == "each alone"


def test_other_populations_of_clients_are_other_tasks() -> None:
    made = [config() | {"world_seed": seed} for seed in (0, 1)]
    assert [label.level for label in labels(made)] == ["world_seed=0", "world_seed=1"]
