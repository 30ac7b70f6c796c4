"""A client's own files are tried before anything starts."""

from pathlib import Path

import pytest

from fedkl.core.errors import UserError
from fedkl.network import preflight
from fedkl.network.preflight import try_files

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_world.py"
WORLD = """
[world]
name = "planets"
clients.gravity = 3.7
"""


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_nothing_of_its_own_is_nothing_to_try():
    try_files(None, [])


@pytest.mark.parametrize("text", ["[other]\nx = 1", "world = 3"])
def test_a_file_without_a_world_is_refused(write, text):
    with pytest.raises(UserError, match=r"client.toml has no table \[world\]$"):
        try_files(write("client.toml", text), [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[world]\nname = "nowhere"', "nowhere"),
        ("[world]\nlength = 3", "world.name must say which world"),
        ('[world]\nname = "cartpole"\nnonsense = 3', "nonsense"),
    ],
)
def test_a_world_that_does_not_exist_is_one_line(write, capsys, text, problem):
    path = write("client.toml", text)
    assert preflight.main(["--world", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"the client's world {path}: ")
    assert problem in line


def test_a_world_of_a_plugin_is_fine(write):
    world = write("client.toml", WORLD)
    try_files(world, [EXAMPLE])
    with pytest.raises(UserError, match="available:"):
        try_files(world, [])


def test_files_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        try_files(tmp_path / "none.toml", [])
    with pytest.raises(UserError, match="is not a file"):
        try_files(None, [tmp_path / "none.py"])


def test_a_plugin_that_fails_is_refused_in_a_sentence(write):
    with pytest.raises(
        UserError, match=r"bad.py fails: ZeroDivisionError: division by zero \(.*bad.py, line \d+\)"
    ):
        try_files(None, [write("bad.py", "print('hello')\n1 / 0\n")])


def test_a_plugin_that_leaves_is_refused(write):
    with pytest.raises(UserError, match=r"exit.py fails: SystemExit: 0"):
        try_files(None, [write("exit.py", "raise SystemExit(0)\n")])
