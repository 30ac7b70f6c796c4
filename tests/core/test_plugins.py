"""Files of users: run once, again when they were changed, and known to whoever runs them too."""

import py_compile
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from fedkl.core.errors import UserError
from fedkl.core.plugins import load_plugin, loaded_plugins


@pytest.fixture
def plugin(tmp_path):
    """A file that counts how often it ran."""
    path = tmp_path / "mine.py"
    ran = str(tmp_path / "ran")
    path.write_text(f"with open({ran!r}, 'a') as file:\n    file.write('x')\n")
    return path


def times(plugin):
    return len((plugin.parent / "ran").read_text())


def test_a_plugin_runs_once_until_it_is_changed(plugin):
    load_plugin(plugin)
    load_plugin(plugin)
    assert times(plugin) == 1
    plugin.write_text(plugin.read_text() + "# changed\n")
    load_plugin(plugin)
    assert times(plugin) == 2


def test_what_has_run_is_known_as_long_as_it_is_there(plugin):
    load_plugin(plugin)
    assert loaded_plugins().count(str(plugin)) == 1
    plugin.unlink()
    assert str(plugin) not in loaded_plugins()


def test_what_failed_has_not_run(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        load_plugin(path)
    assert str(path) not in loaded_plugins()


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (b"import fedkl\ndef f(:\n", r"wrong\.py, line 2: invalid syntax"),
        (b"x = '\xff'", r"wrong\.py.*: .*utf-8"),
    ],
)
def test_what_is_not_python_is_answered_with_the_line(tmp_path, source, sentence):
    path = tmp_path / "wrong.py"
    path.write_bytes(source)
    with pytest.raises(UserError, match=sentence):
        load_plugin(path)
    assert str(path) not in loaded_plugins()


def test_a_file_that_is_not_there_is_answered_with_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"gone\.py is not a file"):
        load_plugin(tmp_path / "gone.py")


def test_loading_a_plugin_imports_no_jax(plugin):
    code = (
        "import sys; from pathlib import Path; from fedkl.core.plugins import load_plugin; "
        f"load_plugin(Path({str(plugin)!r})); print('jax' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_compiled_code_beside_a_plugin_is_not_run(plugin, tmp_path):
    other = tmp_path / "other.py"
    other.write_text("raise AssertionError('somebody else wrote this')")
    compiled = py_compile.compile(
        str(other), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    shutil.copy(compiled, Path(cache_from_source(str(plugin))))
    load_plugin(plugin)
    assert times(plugin) == 1


def test_a_plugin_is_a_python_file(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("")
    with pytest.raises(UserError, match=r"mine\.txt is not a Python file"):
        load_plugin(path)
