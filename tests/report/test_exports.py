"""What goes into a paper: curves, tables and figures as files, and what they say by hand."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import fedkl
from fedkl.core.errors import UserError
from fedkl.report import load_runs, write_report
from fedkl.report.exports import FILES, curves, latex
from fedkl.report.figures import _learning_curves, _price
from fedkl.report.groups import grouped
from fedkl.report.lines import X_AXES, lines_of
from fedkl.report.pairs import pairs_of
from fedkl.report.paper import draw_paper
from fedkl.report.pictures import matplotlib_style, rendered
from fedkl.report.price import price_of
from fedkl.report.table import table
from fedkl.training.initial import INITIAL, _digest
from fedkl.training.records import training_seconds

MakeRun = Callable[..., Path]


def at(level: float) -> Callable[[dict[str, Any]], None]:
    """An edit that gives every round the same return."""

    def edit(record: dict[str, Any]) -> None:
        record["return_mean"] = level

    return edit


def with_settings(path: Path, table: str, **settings: Any) -> Path:
    """Changes the config of a run."""
    config = load_runs(path)[0].config
    changed = {**config, table: {**config.get(table, {}), **settings}}
    (path / "config.toml").write_text(tomli_w.dumps(changed))
    return path


def test_curves_have_a_row_for_each_run_and_evaluated_round(make_run: MakeRun) -> None:
    paths = [make_run(f"fedavg-{seed}", "fedavg", seed, 6, every=2) for seed in (0, 1)]
    rows = curves(load_runs(*paths))
    assert [(row["run"], row["seed"], row["round"]) for row in rows] == [
        (f"fedavg-{seed}", seed, round_) for seed in (0, 1) for round_ in (2, 4, 6)
    ]
    assert rows[1]["env_steps"] == 4 * 6400
    assert rows[1]["bytes_up"] == rows[1]["bytes_down"] == 4 * 200_000
    logged = [json.loads(line) for line in (paths[0] / "metrics.jsonl").read_text().splitlines()]
    assert rows[1]["return_min"] == logged[3]["return_min"]


def test_gradient_steps_are_those_of_the_accepted_updates(make_run: MakeRun) -> None:
    def three(record: dict[str, Any]) -> None:
        record["clients"] = [{"client": client} for client in range(3)]

    path = make_run(rounds=2, edit=three)
    (run,) = load_runs(
        with_settings(path, "learner", iterations=5, epochs=2, steps=100, minibatch=32)
    )
    # 3 clients, 5 iterations, 2 epochs of 3 whole minibatches.
    assert run.gradient_steps.tolist() == [90, 180]
    (run,) = load_runs(with_settings(path, "learner", name="own"))
    assert curves([run])[0]["gradient_steps"] is None


def test_a_varied_setting_is_a_column_of_the_curves(make_run: MakeRun) -> None:
    paths = [
        with_settings(make_run(str(value), rounds=1), "learner", d_local=value)
        for value in (0.1, 0.2)
    ]
    assert [row["learner.d_local"] for row in curves(load_runs(*paths))] == [0.1, 0.2]


def test_the_latex_table_marks_the_best_and_what_cannot_be_told_from_it(make_run: MakeRun) -> None:
    levels = {"fedkl": [10, 12], "fedprox": [11, 11.5], "fedavg": [0, 1]}
    paths = [
        make_run(f"{name}-{seed}", name, seed, 4, edit=at(level))
        for name, found in levels.items()
        for seed, level in enumerate(found)
    ]
    text = latex(load_runs(*paths), None)
    assert "\\textbf{$11.25$} [$11.00$, $11.50$]" in text
    assert "\\textbf{$11.00$} [$10.00$, $12.00$]" in text
    assert "& $0.500$ [$0$, $1.00$]" in text
    assert text.count("\\toprule") == text.count("\\bottomrule") == 1
    assert all(line.count("&") == 7 for line in text.splitlines() if line.startswith("fed"))


def test_what_latex_would_obey_is_escaped(make_run: MakeRun) -> None:
    path = with_settings(make_run(rounds=1), "algorithm", name="my_own&50%")
    assert "my\\_own\\&50\\% & 1 &" in latex(load_runs(path), None)


def test_seconds_of_training_are_without_the_rounds_that_compile() -> None:
    def record(seconds: float, evaluated: bool) -> dict[str, Any]:
        return {"seconds": seconds, "return_mean": 1.0 if evaluated else None}

    rounds = [record(90, False), record(30, True), record(2, False), record(3, True)]
    # Another process went on after the third, and compiled again.
    rounds += [record(80, False), record(3, True), record(2, False), record(3, True)]
    rounds += [record(2, False)]
    assert training_seconds(rounds) == 5 * 2 + 4 * 3
    assert training_seconds(rounds[:1]) is None
    assert training_seconds([record(9, False), record(2, False), record(40, True)]) == 6


def test_the_table_has_times_that_compare(make_run: MakeRun) -> None:
    def first_compiles(record: dict[str, Any]) -> None:
        record["seconds"] = 100.0 if record["round"] == 1 else 0.5

    runs = load_runs(make_run(rounds=10, edit=first_compiles))
    (row,) = table(runs)
    assert (row.seconds_training, row.steps_per_second) == (5.0, 6400 / 0.5)
    # The second column means the same: of a target that the third round reaches.
    (row,) = table(runs, float(runs[0].series("return_mean")[2]))
    assert (row.rounds_to_target, row.seconds_to_target) == (3, 1.5)


def test_seconds_to_target_are_not_known_of_one_round(make_run: MakeRun) -> None:
    (row,) = table(load_runs(make_run(rounds=1)), -1e9)
    assert (row.rounds_to_target, row.seconds_to_target) == (1, None)
    assert row.megabytes_to_target == pytest.approx(0.4)


@pytest.mark.parametrize("x", X_AXES)
def test_every_x_axis_has_its_values_and_its_name(make_run: MakeRun, x: str) -> None:
    def measured(record: dict[str, Any]) -> None:
        record["clients"] = [{"client": 0}]
        record["steps_measured"] = 600

    path = make_run(rounds=4, edit=measured)
    with_settings(path, "learner", iterations=1, epochs=1, steps=64, minibatch=64)
    groups = grouped(load_runs(path))
    (line,) = lines_of(groups, "return_mean", X_AXES[x].over)
    a_round = {"rounds": 1, "steps": 7000, "gradient-steps": 1, "bytes": 0.4}[x]
    assert line.x.tolist() == pytest.approx([a_round * n for n in (1, 2, 3, 4)])
    with matplotlib_style():
        drawing = _learning_curves(groups, None, x)
    assert drawing is not None
    assert X_AXES[x].label in (
        *(a.get_xlabel() for a in drawing.figure.axes),
        drawing.figure.get_supxlabel(),
    )


def test_figures_are_the_same_bytes_with_text_as_text_and_no_day(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    groups = grouped(load_runs(make_run(rounds=3)))

    def files() -> dict[str, bytes]:
        with matplotlib_style():
            drawing = draw_paper(groups, "rounds")
            assert drawing is not None
            return dict(rendered({"paper": drawing})["paper"].files)

    found = files()
    assert found == files()
    assert b"mean return over clients</text>" in found[".svg"]
    assert b"/FontType 42" in found[".pdf"] or b"/CIDFontType2" in found[".pdf"]
    assert b"/CreationDate" not in found[".pdf"]
    assert b"dc:date" not in found[".svg"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert b"/CreationDate (D:20231114" in files()[".pdf"]


def test_the_figure_for_a_paper_has_all_algorithms_in_one_panel_of_a_column(
    comparison: Path,
) -> None:
    with matplotlib_style():
        drawing = draw_paper(grouped(load_runs(comparison)), "steps")
    assert drawing is not None
    (axes,) = drawing.figure.axes
    assert axes.get_legend_handles_labels()[1] == ["fedkl", "fedavg"]
    assert drawing.figure.get_figwidth() <= 3.5
    assert len(axes.collections) == 2  # the intervals


def test_a_report_writes_its_files_and_says_where_they_are(
    comparison: Path, tmp_path: Path
) -> None:
    page = fedkl.report(comparison, tmp_path, target=-12.0, x="steps")
    assert page == tmp_path / "report.html"
    with (tmp_path / "curves.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 6 * 20
    text = page.read_text()
    for name in (*FILES, "figures/paper.pdf"):
        assert (tmp_path / name).is_file()
        assert f'href="{name}"' in text
    assert "--target -12 --x steps --out" in text
    with pytest.raises(UserError, match="x must be one of rounds, steps"):
        fedkl.report(comparison, tmp_path, x="step")
    with pytest.raises(UserError, match="directories must name"):
        fedkl.report([])


def test_round_0_is_drawn_and_in_the_curves_and_in_no_statistic(make_run: MakeRun) -> None:
    path = make_run(rounds=3, edit=at(5.0))
    (without,) = load_runs(path)
    first = {"round": 0, "return_mean": 9.0, "return_min": 1.0, "return_std": 0.5}
    first |= {"deterministic_return_mean": 2.0, "config": _digest(without.config)}
    (path / INITIAL).write_text(json.dumps(first))
    (run,) = load_runs(path)
    assert table([run]) == table([without])
    rows = curves([run])
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert (rows[0]["return_mean"], rows[0]["env_steps"]) == (9.0, 0)
    for x in ("rounds", "bytes"):
        (line,) = lines_of(grouped([run]), "return_mean", X_AXES[x].over)
        assert (line.x[0], line.iqm[0]) == (0.0, 9.0)
    with_settings(path, "learner", epochs=3)
    assert load_runs(path)[0].initial is None
    (path / INITIAL).write_text("{")
    with pytest.raises(UserError, match="damaged"):
        load_runs(path)


@pytest.fixture
def priced(make_run: MakeRun, tmp_path: Path) -> tuple[Path, Path]:
    """Clients that are alike, and clients that differ."""
    for seed in range(3):
        make_run(f"iid/fedavg-seed{seed}", "fedavg", seed, 4, edit=at(-4.0))
        for name, level in {"fedavg": -8.0, "fedkl": -7.0, "fedkl-anchored": -5.0}.items():
            make_run(f"differ/{name}-seed{seed}", name, seed, 4, edit=at(level))
    return tmp_path / "iid", tmp_path / "differ"


def test_the_price_of_heterogeneity_by_hand(priced: tuple[Path, Path], tmp_path: Path) -> None:
    iid, differ = priced
    runs = load_runs(differ)
    price = price_of(grouped(runs), load_runs(iid))
    assert price.value == pytest.approx(4.0)
    shares = {label: share.value for label, share in price.won_back.items()}
    assert shares == pytest.approx({"fedkl": 0.25, "fedkl-anchored": 0.75})
    with matplotlib_style():
        drawing = _price(grouped(runs), price.alike, "rounds")
    assert drawing is not None
    assert drawing.traces[0].name == "fedavg, clients alike"
    page = write_report(tmp_path, runs, price=price, alike=iid)
    text = page.read_text()
    assert "fedavg ends 4.00 lower because clients differ" in text
    assert "75% [75%, 75%]" in text
    assert f"--alike {iid.name}" in text


def test_a_price_needs_an_algorithm_that_both_have(priced: tuple[Path, Path]) -> None:
    iid, differ = priced
    only = [run for run in load_runs(differ) if run.label != "fedavg"]
    with pytest.raises(UserError, match="--alike needs one algorithm that both have once"):
        price_of(grouped(only), load_runs(iid))


def test_every_pair_is_compared_within_its_task(priced: tuple[Path, Path]) -> None:
    found = pairs_of(grouped(load_runs(priced[1])))
    assert len(found) == 3
    pair = next(pair for pair in found if {pair.first, pair.second} == {"fedavg", "fedkl"})
    higher = pair.first == "fedkl"
    assert pair.difference.value == pytest.approx(1.0 if higher else -1.0)
    assert pair.improvement.value == float(higher)


def test_a_title_names_the_environment(make_run: MakeRun) -> None:
    path = with_settings(make_run(rounds=1), "world", name="gymnasium", id="CartPole-v1")
    title = re.search("<h1>(.*)</h1>", write_report(path, load_runs(path)).read_text())
    assert title is not None
    assert title[1] == "fedkl on CartPole-v1"
