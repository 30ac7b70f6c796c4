"""What SECURITY.md promises is shown by tests that are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}
"""Modules that run code, or can, when they read."""


def test_every_promise_names_tests_that_are_there():
    promises = PAGE.split("## What is promised")[1].split("Not promised:")[0]
    bullets = re.split(r"^- ", promises, flags=re.M)[1:]
    assert len(bullets) > 8
    for bullet in bullets:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", bullet), bullet
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE):
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_nothing_is_unpickled():
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text("utf-8")
        assert not re.search(r"allow_pickle\s*=\s*True", text), path
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not UNSAFE & {name.split(".")[0] for name in names}, path
