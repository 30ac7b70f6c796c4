"""Of an error in a user's own code the place in it is named, and the traceback is kept."""

import pickle
import textwrap

import pytest

from fedkl.core.errors import StalledError, UserError
from fedkl.core.own_code import OwnCodeError, explained, own_code_error, place_in
from fedkl.core.text import few


@pytest.fixture
def raised(tmp_path):
    """Runs a file of a user's that fails, and gives the error."""

    def run(text, **names):
        path = tmp_path / "mine.py"
        path.write_text(textwrap.dedent(text))
        try:
            exec(compile(path.read_text(), str(path), "exec"), names)
        except Exception as error:
            # Without the frame of this test, which is a user's own file, too.
            return path, error.with_traceback(error.__traceback__.tb_next)
        raise AssertionError

    return run


def test_the_innermost_place_in_the_users_code_is_named(raised):
    path, error = raised("def helped():\n    return few(3)\n\nhelped()\n", few=few)
    told = own_code_error(error)
    assert str(told).startswith(f"{path}, line 2, in helped: TypeError: object of type 'int'")
    assert "text.py" in told.trace  # ours, below
    assert told.trace.endswith("has no len()\n")


def test_an_error_that_is_in_no_code_of_the_users_is_ours():
    try:
        few(3)
    except TypeError as error:
        inner = error.with_traceback(error.__traceback__.tb_next)
    assert own_code_error(inner) is None
    assert isinstance(explained("a sentence", inner), UserError)
    assert not isinstance(explained("a sentence", inner), OwnCodeError)


@pytest.mark.parametrize("kind", [UserError, StalledError])
def test_a_sentence_that_a_plugin_raises_stays_as_it_is(raised, kind):
    _, error = raised("raise kind('not today')", kind=kind)
    assert own_code_error(error) is None


def test_what_is_installed_is_nobodys_own_but_may_be_the_environment_that_failed(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    path = folder / "env.py"
    path.write_text("1 / 0")
    try:
        exec(compile("1 / 0", str(path), "exec"))
    except ZeroDivisionError as error:
        inner = error.with_traceback(error.__traceback__.tb_next)
    assert place_in(inner) == ""
    assert place_in(inner, installed=True) == f"{path}, line 1"


def test_it_goes_to_another_process_with_its_traceback(raised):
    path, error = raised("1 / 0")
    told = own_code_error(error)
    there = pickle.loads(pickle.dumps(told))
    assert (type(there), str(there), there.trace) == (OwnCodeError, str(told), told.trace)
    assert own_code_error(there) is there
    assert str(there) == f"{path}, line 1: ZeroDivisionError: division by zero"


def test_a_long_error_is_cut(raised):
    _, error = raised("raise ValueError('a\\n' * 5000)")
    assert len(str(own_code_error(error))) < 500
    assert "\n" not in str(own_code_error(error))
