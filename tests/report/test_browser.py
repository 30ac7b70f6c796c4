"""The pages where people look at them: in a browser, wide and narrow, light and dark."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser, open_browser

from fedkl.report import load_runs, write_report
from fedkl.report.theory import write_theory_report
from fedkl.tabular.iteration import ALGORITHMS
from fedkl.tabular.studies import Sizes

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

VIEWS = [(width, dark) for width in (1400, 400) for dark in (False, True)]
CLIPPED = """
[...document.querySelectorAll("details")].forEach((d) => { d.open = true; });
[...document.querySelectorAll("main *")].filter((e) => {
  if (e.closest("svg") || e.closest(".scroll") || e.closest("pre")) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && box.right > document.documentElement.clientWidth + 1;
}).map((e) => e.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def theory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rounds = dict.fromkeys(ALGORITHMS, 3)
    sizes = Sizes(2, (0.1, 0.268, 0.9), 2, rounds, 20)
    return write_theory_report(tmp_path_factory.mktemp("theory"), 3, sizes=sizes)


@pytest.fixture
def report(make_comparison: Callable[..., Path]) -> Path:
    path = make_comparison(["fedkl", "fedavg", "fedprox"], [0, 1], rounds=30)
    return write_report(path, load_runs(path))


def check(browser: Browser, page: Path) -> None:
    """Looks at a page in every view; with FEDKL_PICTURES its pictures are kept there."""
    for width, dark in VIEWS:
        seen = browser.look(page, width, dark, CLIPPED)
        view = (width, dark)
        assert seen.complaints == [], view
        assert seen.requests == [page.resolve().as_uri()], view
        assert seen.overflow <= 0, view
        assert seen.answer == [], view
        if folder := os.environ.get("FEDKL_PICTURES"):
            name = f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
            Path(folder, name).write_bytes(seen.picture)


def test_the_report_fits_and_asks_for_nothing(browser: Browser, report: Path) -> None:
    check(browser, report)


def test_the_page_on_theory_fits_and_asks_for_nothing(browser: Browser, theory: Path) -> None:
    check(browser, theory)


WIDER = """
[...document.querySelectorAll("section > .scroll, figure > .scroll")].filter(
  (e) => e.clientWidth
).map((e) => [
  e.querySelector("table") ? "table" : "figure",
  e.scrollWidth > e.clientWidth + 1,
  getComputedStyle(e.nextElementSibling).display !== "none",
])
"""


@pytest.mark.parametrize("width", [1400, 1200, 400])
def test_what_is_wider_than_the_screen_says_so_and_results_fit_from_1200_pixels(
    browser: Browser, report: Path, width: int
) -> None:
    found = browser.look(report, width, False, WIDER).answer
    assert all(wider == said for _, wider, said in found)
    assert found[0] == ["table", width == 400, width == 400]
    assert any(wider for kind, wider, _ in found if kind == "figure") == (width == 400)


POINT = """
(() => {
  const figure = document.querySelector("script.values").closest("figure");
  const data = JSON.parse(figure.querySelector("script.values").textContent);
  const svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
  const scale = box.width / svg.viewBox.baseVal.width;
  const [left, top, right, bottom] = data.panels[0].box;
  svg.dispatchEvent(new PointerEvent("pointermove", {
    clientX: box.left + scale * right - 5, clientY: box.top + scale * (top + bottom) / 2,
  }));
  const tip = figure.querySelector(".tip");
  const found = { text: [...tip.children].map((e) => e.textContent), hidden: tip.hidden };
  svg.dispatchEvent(new PointerEvent("pointerleave"));
  return { ...found, gone: tip.hidden };
})()
"""


@pytest.mark.parametrize("width", [1400, 400])
def test_values_show_under_the_pointer(
    browser: Browser, make_run: Callable[..., Path], width: int
) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["return_mean"] = -0.25 * record["round"]

    path = make_run(rounds=20, edit=edit)
    seen = browser.look(write_report(path, load_runs(path)), width, False, POINT)
    assert seen.complaints == []
    assert seen.overflow <= 0
    assert seen.answer == {"text": ["round 20", "fedkl \u22125"], "hidden": False, "gone": True}


DARK = "getComputedStyle(document.body).backgroundColor"


def test_the_dark_is_dark(browser: Browser, make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=2)
    page = write_report(path, load_runs(path))
    assert browser.look(page, 1400, False, DARK).answer == "rgb(255, 255, 255)"
    assert browser.look(page, 1400, True, DARK).answer == "rgb(21, 25, 30)"
    # No colour of a figure is left that would be lost on the dark.
    lost = "[...document.querySelectorAll('svg [style]')].filter((e) => /#(fff|1f2933|000)/.test("
    lost += "e.getAttribute('style'))).length"
    assert browser.look(page, 1400, True, lost).answer == 0


ROOM = """
({
  scrolling: [...document.querySelectorAll("section > .scroll")].map(
    (e) => e.scrollWidth - e.clientWidth),
  final: (() => {
    const tables = [...document.querySelectorAll("table")];
    const cells = [...tables[0].querySelectorAll("thead th, tbody tr:first-child td")];
    const at = cells.findIndex((e) => e.textContent === "Final return");
    const cell = tables[0].querySelectorAll("tbody tr:first-child td")[at];
    return cell.getBoundingClientRect().right;
  })(),
  whole: [...document.querySelectorAll("figure.narrow")].map((e) => {
    const scroll = e.querySelector(".scroll");
    return scroll.clientWidth > 0 && scroll.scrollWidth <= scroll.clientWidth;
  }),
  letters: Math.min(...[...document.querySelectorAll(".plot")].map((e) => {
    const svg = e.querySelector("svg");
    return svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  })),
})
"""


def test_tables_fit_a_wide_screen_and_a_phone_shows_the_returns_and_readable_figures(
    browser: Browser, report: Path
) -> None:
    wide = browser.look(report, 1400, False, ROOM).answer
    assert max(wide["scrolling"]) <= 0
    narrow = browser.look(report, 400, False, ROOM).answer
    assert narrow["final"] <= 400
    assert (wide["whole"], narrow["whole"]) == ([False], [True])
    # Pixels of a point: letters are of 8 points and more.
    assert narrow["letters"] >= 1.2 - 0.01
