"""The page: whole, self-contained, the same every time."""

import re
import shutil
import time
import tomllib
from collections.abc import Callable
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from shlex import quote
from typing import Any

import matplotlib
import pytest
import tomli_w

from fedkl.core.errors import UserError
from fedkl.report import load_runs, write_report
from fedkl.report.page import _chance
from fedkl.report.statistics import Estimate

VOID = {"meta", "path", "use", "link", "br"}


class Balance(HTMLParser):
    """Collects tags that do not match, ids, and whatever a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.ids += [values["id"]] if "id" in values else []
        # A link is followed by who clicks on it; anything else is fetched with the page.
        if tag == "a":
            self.links.append(values["href"])
            return
        links = [values[key] for key in ("src", "href", "xlink:href") if key in values]
        self.fetched += [link for link in links if not link.startswith("#")]
        self.fetched += [tag] if tag in {"link", "iframe", "img"} else []


@pytest.fixture(scope="module")
def reported(comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison directory with its report."""
    path = tmp_path_factory.mktemp("page") / "c"
    shutil.copytree(comparison, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        assert write_report(path, load_runs(path)) == path / "report.html"
    return path


def test_page_is_well_formed_and_self_contained(reported: Path) -> None:
    text = (reported / "report.html").read_text()
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert parser.wrong == []
    assert len(parser.ids) == len(set(parser.ids))
    assert parser.fetched == []
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    assert used <= set(parser.ids)
    assert "$" not in text
    assert str(reported) not in text
    assert "figures/learning_curves.png" in parser.links
    assert "fedavg-seed1/metrics.jsonl" in parser.links
    for target in parser.links:
        assert target.startswith("https://doi.org/") or (reported / target).is_file(), target


def test_page_tells_the_story(reported: Path) -> None:
    text = (reported / "report.html").read_text()
    for words in (
        "<h1>fedkl and fedavg on reacher</h1>",
        "preset reacher-figure-3 · 10 clients · 20 rounds · seeds 0, 1, 2",
        "Over 3 seeds for each algorithm, fedkl ended with the highest return after 20 rounds",
        "fedkl ended above fedavg in every pair of these runs",
        "Percentile bootstrap over seeds",
        "<th>Largest drop</th>",
        "Rounds up to 6 are not counted",
        "<th>MB down / up a round</th>",
        "<td>0.200 / 0.200</td>",
        "d_local = 0.003",
        "<code>fedkl report c</code>",
        "Made on 2023-11-14 with fedkl",
        "algorithm.d_global",
        "Settings in which the runs differ",
        "0.7.0",
    ):
        assert words in text, words
    assert "unfinished</span>" not in text


def test_every_figure_is_there_as_png_and_svg_and_the_one_for_a_paper_as_pdf(
    reported: Path,
) -> None:
    names = {path.stem for path in (reported / "figures").glob("*.svg")}
    assert names == {path.stem for path in (reported / "figures").glob("*.png")}
    assert {path.name for path in (reported / "figures").glob("*.pdf")} == {"paper.pdf"}
    assert {
        "learning_curves",
        "worst_client",
        "client_spread",
        "client_returns",
        "return_by_megabytes",
        "kl_local",
        "distance_global",
        "coefficient_c1",
        "coefficient_c2",
        "guarded",
        "rejected",
        "paper",
    } == names


def test_clients_with_broken_readings_are_named(make_run: Callable[..., Path]) -> None:
    def edit(record: dict[str, Any]) -> None:
        if record["round"] > 1:
            record["outliers"] = [{"client": 3, "share": 0.0123 / record["round"] * 2}]

    path = make_run(rounds=3, edit=edit)
    text = write_report(path, load_runs(path)).read_text()
    assert "Clients with broken readings" in text
    assert re.search(r"<td>3</td>\s*<td>2</td>\s*<td>1.23%</td>", text)
    path = make_run("healthy", rounds=3)
    assert "broken readings" not in write_report(path, load_runs(path)).read_text()


def test_settings_can_be_pasted_back(reported: Path) -> None:
    text = (reported / "report.html").read_text()
    found = re.findall(
        r"<summary>Settings of (\w+), seed 0</summary><pre><code>(.*?)</code>", text, re.S
    )
    assert [name for name, _ in found] == ["fedkl", "fedavg"]
    for name, settings in found:
        config = tomllib.loads((reported / f"{name}-seed0" / "config.toml").read_text())
        assert tomllib.loads(unescape(settings)) == config


def test_the_command_in_the_foot_makes_the_page_from_where_it_was_made(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_run(rounds=1)
    monkeypatch.chdir(path.parent.parent)
    relative = path.relative_to(path.parent.parent)
    text = write_report(relative, load_runs(relative)).read_text()
    assert f"<code>fedkl report {relative}</code>" in text
    out = relative.parent / "out here"
    out.mkdir()
    text = write_report(out, load_runs(relative), sources=[relative]).read_text()
    assert f"<code>fedkl report {relative} --out {escape(quote(str(out)))}</code>" in text
    # Where on a machine it lies is nobody's business.
    text = write_report(path, load_runs(path)).read_text()
    assert f"<code>fedkl report {path.name}</code>" in text


def test_a_day_that_is_no_number_is_a_plain_message(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    path = make_run(rounds=1)
    with pytest.raises(UserError, match="SOURCE_DATE_EPOCH is a number of seconds"):
        write_report(path, load_runs(path))


def test_the_same_runs_give_the_same_files(
    reported: Path, comparison: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    before = dict(matplotlib.rcParams)
    again = tmp_path / "c"
    shutil.copytree(comparison, again)
    write_report(again, load_runs(again))
    assert dict(matplotlib.rcParams) == before
    for path in [reported / "report.html", *(reported / "figures").iterdir()]:
        assert (again / path.relative_to(reported)).read_bytes() == path.read_bytes(), path.name


def test_an_unfinished_run_with_hostile_names(make_run: Callable[..., Path]) -> None:
    path = make_run(rounds=9, done=3)
    (path / "figures").mkdir()
    (path / "figures" / "guarded.png").write_text("of an earlier report")
    config = tomllib.loads((path / "config.toml").read_text())
    config["algorithm"]["name"] = "<script>alert(1)</script>"
    config["preset"] = "a & b"
    (path / "config.toml").write_text(tomli_w.dumps(config))
    text = write_report(path, load_runs(path), target=-1.0).read_text()
    assert "<script>alert" not in text
    assert "</script>alert" not in text
    assert text.count("<script") == text.count("</script>")
    assert "preset a &amp; b" in text
    assert "unfinished</span>" in text
    assert "3 of 9" in text
    assert "Not finished, and counted as far as they got: run." in text
    assert "Target −1.00: as asked for." in text  # noqa: RUF001
    assert "No iteration of local training was rolled back." in text
    assert not (path / "figures" / "guarded.png").exists()


def test_every_coefficient_has_a_figure_whatever_its_name(make_run: Callable[..., Path]) -> None:
    def rename(record: dict[str, Any]) -> None:
        record["coefficients"] = {"a/b": 1.0, "<i>": 2.0, "c2": 3.0, "gone": None}

    path = make_run(rounds=3, edit=rename)
    (path / "figures").mkdir()
    (path / "figures" / "coefficient_old.svg").write_text("of an earlier report")
    (path / "figures" / "mine.svg").write_text("somebody else's")
    text = write_report(path, load_runs(path)).read_text()
    assert "Penalty coefficient a/b, mean over clients" in text
    assert "Penalty coefficient &lt;i&gt;, mean over clients" in text
    assert "c2, the penalty on the step of local training, mean over clients" in text
    assert "gone" not in text
    parser = Balance()
    parser.feed(text)
    assert parser.wrong == []
    assert len(parser.ids) == len(set(parser.ids))
    names = {file.stem for file in (path / "figures").glob("*.svg")}
    drawn = {"coefficient_a-2f-b", "coefficient_-3c-i-3e-", "coefficient_c2", "mine"}
    assert {name for name in names if name.startswith(("coef", "mine"))} == drawn


def test_a_run_of_an_older_version_has_a_page_without_the_new_figures(
    make_run: Callable[..., Path],
) -> None:
    def older(record: dict[str, Any]) -> None:
        for key in ("distance_global", "coefficients", "evaluated", "note"):
            del record[key]

    path = make_run(rounds=3, edit=older)
    assert write_report(path, load_runs(path)).exists()
    names = {file.stem for file in (path / "figures").glob("*.svg")}
    assert {"kl_local", "client_returns"} <= names
    assert not any(name.startswith(("distance", "coefficient")) for name in names)


def test_a_page_of_clients_in_files_is_the_page_of_clients_in_the_log(
    make_run: Callable[..., Path],
) -> None:
    logged = make_run("a/run", rounds=20)
    filed = make_run("b/run", rounds=20, in_files=True)
    pages = [write_report(path, load_runs(path)).read_text() for path in (logged, filed)]
    assert pages[0] == pages[1]


def test_a_sample_of_clients_and_rounds_that_changed_nothing_are_told(
    make_run: Callable[..., Path],
) -> None:
    def sample(record: dict[str, Any]) -> None:
        # A few more clients in every other round, and none of them twice in a row.
        record["evaluated"] = [1, 5, 8] if record["round"] % 2 else [0, 2, 3, 9]
        record["return_per_client"] = [float(client) for client in record["evaluated"]]
        if record["round"] in (2, 5):
            record["note"] = f"{record['round']} of 7 updates is less than the quorum."

    path = make_run(rounds=20, edit=sample)
    text = write_report(path, load_runs(path)).read_text()
    assert "10 clients · 20 rounds" in text
    assert "Only a sample of the clients was evaluated at a time (3 or 4 of them)" in text
    assert "Every evaluated client&#x27;s mean return" in text
    assert "Nothing changed in 2 rounds of run. The first reason given: 2 of 7 updates" in text


def test_a_chance_in_words() -> None:
    assert _chance("a", "b", Estimate(0.75, 0.5, 1.0)) == (
        "Probability that a run of a ends above a run of b: 0.75 (95 % interval 0.50 to 1.00)."
    )
    assert _chance("a", "b", Estimate(0.0, 0.0, 0.0)).startswith("a ended above b in no pair")


@pytest.mark.slow
@pytest.mark.parametrize("algorithms", [1, 4, 20])
def test_a_hundred_runs_of_two_hundred_rounds_are_a_light_page(
    make_comparison: Callable[..., Path], algorithms: int
) -> None:
    names = ["fedkl", "fedavg", "fedprox", "fmarl", *(f"mine-{n}" for n in range(16))]
    path = make_comparison(names[:algorithms], range(100 // algorithms), rounds=200)
    start = time.process_time()  # of one thread; what else the machine does is not counted
    page = write_report(path, load_runs(path))
    assert time.process_time() - start < 20
    assert page.stat().st_size < 3_000_000


def test_a_page_of_many_groups_names_a_few_and_folds_the_rest(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    for number in range(15):
        path = make_run(f"run{number:02d}", "fedkl", 0, 3)
        config = (path / "config.toml").read_text()
        (path / "config.toml").write_text(config.replace("0.05", f"{number}.5"))
    page = write_report(tmp_path, load_runs(tmp_path)).read_text()
    assert "<h1>15 groups of runs: fedkl on reacher</h1>" in page
    assert "Figures show 12 of the 15 groups" in page
    # All are in the tables, and their settings are found below one line.
    assert page.count("<strong>fedkl d_global=14.5</strong>") == 2
    every = page.index("<summary>Settings of each of the 15 groups</summary>")
    assert every < page.index("<summary>Settings of fedkl d_global=0.5, seed 0</summary>")
    # Nothing is explained that is not drawn.
    assert "panel of its own" not in page
    assert "(dashed)" not in page
