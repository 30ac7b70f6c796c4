"""Arguments of other people's functions."""

import pytest

from fedkl.core.errors import UserError
from fedkl.worlds.wrapped_env import read_arguments


def test_values_are_toml_or_plain_strings():
    entries = ["a=5", "b = 0.5", "c=true", "d=[1, 2]", "e=fast", "f='5'"]
    expected = {"a": 5, "b": 0.5, "c": True, "d": [1, 2], "e": "fast", "f": "5"}
    assert read_arguments(entries, "x") == expected


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (["a"], "x must be a list of name=value, and 'a' is not of that form"),
        (["=5"], "x must be a list of name=value, and '=5' is not of that form"),
        (["a b=5"], "and 'a b=5' is not of that form"),
        (["a=5", "a=6"], "x gives a twice"),
    ],
)
def test_what_is_not_of_that_form_is_refused(entries, sentence):
    with pytest.raises(UserError) as caught:
        read_arguments(entries, "x")
    assert sentence in str(caught.value)
