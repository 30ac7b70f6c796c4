"""Which settings shape compiled code and which are numbers that it takes."""

import dataclasses
import typing

import pytest

import fedkl
from fedkl.algorithms import ALGORITHMS
from fedkl.core import settings
from fedkl.core.errors import UserError
from fedkl.learning.penalty import Coefficient
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


@pytest.mark.parametrize("name", ["c2_bounds", "ratio_bounds"])
def test_bounds_the_wrong_way_round_are_refused(name):
    with pytest.raises(UserError, match=rf"^learner\.{name} must be in ascending order, not 2, 1$"):
        LearnerSettings(**{name: (2, 1)})
    with pytest.raises(UserError, match=rf"^learner\.{name} must be in ascending order"):
        fedkl.preset("probe-point", set={f"learner.{name}": [2.0, 1.0]})
    assert getattr(LearnerSettings(**{name: (1.0, 1.0)}), name) == (1, 1)


def test_c2_follows_its_settings():
    learner = LearnerSettings(c2=0.5, c2_bounds=(0.25, 8.0), c2_across_rounds="averaged")
    assert learner.coefficients() == {"c2": Coefficient(0.5, (0.25, 8.0), "averaged")}
