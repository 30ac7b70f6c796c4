"""Which settings shape compiled code and which are numbers that it takes."""

import dataclasses
import typing

import pytest

from fedkl import settings
from fedkl.algorithms import ALGORITHMS
from fedkl.learning.settings import CriticSettings, LearnerSettings

GROUPS = [LearnerSettings, CriticSettings, *(ALGORITHMS[name] for name in ALGORITHMS)]


@pytest.mark.parametrize("group", GROUPS)
def test_all_that_is_not_a_real_number_is_static(group):
    """JAX would turn an int, a switch or a name that is not static into a tracer, or fail."""
    hints = typing.get_type_hints(group)
    for field in dataclasses.fields(group):
        numbers = typing.get_args(hints[field.name]) or (hints[field.name],)
        assert field.metadata["static"] or set(numbers) == {float}, field.name


@pytest.mark.parametrize("group", GROUPS)
def test_the_defaults_keep_their_own_limits(group):
    assert settings.build(group, settings.as_mapping(group()), "group") == group()
