"""Text that is shown, that names a folder, or that is typed again."""

import re

from hypothesis import given
from hypothesis import strategies as st

from fedkl.core.text import described, did_you_mean, digits, folder_name, one_line, short_keys


@given(st.lists(st.text(max_size=300), min_size=1, max_size=5))
def test_whatever_it_is_made_of_a_folders_name_is_one_word_that_any_file_system_takes(parts):
    name = folder_name("fedkl", *parts)
    assert re.fullmatch(r"fedkl[A-Za-z0-9._=+-]{0,75}", name)
    assert name not in (".", "..")


def test_long_names_that_begin_alike_are_not_alike():
    long = "x" * 200
    assert folder_name(long + "1") != folder_name(long + "2")
    assert len(folder_name(long)) == 80


def test_settings_are_short_unless_they_would_be_mixed_up():
    assert short_keys(["learner.steps", "critic.steps", "world.name", "seed"]) == {
        "learner.steps": "learner.steps",
        "critic.steps": "critic.steps",
        "world.name": "world",
        "seed": "seed",
    }
    assert described({"learner.hidden": [32, 32], "learner.guard": True}) == [
        "hidden=[32,32]",
        "guard=true",
    ]


def test_a_word_that_is_like_none_is_answered_with_nothing():
    assert did_you_mean("fedprix", ["fedkl", "fedprox"]) == " (did you mean fedprox?)"
    assert did_you_mean("--ep", ["--help", "--episodes"]) == " (did you mean --episodes?)"
    assert did_you_mean("lr", ["learning_rate", "l2"]) == " (did you mean learning_rate?)"
    assert did_you_mean("lr", ["hidden"]) == ""
    assert did_you_mean("", ["fedkl"]) == ""
    assert did_you_mean("nope", ["fedkl", "fedprox"]) == ""


def test_no_number_is_rounded_to_nothing():
    assert [digits(x) for x in (-0.00101, 3e-7, -0.0, 9.999)] == [
        "-0.00101",
        "3.00e-07",
        "0",
        "10.00",
    ]
    assert digits(-8.1234, 3) == "-8.123"
    assert [digits(float(x)) for x in ("inf", "nan")] == ["inf", "nan"]


def test_an_error_without_words_is_its_name():
    assert one_line(KeyError()) == "KeyError"
    assert one_line(ValueError("one\n\n  two")) == "ValueError: one two"
