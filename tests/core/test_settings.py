"""Every mistake in a config is answered with one sentence that names the field."""

import dataclasses
import math
from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.core.settings import as_mapping, build, defaults, setting


@dataclass(frozen=True)
class Oven:
    """A group with one setting of each kind."""

    trays: int = setting(2, "how many trays", low=1, high=9)
    heat: float = setting(180.0, "degrees", above=0)
    fan: bool = setting(True, "stir the air")
    mode: str = setting("bake", "what to do", choices=("bake", "grill"))
    label: str = setting("", "any text")
    shelves: tuple[int, ...] = setting((1, 3), "which shelves", low=0)
    limits: tuple[float, float] = setting((50.0, 250.0), "range of the heat", low=0, infinite=True)


@dataclass(frozen=True)
class Nothing:
    """A group without settings."""


WRONG = [
    ("colour", "red", "oven.colour is not a setting; oven has: trays, heat, fan, mode, label,"),
    ("trays", 2.0, "oven.trays must be a whole number, not 2.0"),
    ("trays", True, "oven.trays must be a whole number, not True"),
    ("trays", "2", "oven.trays must be a whole number, not '2'"),
    ("trays", [2], "oven.trays must be a whole number, not [2]"),
    ("trays", None, "oven.trays must be a whole number, not None"),
    ("trays", 0, "oven.trays must be at least 1, not 0"),
    ("trays", 10, "oven.trays must be at most 9, not 10"),
    ("heat", "hot", "oven.heat must be a number, not 'hot'"),
    ("heat", False, "oven.heat must be a number, not False"),
    ("heat", math.nan, "oven.heat must be a number, not nan"),
    ("heat", 0, "oven.heat must be above 0, not 0.0"),
    ("heat", math.inf, "oven.heat must be finite, not inf"),
    ("heat", 10**400, "oven.heat must be finite, not inf"),
    ("fan", 1, "oven.fan must be true or false, not 1"),
    ("fan", "true", "oven.fan must be true or false, not 'true'"),
    ("mode", "steam", "oven.mode must be one of bake, grill, not 'steam'"),
    ("mode", 3, "oven.mode must be a string, not 3"),
    ("shelves", 3, "oven.shelves must be a list, not 3"),
    ("shelves", "13", "oven.shelves must be a list, not '13'"),
    ("shelves", {"a": 1}, "oven.shelves must be a list, not {'a': 1}"),
    ("shelves", [1, 2.5], "oven.shelves must be a whole number, not 2.5"),
    ("shelves", [1, -1], "oven.shelves must be at least 0, not -1"),
    ("limits", [1.0], "oven.limits must be a list of 2, not of 1"),
    ("limits", [1.0, 2.0, 3.0], "oven.limits must be a list of 2, not of 3"),
    ("limits", [1.0, math.nan], "oven.limits must be a number, not nan"),
    ("limits", [1.0, [2.0]], "oven.limits must be a number, not [2.0]"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_mistake_is_one_sentence_that_names_the_field(name, value, message):
    with pytest.raises(UserError) as error:
        build(Oven, {name: value}, "oven")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("trays", 9, 9),
        ("heat", 200, 200.0),
        ("limits", [0, math.inf], (0.0, math.inf)),
        ("heat", np.float64(0.5), 0.5),
        ("heat", np.float32(0.5), 0.5),
        ("trays", np.int64(3), 3),
        ("fan", np.bool_(False), False),
        ("mode", "grill", "grill"),
        ("label", "any thing", "any thing"),
        ("shelves", [], ()),
        ("shelves", (2,), (2,)),
        ("limits", [0, 300], (0.0, 300.0)),
    ],
)
def test_right_values_are_taken_as_the_fields_own_type(name, value, taken):
    result = getattr(build(Oven, {name: value}, "oven"), name)
    assert result == taken
    assert type(result) is type(taken)


def test_an_array_is_not_a_number():
    with pytest.raises(UserError, match=r"^oven\.heat must be a number"):
        build(Oven, {"heat": np.array([0.5, 1.0])}, "oven")


def test_what_is_not_said_keeps_its_default():
    assert build(Oven, {}, "oven") == Oven()
    assert build(Oven, {"trays": 3}, "oven") == dataclasses.replace(Oven(), trays=3)


def test_at_the_top_level_a_field_is_named_alone():
    with pytest.raises(UserError, match=r"^trays must be a whole number"):
        build(Oven, {"trays": "x"}, "")
    with pytest.raises(UserError, match=r"^colour is not a setting; available: trays, heat"):
        build(Oven, {"colour": "x"}, "")


def test_a_group_without_settings_says_so():
    with pytest.raises(UserError, match=r"^lid\.x is not a setting; lid has: nothing$"):
        build(Nothing, {"x": 1}, "lid")


def test_a_group_survives_the_way_to_toml_and_back():
    oven = Oven(trays=4, heat=99.5, shelves=(), limits=(1.0, 2.0), mode="grill")
    mapping = as_mapping(oven)
    assert mapping["limits"] == [1.0, 2.0]
    assert build(Oven, mapping, "oven") == oven


def test_fields_that_are_no_settings_are_not_written():
    @dataclass(frozen=True)
    class Mixed:
        shown: int = setting(1, "a setting")
        hidden: int = 2

    assert as_mapping(Mixed()) == {"shown": 1}


def test_in_a_module_only_numbers_that_are_not_static_are_leaves():
    class Group(eqx.Module):
        size: int = setting(3, "shapes the code", static=True)
        rate: float = setting(0.5, "a number it takes")

    assert jax.tree.leaves(Group()) == [0.5]
    assert build(Group, {"rate": 1}, "group").rate == 1.0


@dataclass(frozen=True)
class Spices:
    """A table: each spice, and how much of it."""

    amounts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_table(cls, table, where):
        if not isinstance(table, dict):
            raise UserError(f"{where} must be a table of spices")
        return cls(tuple(table.items()))

    def table(self):
        return dict(self.amounts)


NONE = Spices()


@dataclass(frozen=True)
class Pot:
    """A group with a table in it, which has another name in a config."""

    litres: int = setting(2, "how large")
    seasoning: Spices = setting(NONE, "what goes in", key="spices")  # noqa: RUF009


def test_a_table_within_a_group_reads_and_writes_itself():
    pot = build(Pot, {"spices": {"salt": 3}}, "pot")
    assert pot == Pot(seasoning=Spices((("salt", 3),)))
    assert as_mapping(pot) == {"litres": 2, "spices": {"salt": 3}}
    assert defaults(Pot) == {"litres": 2, "spices": Spices()}
    with pytest.raises(UserError, match=r"^pot\.spices must be a table of spices$"):
        build(Pot, {"spices": 3}, "pot")
    with pytest.raises(
        UserError, match=r"^pot\.seasoning is not a setting; pot has: litres, spices"
    ):
        build(Pot, {"seasoning": {}}, "pot")


def test_a_setting_with_a_key_is_given_by_name_only():
    with pytest.raises(TypeError):
        Pot(2, Spices())


def test_help_goes_with_the_field():
    assert {f.name: f.metadata["help"] for f in dataclasses.fields(Oven)}["trays"] == (
        "how many trays"
    )
