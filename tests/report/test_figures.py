"""What can be told of figures without looking at them."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedkl.core.errors import UserError
from fedkl.report import load_runs
from fedkl.report.figures import _kl_local, _learning_curves, draw
from fedkl.report.groups import Curves, grouped
from fedkl.report.lines import MOST_SEEDS, canvas, log_axis
from fedkl.report.pictures import Drawing, Picture, head, matplotlib_style, rendered
from fedkl.report.style import colours, robust_range


def test_colours_are_stable_and_distinct() -> None:
    assert colours(["fedkl"])["fedkl"] == colours(["mine", "fedavg", "fedkl"])["fedkl"]
    names = ["fedkl", "fedavg", "fedprox", "fmarl", "mine", "yours", "mine"]
    assert len(set(colours(names).values())) == 6
    assert colours(["mine", "mine"]) == colours(["mine"])


def test_algorithms_of_our_own_have_colours_of_their_own() -> None:
    ours = ["fedkl", "fedkl-anchored", "fedavg", "fedprox", "fmarl", "scaffold"]
    found = colours(["mine", *reversed(ours)])
    assert len(set(found.values())) == 7
    assert all(found[name] == colours([name])[name] for name in ours)


def test_a_legend_of_long_names_has_fewer_columns_and_the_figure_more_height() -> None:
    shapes = []
    for name in ("a", "a-plugin-of-somebody-else"):
        figure, axes = canvas(6.2, 3.0)
        for i in range(7):
            axes.plot([i], [i], label=f"{name}-{i}")
        head(figure, "A title")
        (legend,) = figure.legends
        figure.draw_without_rendering()
        box = legend.get_window_extent()
        assert box.x1 <= figure.bbox.x1
        # Nothing of the head lies over the axes, and the title not over the legend.
        assert axes.get_window_extent().y1 <= box.y0
        assert figure.texts[0].get_window_extent().y0 >= box.y1 - 2
        shapes.append((legend._ncols, round(figure.get_figheight() - 3.0, 2)))
    # 0.32 for the title, 0.2 for each row, 0.1 below: two rows, and four.
    assert shapes == [(4, 0.82), (2, 1.22)]


def picture(drawn: Callable[..., Drawing | None], *arguments: Any) -> Picture:
    """One figure alone."""
    with matplotlib_style():
        drawing = drawn(*arguments)
        assert drawing is not None
        return rendered({"it": drawing})["it"]


def panels_of(svg: str) -> list[str]:
    """The words that matplotlib wrote into the picture, as its comments keep them."""
    return re.findall(r"<!-- (.*?) -->", svg)


def test_three_algorithms_have_a_panel_each_and_two_share_one(
    make_comparison: Callable[..., Path],
) -> None:
    names = ["fedkl", "fedavg", "fedprox"]
    groups = grouped(load_runs(make_comparison(names, [0, 1], rounds=6)))
    many = picture(_kl_local, groups)
    said = panels_of(many.svg)
    assert "all together" in said
    assert all(said.count(name) == 2 for name in names)  # above its panel, and in the legend
    few = picture(_kl_local, groups[:2])
    assert "all together" not in panels_of(few.svg)
    assert all(panels_of(few.svg).count(name) == 1 for name in names[:2])


def test_early_rounds_have_a_panel_and_the_rest_a_close_up(
    make_run: Callable[..., Path],
) -> None:
    def steep(record: dict[str, Any]) -> None:
        record["return_mean"] = -500.0 if record["round"] < 3 else -8.0 - 1 / record["round"]
        record["deterministic_return_mean"] = None

    drawn = picture(_learning_curves, grouped(load_runs(make_run(rounds=20, edit=steep))), None)
    assert {"all values", "close-up"} <= set(panels_of(drawn.svg))
    assert "The first panel shows all values, the second the range from" in drawn.caption
    # The values of a line are told once, and both panels show it.
    values = json.loads(drawn.values)
    assert [panel["lines"] for panel in values["panels"]] == [[0], [0]]
    whole, near = (panel["y"] for panel in values["panels"])
    assert whole[0] < -500
    assert -20 < near[0] < -8
    assert values["lines"][0]["y"][:3] == [-500, -500, -8.33]


def test_the_place_of_a_value_is_where_the_line_is(make_run: Callable[..., Path]) -> None:
    def straight(record: dict[str, Any]) -> None:
        record["return_mean"] = float(record["round"])
        record["deterministic_return_mean"] = None

    drawn = picture(_learning_curves, grouped(load_runs(make_run(rounds=20, edit=straight))), None)
    (panel,) = json.loads(drawn.values)["panels"]
    left, top, right, bottom = panel["box"]
    x, y = panel["x"], panel["y"]
    at = [
        (
            left + (n - x[0]) / (x[1] - x[0]) * (right - left),
            bottom + (n - y[0]) / (y[1] - y[0]) * (top - bottom),
        )
        for n in (1, 20)
    ]
    paths = re.findall(r' d="M (\S+) (\S+) L (?:\S+ \S+ L )*(\S+) (\S+) ?"', drawn.svg)
    ends = [np.reshape([float(n) for n in path], (2, 2)) for path in paths]
    assert any(np.allclose(found, at, atol=0.6) for found in ends)


def test_more_seeds_than_can_be_told_apart_are_a_band(make_run: Callable[..., Path]) -> None:
    runs = [load_runs(make_run(f"r{s}", seed=s, rounds=3))[0] for s in range(MOST_SEEDS + 1)]
    thin = "opacity: 0.4"
    assert thin not in picture(_kl_local, grouped(runs)).svg
    assert thin in picture(_kl_local, grouped(runs[:-1])).svg


def test_robust_range_cuts_what_flattens_and_says_so() -> None:
    values = np.concatenate([[-140.0, -60.0], np.linspace(-12, -8, 98)])[None, :]
    low, high, extreme = robust_range([values], [-8.0], "low")
    assert extreme == -140.0
    assert -20 < low < -12
    assert -8 < high < -7
    low, high, extreme = robust_range([-values], [8.0], "high")
    assert extreme == 140.0
    assert 12 < high < 20


def test_robust_range_shows_all_of_an_even_curve_and_what_must_be_kept() -> None:
    values = np.linspace(0, 10, 50)[None, :]
    low, high, extreme = robust_range([values], [10.0], "low")
    assert extreme is None
    assert low < 0
    assert high > 10
    values = np.concatenate([np.linspace(-12, -8, 98), [-140.0]])[None, :]
    assert robust_range([values], [-140.0], "low")[0] < -140
    low, high, _ = robust_range([np.zeros((1, 1))], [0.0], "low")
    assert low < high


def test_log_axis_copes_with_constants_and_zeros() -> None:
    for values in ([1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1e-6, 1e6], [0.8, 1.1]):
        figure, axes = canvas()
        axes.plot(values)
        log_axis(axes, [np.array(values)])
        figure.canvas.draw()
        scale = "log" if min(values) > 0 else "symlog" if max(values) > 0 else "linear"
        assert axes.get_yscale() == scale


def test_long_curves_are_thinned_to_means_of_neighbours() -> None:
    rounds = np.arange(1, 402)
    thin = Curves(rounds, np.stack([rounds * 1.0, rounds * 2.0])).thinned()
    # 401 rounds in blocks of three: 133 whole ones and one of two.
    assert thin.rounds.size == 134
    assert thin.rounds[[0, 1, -1]].tolist() == [2, 5, 400]
    assert thin.values[:, [0, 1, -1]].tolist() == [[2.0, 5.0, 400.5], [4.0, 10.0, 801.0]]
    short = Curves(rounds[:200], np.ones((1, 200)))
    assert short.thinned() is short


def test_figures_without_numbers_are_left_out(make_run: Callable[..., Path]) -> None:
    def bare(record: dict[str, Any]) -> None:
        kept = {"round", "return_mean", "rejected", "guarded"}
        record.update({key: None for key in record if key not in kept})
        record.update(rejected=[], guarded=0)

    runs = load_runs(make_run(algorithm="fedavg", rounds=1, edit=bare))
    assert list(draw(grouped(runs), None)) == ["learning_curves", "paper"]


def test_clients_that_are_all_alike_have_no_figures_of_their_own(
    make_run: Callable[..., Path],
) -> None:
    def same(record: dict[str, Any]) -> None:
        record["return_per_client"] = [record["return_mean"]] * 10

    of_clients = {"worst_client", "client_spread", "client_returns"}
    alike = load_runs(make_run("a", rounds=2, edit=same))
    assert not of_clients & set(draw(grouped(alike), None))
    lost = load_runs(make_run("b", rounds=2, in_files=True))
    shutil.rmtree(lost[0].path / "returns")
    # Nobody knows what the clients' returns were, so nobody says that they were the same.
    assert set(draw(grouped(lost), None)) >= of_clients - {"client_returns"}


def test_clients_are_ranked_however_many_each_run_evaluated(make_run: Callable[..., Path]) -> None:
    def sample(size: int) -> Callable[[dict[str, Any]], None]:
        def edit(record: dict[str, Any]) -> None:
            record["evaluated"] = list(range(size))
            record["return_per_client"] = [float(client) for client in range(size)]

        return edit

    few, more, many = (
        load_runs(make_run(str(size), seed=size, rounds=2, edit=sample(size)))
        for size in (3, 4, 5000)
    )
    assert "client_returns" in draw(grouped(few + more), None)
    picture = draw(grouped(many), None)["client_returns"]
    assert "Shown are 200 evenly spaced ones." in picture.caption
    assert len(picture.svg) < 100_000


@pytest.mark.parametrize("name", [r"$\frac$", "a\x1b[31m\u202eb", "$", "two\nlines"])
def test_whatever_a_run_calls_things_a_figure_shows_it_and_obeys_nothing(
    make_run: Callable[..., Path], name: str
) -> None:
    path = make_run(rounds=2, edit=lambda record: record.update(coefficients={name: 1.0}))
    config = (path / "config.toml").read_text()
    named = config.replace('"fedkl"', tomli_w.dumps({"name": name}).split(" = ")[1].strip())
    (path / "config.toml").write_text(named)
    pictures = draw(grouped(load_runs(path)), None)
    for picture in pictures.values():
        assert not re.search("[\x1b\u202e]", picture.svg)
        # What is drawn are the letters, one by one.
        shown = name.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e").split("\n")[0]
        assert any(shown in words for words in panels_of(picture.svg)), picture.name
    assert any("coefficient" in name for name in pictures)


def test_ticks_are_numbers_and_no_formulas() -> None:
    with matplotlib_style():
        for values in ([0.0, 1e-4, 1e4], [1e-6, 1e6]):
            figure, axes = canvas()
            axes.plot(values)
            log_axis(axes, [np.array(values)])
            figure.canvas.draw()
            texts = [label.get_text() for label in axes.get_yticklabels()]
            assert texts
            assert all(float(text) is not None for text in texts)


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), True, "x"])
def test_a_setting_that_is_no_number_is_no_line(make_run: Callable[..., Path], value: Any) -> None:
    (run,) = load_runs(make_run(rounds=2))
    config = {**run.config, "learner": {"d_local": value}}
    drawn = picture(_kl_local, grouped([replace(run, config=config)]))
    assert not any("d_local" in words for words in panels_of(drawn.svg))


def test_missing_matplotlib_is_a_plain_message(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = load_runs(make_run(rounds=1))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[report\]'"):
        draw(grouped(runs), None)
