"""Examples, pages and notebooks use public names alone, and the API page has them."""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

import fedkl
from fedkl import algorithms, network, simulators

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
PACKAGES = [*dict.fromkeys(re.findall(r"`fedkl\.(\w+)`", PAGE.partition("Everything else")[0]))]
"""Packages of which the API page says that they are public."""


def sources():
    """Every piece of Python that users are shown, by where it is."""
    for path in sorted(ROOT.glob("examples/**/*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]:
        text = path.read_text(encoding="utf-8")
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
            yield f"{path.relative_to(ROOT)}:{number}", code
    for path in sorted(ROOT.glob("docs/notebooks/*.ipynb")):
        for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
            if cell["cell_type"] == "code":
                lines = "".join(cell["source"]).splitlines()
                if lines[:1] == ["%%bash"]:
                    continue
                code = "\n".join(line for line in lines if not line.startswith(("!", "%")))
                yield f"{path.relative_to(ROOT)}:{number}", code


def used(code):
    """The names of fedkl that code uses, in full."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedkl":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("fedkl.")}
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if re.fullmatch(r"fedkl(\.\w+)+", name):
                found.add(name)
    return found


def is_public(name):
    _, first, *more = name.split(".")
    if first in PACKAGES:
        package = importlib.import_module(f"fedkl.{first}")
        return not more or more[0] in package.__all__
    return first in fedkl.__all__


@pytest.mark.parametrize(
    ("where", "code"), [pytest.param(*source, id=source[0]) for source in sources()]
)
def test_what_users_are_shown_uses_public_names_alone(where, code):
    assert [name for name in sorted(used(code)) if not is_public(name)] == []


def test_what_is_private_is_found():
    code = "import fedkl\nfrom fedkl.network.client import NetworkClient\nfedkl.config.config.x()"
    assert {name for name in used(code) if not is_public(name)} == {
        "fedkl.network.client.NetworkClient", "fedkl.config", "fedkl.config.config",
        "fedkl.config.config.x",
    }  # fmt: skip


def test_the_page_names_the_public_packages():
    assert {*PACKAGES} == {
        "algorithms", "clients", "drawing", "engines", "network", "simulators", "tabular", "worlds",
    }  # fmt: skip
    for name in PACKAGES:
        package = importlib.import_module(f"fedkl.{name}")
        assert all(hasattr(package, public) for public in package.__all__)


@pytest.mark.parametrize("package", [fedkl, algorithms, network, simulators])
def test_the_page_has_every_public_name(package):
    documented = {line.split(".")[-1] for line in PAGE.splitlines() if line.startswith("::: ")}
    # Ours are described on pages of their own; a union is the classes that it is of.
    ours = {"FMARL", "FedAvg", "FedKL", "FedKLAnchored", "FedProx", "Scaffold"}
    elsewhere = ours | {"ALGORITHMS", "DISTANCES", "SCHEDULES", "Distribution"}
    assert {*package.__all__} - documented - elsewhere == set()


def test_every_entry_of_the_page_is_there():
    for entry in re.findall(r"^::: (\S+)$", PAGE, re.MULTILINE):
        module, _, name = entry.rpartition(".")
        assert hasattr(importlib.import_module(module), name), entry
