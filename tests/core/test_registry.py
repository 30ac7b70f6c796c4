"""Named classes, ours and the user's."""

import sys
import types

import pytest

from fedkl.core.errors import UserError
from fedkl.core.registry import Registry
from fedkl.server.aggregation import REDUCERS
from fedkl.worlds import WORLDS


class Circle:
    name = "circle"


class Square:
    name = "square"


@pytest.fixture
def shapes():
    registry = Registry("shape")
    registry.register(Square)
    registry.register(Circle)
    return registry


def test_a_class_is_found_by_its_name(shapes):
    assert shapes["circle"] is Circle


def test_registering_decorates_without_changing_the_class(shapes):
    assert shapes.register(Circle) is Circle


def test_names_come_in_alphabetical_order(shapes):
    assert list(shapes) == ["circle", "square"]
    assert "circle" in shapes
    assert "triangle" not in shapes


def test_an_unknown_name_says_what_there_is(shapes):
    with pytest.raises(UserError) as error:
        shapes["triangle"]
    assert str(error.value) == "there is no shape 'triangle'; available: circle, square"


def test_a_name_of_another_class_is_refused_with_both_homes(shapes):
    class Rounder:
        name = "circle"

    with pytest.raises(UserError) as error:
        shapes.register(Rounder)
    said = str(error.value)
    assert said.startswith("there are two shapes named 'circle': ")
    assert Circle.__qualname__ in said
    assert Rounder.__qualname__ in said
    assert shapes["circle"] is Circle


def test_a_class_that_is_made_again_is_replaced(shapes, monkeypatch):
    """So that a plugin that was edited can be loaded again."""

    def edited():
        class Triangle:
            name = "triangle"

        return Triangle

    old, new = edited(), edited()
    for cls in (old, new):
        cls.__module__ = "plugin"
        # Loading a file again makes another module of the same name.
        monkeypatch.setitem(sys.modules, "plugin", types.ModuleType("plugin"))
        shapes.register(cls)
    assert shapes["triangle"] is new
    assert list(shapes) == ["circle", "square", "triangle"]


def test_a_file_that_registers_a_name_twice_is_refused(shapes, monkeypatch):
    monkeypatch.setitem(sys.modules, "plugin", types.ModuleType("plugin"))
    one, two = (type("Triangle", (), {"name": "triangle"}) for _ in range(2))
    one.__module__ = two.__module__ = "plugin"
    shapes.register(one)
    with pytest.raises(UserError, match=r"two shapes named 'triangle': plugin\.Triangle and"):
        shapes.register(two)


def test_a_class_without_a_name_is_refused(shapes):
    with pytest.raises(
        UserError,
        match=r"Nobody \(.*test_registry\.py\) needs a `name` to be registered as a shape",
    ):
        shapes.register(type("Nobody", (), {}))


def test_the_setting_that_asks_for_an_unknown_name_is_named(shapes):
    with pytest.raises(UserError, match=r"^world\.shape: there is no shape 'triangle'; available"):
        shapes.find("triangle", "world.shape")


def test_a_class_that_derives_from_another_is_refused_in_a_sentence():
    class Stranger:
        name = "stranger"

    with pytest.raises(
        UserError, match=r"\.Stranger \(.*\.py\) must derive from fedkl\.Reducer to be a reducer"
    ):
        REDUCERS.register(Stranger)
    with pytest.raises(
        UserError, match=r"from fedkl\.World or fedkl\.SoloWorld or fedkl\.SharedWo"
    ):
        WORLDS.register(Stranger)
