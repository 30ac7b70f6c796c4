"""Imports point downwards: what is below knows nothing of what is above."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
# Each may import from its own package and from those before it, so that packages form no cycle.
ORDER = [
    "core",
    "io",
    "drawing",
    "simulators",
    "worlds",
    "learning",
    "algorithms",
    "clients",
    "heterogeneity",
    "engines",
    "server",
    "config",
    "training",
    "policies",
    "network",
    "experiments",
    "cli",
]
# What stands beside that order, with all that it may know of the package.
BESIDE = {
    "tabular": {"core"},
    "report": {"core", "io", "training"},
    "report.theory": {"core", "io", "report", "tabular", "training"},
}
# Who besides its own layer may know what stands beside the order.
USERS = {
    "report": {"experiments", "cli"},
    "report.theory": {"cli"},
    "tabular": {"cli", "report.theory", "experiments"},
}
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((SOURCE / "fedkl").rglob("*.py"))
}
INSIDE = [name for name in MODULES if name not in ("fedkl", "fedkl.__main__")]
"""All but the front, and the way to the command line."""


class Imports(ast.NodeVisitor):
    """All imports of a module that happen when it runs, also inside functions."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.at_once: set[str] = set()
        """Those outside of functions."""
        self._functions = 0

    def visit_If(self, node: ast.If) -> None:
        types_only = ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.orelse if types_only else [*node.body, *node.orelse]:
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_Import(self, node: ast.Import) -> None:
        self._add({alias.name for alias in node.names})

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        self._add({f"{node.module}.{alias.name}" for alias in node.names})

    def _add(self, names: set[str]) -> None:
        ours = {_part(name) for name in names if name.split(".")[0] == "fedkl"}
        self.found |= ours
        if not self._functions:
            self.at_once |= ours


def _part(name: str) -> str:
    """The part of the package that a module or a name in it belongs to; empty for the package."""
    inside = name.split(".")[1:]
    return "report.theory" if inside[:2] == ["report", "theory"] else ".".join(inside[:1])


def _imports(name: str) -> Imports:
    imports = Imports()
    imports.visit(ast.parse(MODULES[name].read_text(encoding="utf-8")))
    return imports


def _allowed(part: str) -> set[str]:
    if part in BESIDE:
        return BESIDE[part] | {part}
    users = {beside for beside, knowers in USERS.items() if part in knowers}
    return {*ORDER[: ORDER.index(part) + 1]} | users


def test_every_part_of_the_package_has_its_place():
    assert {_part(name) for name in INSIDE} == {*ORDER} | BESIDE.keys()


@pytest.mark.parametrize("name", INSIDE)
def test_imports_point_downwards(name):
    assert _imports(name).found <= _allowed(_part(name))


@pytest.mark.parametrize("name", [n for n in INSIDE if n.startswith("fedkl.worlds.")])
def test_a_world_asks_for_its_picture_only_when_it_is_drawn(name):
    assert name.endswith("_renderer") or "drawing" not in _imports(name).at_once


def test_the_front_imports_nothing_of_the_package_by_itself_but_what_counts_cores():
    assert _imports("fedkl").found == {"core"}


def test_what_is_only_for_type_checkers_does_not_count_and_what_is_in_functions_does():
    imports = Imports()
    imports.visit(
        ast.parse(
            "from typing import TYPE_CHECKING\n"
            "from fedkl.core import errors\n"
            "if TYPE_CHECKING:\n"
            "    from fedkl.config.config import Config\n"
            "else:\n"
            "    import fedkl.worlds.base\n"
            "def later():\n"
            "    from fedkl.report.theory import page\n"
        )
    )
    assert imports.found == {"core", "worlds", "report.theory"}
    assert imports.at_once == {"core", "worlds"}
