"""What the pages show runs, and what they link to is there."""

import ast
import re
from argparse import _SubParsersAction
from pathlib import Path

import pytest

import fedkl
from fedkl.algorithms import ALGORITHMS
from fedkl.cli.parser import parser

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target, _, anchor in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#:]*)(#([^)]*))?\)", text):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pictures_are_there(page):
    for target in re.findall(r"!\[[^\]]*\]\(([^)#:]*)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), target


def examples_of_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.usefixtures("quick_compilation")
def test_the_readme_goes_from_the_install_to_acting_in_eight_lines(tmp_path, monkeypatch, capsys):
    code, _ = examples_of_the_readme()
    install = 1
    assert install + len([line for line in code.splitlines() if line]) <= 8
    short = {"federation.rounds": 2, "learner.steps": 512, "learner.iterations": 1}
    preset = fedkl.preset
    monkeypatch.setattr(
        fedkl.config.config, "preset", lambda name, set: preset(name, set=set | short)
    )
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    returns, action = capsys.readouterr().out.splitlines()
    assert len(ast.literal_eval(returns)) == 2
    assert action in ("0", "1")


def test_the_readmes_example_runs(capsys):
    _, code = examples_of_the_readme()
    assert len([line for line in code.splitlines() if line]) <= 5
    assert '"demo"' in code
    exec(code.replace('"demo"', '"probe-point"'), {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2", "3"]


def test_the_readme_names_every_command():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = next(a for a in parser()._actions if isinstance(a, _SubParsersAction)).choices
    assert {"train", "serve", "theory"} <= {*commands}
    for command in commands:
        assert re.search(rf"^\|[^|]*`fedkl {command}`[^|]* \|", text, re.MULTILINE), command


def test_every_algorithm_has_a_page():
    ours = {
        name for name in ALGORITHMS if ALGORITHMS[name].__module__.startswith("fedkl.algorithms")
    }
    assert {path.stem for path in (ROOT / "docs/algorithms").glob("*.md")} == ours


@pytest.mark.parametrize(
    "label", ["finallocalobj", "localobj", "experiment_mujoco", "experiment_flow", "d_local_d_glob"]
)
def test_the_paper_is_cited_by_number_and_not_by_label(label):
    files = [*PAGES, *ROOT.glob("src/fedkl/**/*.py"), *ROOT.glob("src/fedkl/**/*.toml")]
    assert [path for path in files if label in path.read_text(encoding="utf-8")] == []


def test_the_changelog_has_this_version():
    assert f"## [{_version()}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def _version():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(r'^version = "(.*)"$', project, re.MULTILINE)[1]


def test_the_front_docstring_runs(capsys):
    code = (fedkl.__doc__ or "").split("\n\n", 1)[1].replace('"demo"', '"probe-point"')
    exec(code, {})
    assert len(capsys.readouterr().out.splitlines()) == 10
