"""The table of results: its numbers by hand, and how it prints."""

import io
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from rich.console import Console

from fedkl.report import load_runs, print_table, records, write_report
from fedkl.report.answer import answer, improvements, notes
from fedkl.report.exports import curves, latex
from fedkl.report.figures import _places, _return_by_level
from fedkl.report.groups import grouped, levels
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import iqm
from fedkl.report.table import NOTHING, minus, number, rounds_cell, run_row, table, target_of


def constant(value: float) -> Callable[[dict[str, Any]], None]:
    """An edit that makes the return `value + round`, and the second of three clients the worst."""

    def edit(record: dict[str, Any]) -> None:
        middle = value + record["round"]
        record["return_mean"] = middle
        record["return_per_client"] = [middle + 1, middle - 2, middle + 1]

    return edit


@pytest.fixture
def two_by_two(make_run: Callable[..., Path]) -> list[LoadedRun]:
    """fedkl ends at 20 and 22, fedavg at 10 and 14, after 20 rounds."""
    returns = {("fedkl", 0): 0, ("fedkl", 1): 2, ("fedavg", 0): -10, ("fedavg", 1): -6}
    return [
        run
        for (algorithm, seed), value in returns.items()
        for run in load_runs(
            make_run(f"{algorithm}-{seed}", algorithm, seed, 20, edit=constant(value))
        )
    ]


def test_rows_by_hand(two_by_two: list[LoadedRun]) -> None:
    fedkl, fedavg = table(two_by_two)
    # The last two of twenty rounds are final: 19.5 and 21.5; the IQM of two is their mean.
    assert fedkl.final is not None
    assert (fedkl.final.value, fedkl.final.low, fedkl.final.high) == (20.5, 19.5, 21.5)
    assert fedkl.best is not None
    assert fedkl.best.value == 21.0
    assert fedkl.drop is not None
    assert (fedkl.drop.value, fedkl.drop.low, fedkl.drop.high) == (0.0, 0.0, 0.0)
    assert fedkl.worst_client is not None
    assert fedkl.worst_client.value == 18.5
    # The target: fedavg's final return, 11.5. The curves are round + 1 and round - 8.
    assert (fedkl.rounds_to_target, fedkl.seeds_reaching) == (11, 2)
    assert (fedavg.rounds_to_target, fedavg.seeds_reaching) == (20, 1)
    assert fedkl.megabytes_to_target == pytest.approx(11 * 0.4)
    assert fedkl.seconds_to_target == pytest.approx(11 * 0.4)
    assert fedkl.seconds == pytest.approx(8)
    assert fedkl.megabytes_down == fedkl.megabytes_up == pytest.approx(0.2)
    assert rounds_cell(fedavg) == "20 (1 of 2 seeds)"


def test_a_given_target(two_by_two: list[LoadedRun]) -> None:
    fedkl, fedavg = table(two_by_two, target=21.5)
    assert (fedkl.rounds_to_target, fedkl.seeds_reaching) == (None, 1)
    assert rounds_cell(fedkl) == "never (1 of 2 seeds)"
    assert rounds_cell(fedavg) == "never"
    assert fedavg.megabytes_to_target is None


def test_the_row_of_a_run(two_by_two: list[LoadedRun]) -> None:
    row = run_row(two_by_two[1], target=11.5)
    assert row.final is not None
    assert (row.final.value, row.final.low) == (21.5, None)
    assert row.worst_client_id == 1
    assert row.rounds_to_target == 10


def test_the_largest_drop_is_a_mean_over_seeds(make_run: Callable[..., Path]) -> None:
    def falling(by: float) -> Callable[[dict[str, Any]], None]:
        # A fall by 50 in round 3, while it still settles, and one by `by` in round 15 of 30.
        falls = {3: 50.0, 15: by}

        def edit(record: dict[str, Any]) -> None:
            record["return_mean"] = -100 + record["round"] - falls.get(record["round"], 0.0)

        return edit

    runs = [
        load_runs(make_run(str(seed), "fedkl", seed, 30, edit=falling(by)))[0]
        for seed, by in enumerate((3.0, 5.0))
    ]
    (row,) = table(runs)
    # In round 15 it is below the 14 before it by one less than it fell.
    assert row.drop is not None
    assert (row.drop.value, row.drop.low, row.drop.high) == (3.0, 2.0, 4.0)
    one = run_row(runs[0], target=None)
    assert one.drop is not None
    assert one.drop.value == 2.0
    assert one.megabytes_up == pytest.approx(0.2)


def test_a_log_without_bytes_has_no_bytes_a_round(make_run: Callable[..., Path]) -> None:
    def without(record: dict[str, Any]) -> None:
        del record["bytes_up"], record["bytes_down"]

    (row,) = table(load_runs(make_run(rounds=2, edit=without)))
    assert row.megabytes_down is row.megabytes_up is None


def test_the_printed_tables_fit_80_columns_whatever_is_in_them(
    make_run: Callable[..., Path],
) -> None:
    def lower(record: dict[str, Any]) -> None:
        record["return_mean"] -= 150.0 + record["round"] % 3
        record["seconds"] = 1000.0

    names = ["fedkl", "fedkl-anchored", "a-plugin-of-somebody-else"]
    runs = [
        load_runs(make_run(f"{name}-{seed}", name, seed, 60, done=40, edit=lower))[0]
        for name in names
        for seed in (0, 1, 2)
    ]
    stream = io.StringIO()
    print_table(runs, Console(file=stream, width=80), target=-160.0)
    lines = stream.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert len([line for line in lines if line.startswith("fedkl-anchored * ")]) == 2
    assert "…" not in stream.getvalue()


def test_what_is_printed_below_the_tables(comparison: Path) -> None:
    stream = io.StringIO()
    print_table(load_runs(comparison), Console(file=stream, width=80))
    text = stream.getvalue()
    assert "fedavg" in text
    assert "Target: " in text
    assert "mean over the last 2 evaluated rounds" in text
    assert "Largest drop: below the best return so far, after round 6." in text


def test_the_printed_table_of_a_run_without_evaluation(make_run: Callable[..., Path]) -> None:
    stream = io.StringIO()
    runs = load_runs(make_run(rounds=20, done=3, every=10))
    print_table(runs, Console(file=stream, width=80))
    assert "No round has been evaluated yet." in stream.getvalue()
    assert "* not finished" in stream.getvalue()
    assert answer(grouped(runs)).startswith("No round has been evaluated yet")


def test_answer_with_an_interval(two_by_two: list[LoadedRun]) -> None:
    groups = grouped(two_by_two)
    assert answer(groups) == (
        "Over 2 seeds for each algorithm, fedkl ended with the highest return after 20 rounds: "
        "20.50 (95 % interval 19.50 to 21.50). That is 9.00 above fedavg (95 % interval of the "
        "difference 6.00 to 12.00): the interval does not include zero."
    )
    ((first, other, chance),) = improvements(groups)
    assert (first, other, chance.value) == ("fedkl", "fedavg", 1.0)
    assert notes(two_by_two, groups, []) == [
        "With so few seeds (2) the intervals are rough and rather too narrow."
    ]


def test_the_answer_names_the_second_and_probabilities_are_of_the_best(
    two_by_two: list[LoadedRun], make_run: Callable[..., Path]
) -> None:
    best = [
        run
        for seed in (0, 1)
        for run in load_runs(make_run(f"b-{seed}", "fmarl", seed, 20, edit=constant(5 + seed)))
    ]
    groups = grouped([*two_by_two, *best])
    # fmarl ends at 24.5 and 25.5, and is last in the table.
    assert "That is 4.50 above fedkl, which ended second (95 % interval" in answer(groups)
    assert [(one, other) for one, other, _ in improvements(groups)] == [
        ("fmarl", "fedkl"),
        ("fmarl", "fedavg"),
    ]


def test_answer_that_separates_nothing(make_run: Callable[..., Path]) -> None:
    levels = {("fedkl", 0): 0, ("fedkl", 1): 9, ("fedavg", 0): 1, ("fedavg", 1): 7}
    runs = [
        load_runs(make_run(f"{a}-{s}", a, s, 5, edit=constant(value)))[0]
        for (a, s), value in levels.items()
    ]
    assert answer(grouped(runs)).endswith(
        "the interval includes zero, so these runs do not separate the two."
    )


def test_answer_of_single_seeds_and_single_algorithms(two_by_two: list[LoadedRun]) -> None:
    one_each = grouped([two_by_two[0], two_by_two[2]])
    assert answer(one_each) == (
        "fedkl ended with the highest return after 20 rounds: 19.50, 10.00 above fedavg. "
        "A single seed cannot tell such a difference from chance."
    )
    assert improvements(one_each) == []
    assert notes([two_by_two[0], two_by_two[2]], one_each, []) == []
    assert answer(grouped(two_by_two[:1])).startswith(
        "fedkl ended with a return of 19.50 after 20 rounds, in one run;"
    )
    assert answer(grouped(two_by_two[:2])) == (
        "Over 2 seeds, fedkl ended with a return of 20.50 (95 % interval 19.50 to 21.50) "
        "after 20 rounds."
    )


def test_unequal_rounds_have_no_winner_and_unequal_settings_are_told(
    two_by_two: list[LoadedRun], make_run: Callable[..., Path]
) -> None:
    (short,) = load_runs(make_run("short", "fmarl", rounds=9))
    runs = [*two_by_two, short]
    groups = grouped(runs)
    assert answer(groups).endswith("so none of them is called best.")
    told = notes(runs, groups, ["fmarl-seed1"])
    assert "Planned, but without a finished round: fmarl-seed1." in told
    assert any("federation.rounds" in note for note in told)


def test_numbers() -> None:
    assert number(0.0) == "0"
    assert number(float("nan")) == number(float("-inf")) == number(None)
    assert number(-0.0000123) == "-1.23e-05"
    assert number(99.999) == "100.00"
    assert minus("fedkl-seed1: -3.5 [-4, -3]") == "fedkl-seed1: −3.5 [−4, −3]"  # noqa: RUF001


def test_different_worlds_have_no_common_target_and_none_of_them_is_best(
    make_run: Callable[..., Path],
) -> None:
    paths = [make_run(name, name, rounds=20) for name in ("fedkl", "fedavg")]
    config = tomllib.loads((paths[1] / "config.toml").read_text())
    config["world"]["name"] = "pendulum"
    (paths[1] / "config.toml").write_text(tomli_w.dumps(config))
    runs = load_runs(*paths)
    groups = grouped(runs)
    assert target_of(groups) is None
    assert answer(groups).startswith("These are different worlds (reacher, pendulum): returns are")
    for row in table(runs):
        assert row.final is not None
        assert rounds_cell(row) == NOTHING
    console = Console(file=io.StringIO(), width=200)
    print_table(runs, console)
    said = console.file.getvalue()
    assert "Different worlds (reacher, pendulum): returns are not comparable." in said
    assert "Target:" not in said
    # Whoever names a target is answered.
    assert all(row.seeds_reaching is not None for row in table(runs, -10.0))


@pytest.fixture
def sweep(make_run: Callable[..., Path]) -> list[Path]:
    """Two algorithms, two seeds each, at two levels of noise; one that is easy, one that is not."""
    paths = []
    for noise in (0.1, 0.4):
        for algorithm in ("fedkl", "fedavg"):
            for seed in (0, 1):
                path = make_run(f"{algorithm}-{noise}-seed{seed}", algorithm, seed=seed, rounds=20)
                config = tomllib.loads((path / "config.toml").read_text())
                config["world"]["noise"] = noise
                (path / "config.toml").write_text(tomli_w.dumps(config))
                paths.append(path)
    return paths


def test_levels_of_a_world_are_compared_within_and_never_with_each_other(sweep: list[Path]) -> None:
    runs = load_runs(*sweep)
    groups = grouped(runs)
    assert {level: [g.method for g in own] for level, own in levels(groups).items()} == {
        "noise=0.1": ["fedkl", "fedavg"],
        "noise=0.4": ["fedkl", "fedavg"],
    }
    assert target_of(groups) is None
    said = answer(groups)
    assert said.startswith("These are different tasks (noise=0.1, noise=0.4): returns are not ")
    for noise in (0.1, 0.4):
        assert f"With noise={noise}: Over 2 seeds for each algorithm, fedkl noise={noise} " in said
    pairs = [(first, other) for first, other, _ in improvements(groups)]
    assert pairs == [(f"fedkl noise={n}", f"fedavg noise={n}") for n in (0.1, 0.4)]
    console = Console(file=io.StringIO(), width=200)
    print_table(runs, console)
    assert "Different tasks (noise=0.1, noise=0.4): compare within each." in console.file.getvalue()


@pytest.fixture
def drawn_levels(make_run: Callable[..., Path]) -> list[Path]:
    """Two algorithms, two seeds each, where gravity is nominal and where clients draw it."""
    paths = []
    for algorithm in ("fedkl", "fedavg"):
        for place, clients in enumerate(({}, {"gravity": {"uniform": [5, 15]}})):
            for seed in (0, 1):
                path = make_run(f"{algorithm}-{place}-seed{seed}", algorithm, seed=seed, rounds=20)
                config = tomllib.loads((path / "config.toml").read_text())
                config["world"]["clients"] = clients
                (path / "config.toml").write_text(tomli_w.dumps(config))
                paths.append(path)
    return paths


def test_levels_of_a_parameter_of_clients_are_not_pooled(drawn_levels: list[Path]) -> None:
    runs = load_runs(*drawn_levels)
    groups = grouped(runs)
    names = ["gravity=nominal", "gravity={uniform=[5,15]}"]
    # One task after the other, though the runs are in the order of the algorithms.
    assert [(g.level, g.method, len(g.counted)) for g in groups] == [
        (level, method, 2) for level in names for method in ("fedkl", "fedavg")
    ]
    assert target_of(groups) is None
    assert answer(groups).startswith(f"These are different tasks ({', '.join(names)}): returns")
    assert [record["level"] for record in records(runs)] == [n for n in names for _ in range(2)]
    assert {row["level"] for row in curves(runs)} == {*names}
    console = Console(file=io.StringIO(), width=200)
    print_table(runs, console)
    printed = console.file.getvalue()
    assert f"Different tasks ({', '.join(names)}): compare within each." in printed
    drawing = _return_by_level(groups)
    assert drawing is not None
    axes = drawing.figure.axes[0]
    assert axes.get_xlabel() == "gravity"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["nominal", "{uniform=[5,15]}"]


def test_the_page_has_a_column_for_the_level(drawn_levels: list[Path], tmp_path: Path) -> None:
    text = write_report(tmp_path, load_runs(*drawn_levels)).read_text()
    assert "<h1>fedkl and fedavg on reacher: gravity=nominal, gravity={uniform=[5,15]}</h1>" in text
    assert text.count("<th>Level</th>") == 2  # results, and runs
    assert text.count(">gravity={uniform=[5,15]}</span></td>") == 2 + 4
    assert "gravity=nominal ends above a run of fedavg gravity={uniform" not in text
    assert "The answer at the top compares, within each level, the algorithm that ended" in text


def test_the_latex_table_names_the_level_and_marks_the_best_of_each(
    drawn_levels: list[Path],
) -> None:
    lines = latex(load_runs(*drawn_levels), None).splitlines()
    heads = [place for place, line in enumerate(lines) if "multicolumn" in line]
    assert "gravity=nominal" in lines[heads[0]]
    assert "gravity=\\{uniform=[5,15]\\}" in lines[heads[1]]
    assert [line.partition(" ")[0] for line in lines[heads[1] + 1 : heads[1] + 3]] == [
        "fedkl",
        "fedavg",
    ]


def test_return_is_drawn_against_the_level_with_a_line_for_each_algorithm(
    sweep: list[Path],
) -> None:
    runs = load_runs(*sweep)
    groups = grouped(runs)
    drawing = _return_by_level(groups)
    assert drawing is not None
    assert [trace.name for trace in drawing.traces] == ["fedkl", "fedavg"]
    for trace in drawing.traces:
        own = [group for group in groups if group.method == trace.name]
        assert trace.x.tolist() == [0.1, 0.4]
        assert trace.summary[0].tolist() == [float(iqm(group.finals())) for group in own]
    axes = drawing.figure.axes[0]
    assert axes.get_xlabel() == "noise"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.1", "0.4"]
    assert _return_by_level(grouped(load_runs(*sweep[:4]))) is None


def test_levels_that_are_no_numbers_are_placed_evenly() -> None:
    assert _places(["kind=iid", "kind=noise"]) == (
        ["iid", "noise"],
        {"kind=iid": 0, "kind=noise": 1},
    )
    several = ["a=1 b=2", "a=1 b=3"]
    assert _places(several) == (several, dict(zip(several, (0.0, 1.0), strict=True)))
