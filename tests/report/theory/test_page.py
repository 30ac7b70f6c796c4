"""The page on theory: whole, the same every time, and in agreement with its numbers."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest

from fedkl.core.errors import UserError
from fedkl.io import strict_json
from fedkl.report.mathml import typeset
from fedkl.report.theory import page as theory_page
from fedkl.report.theory import write_theory_report
from fedkl.tabular.claims import CLAIMS, VACUOUS_FROM
from fedkl.tabular.iteration import ALGORITHMS
from fedkl.tabular.studies import OBJECTIVES, Sizes

SMALL = Sizes(
    movement_families=3,
    gammas=(0.1, 0.268, 0.5, 0.9),
    improvement_families=2,
    rounds=dict.fromkeys(ALGORITHMS, 4),
    slope_families=30,
)
FIGURES = {
    "theory_movement_alike",
    "theory_movement_slightly",
    "theory_movement_dynamics",
    "theory_movement_everything",
    "theory_improvement_dynamics",
    "theory_improvement_everything",
    "theory_tightness",
    "theory_corollary_1",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the page in it."""
    path = tmp_path_factory.mktemp("theory") / "made" / "here"
    lines: list[str] = []
    assert write_theory_report(path, 5, show=lines.append, sizes=SMALL) == path / "theory.html"
    assert len(lines) >= 3
    return path


@pytest.fixture(scope="module")
def text(directory: Path) -> str:
    return (directory / "theory.html").read_text()


@pytest.fixture(scope="module")
def numbers(directory: Path) -> dict[str, Any]:
    return strict_json.decode((directory / "theory.json").read_bytes())


def test_the_page_is_well_formed_and_needs_nothing_else(text: str, directory: Path) -> None:
    # But for the tags that HTML never closes, and for the script, the page is XML.
    plain = re.sub(r"<script>.*?</script>", "", text.split("\n", 1)[1], flags=re.DOTALL)
    tree = ElementTree.fromstring(re.sub(r"<(meta[^>]*)>", r"<\1/>", plain))
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in tree.iter():
        assert element.tag.split("}")[-1] not in {"link", "iframe", "img"}
        if element.tag == "a":
            target = element.attrib["href"]
            assert target.startswith("https://doi.org/") or (directory / target).is_file()
            continue
        for key, value in element.attrib.items():
            if key.split("}")[-1] in {"src", "href"}:
                assert value.removeprefix("#") in ids
    assert not re.search(r"url\((?!#)|@import|\$", text)
    assert str(directory) not in text


def test_every_figure_is_there_as_png_and_svg(text: str, directory: Path) -> None:
    for ending in ("svg", "png"):
        assert {path.stem for path in (directory / "figures").glob(f"*.{ending}")} == FIGURES
    for name in FIGURES:
        assert f'id="{name}-caption"' in text


MAIN = {"theorem-1", "corollary-1", "corollary-2", "theorem-2", "theorem-3"}


def test_the_main_results_come_first_and_the_others_unfold(text: str) -> None:
    cards, letters, *rest = re.split(r"<details", text)
    titles = re.findall(r'<h3>(.*?)</h3><span class="verdict', cards)
    assert titles == ["Theorem 1", "Corollary 1", "Corollary 2", "Theorem 2", "Theorem 3"]
    assert "What the letters mean" in letters
    assert len(rest) == 2
    assert "<details open" not in text
    for claim in CLAIMS:
        where = cards if claim.name in MAIN else "".join(rest)
        assert str(typeset(claim.statement)) in where, claim.name
    assert text.count('<span class="verdict ') == len(CLAIMS)
    assert "fedkl theory verify --families 1 --seed S" in text


def test_the_numbers_agree_with_the_page(numbers: dict[str, Any], text: str) -> None:
    assert [claim["claim"] for claim in numbers["claims"]] == [claim.name for claim in CLAIMS]
    for claim in numbers["claims"]:
        if claim["claim"] in MAIN:
            continue
        (row,) = re.findall(
            rf"<tr><td><strong>[^/]*</strong><small>{claim['claim']}</small>.*", text
        )
        assert f'data-label="Checks">{claim["checks"]:,}</td>' in row
        assert f'data-label="Violations">{claim["violations"]:,}</td>' in row
        if claim["verdict"] == "false":
            assert f"<small>seed {claim['counterexample_seed']}</small>" in row
    for claim in numbers["claims"]:
        if claim["claim"] in MAIN:
            assert f"{claim['checks']:,} checks, " in text
    total = sum(claim["checks"] for claim in numbers["claims"])
    assert f"5 random families · seed 0 · {total:,} checks" in text
    slopes = numbers["corollary_1"]
    pairs = zip(slopes["level_over_potential"], slopes["normalised_slope"], strict=True)
    excluded = sum(ratio >= 1 and slope > 0 for ratio, slope in pairs)
    assert f"<!-- improves although the corollary excludes it ({excluded}) -->" in text
    for example in ("corollary-1", "bandit", "shaped-rewards", "no-rewards"):
        assert example in numbers["examples"]
    for package, version in numbers["versions"].items():
        assert f"{package} {version}" in text


def test_nobody_moves_with_the_papers_constants_where_second_order_does(
    numbers: dict[str, Any], text: str
) -> None:
    for setting in numbers["movement"]["settings"]:
        shares = setting["share_that_moves"]
        assert list(shares) == list(OBJECTIVES)
        beyond = [gamma >= VACUOUS_FROM for gamma in setting["gamma"]]
        assert sum(beyond) == 3
        for moves, gamma_is_beyond in zip(shares["paper"], beyond, strict=True):
            assert moves == 0 or not gamma_is_beyond
        assert min(shares["second-order"]) > 0
    assert "the paper's Algorithm 1 moves no agent" in text.replace("&#x27;", "'")
    for setting in numbers["improvement"]["settings"]:
        curves = setting["share_of_possible_improvement"]
        assert list(curves) == list(ALGORITHMS)
        assert curves["paper"]["high"] == [0.0] * 4
        assert curves["second-order"]["low"][-1] > 0


def test_the_same_seed_gives_the_same_files_and_a_run_that_lives_there_is_left_alone(
    directory: Path, tmp_path: Path
) -> None:
    tmp_path = tmp_path / "here"  # the name is in the page
    (tmp_path / "figures").mkdir(parents=True)
    kept = [tmp_path / "report.html", tmp_path / "figures" / "learning_curves.svg"]
    for path in kept:
        path.write_text("of the run")
    before = dict(matplotlib.rcParams)
    write_theory_report(tmp_path, 5, sizes=SMALL)
    assert dict(matplotlib.rcParams) == before
    assert [path.read_text() for path in kept] == ["of the run"] * 2
    files = sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    assert len(files) == 2 * len(FIGURES) + 2
    for name in files:
        assert (tmp_path / name).read_bytes() == (directory / name).read_bytes(), name


@pytest.fixture
def computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test if anything is checked."""

    def refuse(*_: object) -> None:
        pytest.fail("something was computed")

    monkeypatch.setattr(theory_page, "verify", refuse)


@pytest.mark.usefixtures("computes_nothing")
def test_missing_matplotlib_is_a_plain_message_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[report\]'"):
        write_theory_report(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("computes_nothing")
def test_a_directory_that_cannot_be_written_is_a_plain_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*file"):
        write_theory_report(tmp_path / "file" / "below")
    with pytest.raises(UserError, match=r"cannot write .*file"):
        write_theory_report(tmp_path / "file")
    (tmp_path / "figures").write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        write_theory_report(tmp_path)


@pytest.mark.usefixtures("computes_nothing")
def test_impossible_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="families must be at least 1, not 0"):
        write_theory_report(tmp_path, families=0)
    with pytest.raises(UserError, match="seed must be at least 0, not -1"):
        write_theory_report(tmp_path, seed=-1)


def test_the_page_is_made_without_jax(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["jax"] = None  # an import of it would fail
from fedkl.report.theory import write_theory_report
from fedkl.tabular.studies import Sizes
rounds = {{"paper": 1, "second-order": 1}}
write_theory_report({str(tmp_path)!r}, 1, sizes=Sizes(1, (0.1, 0.9), 1, rounds, 10))
assert not {{"jaxlib", "equinox", "optax"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert (tmp_path / "theory.html").exists()
