"""Registries of what a config asks for by name: algorithms, worlds, links, distances."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from fedkl.core.errors import UserError
from fedkl.core.text import did_you_mean, with_article

T = TypeVar("T", bound=Callable[..., Any])


def require_known(kind: str, name: str, known: Collection[str], field: str = "") -> None:
    """Refuse a name that nothing of its kind has.

    Args:
        kind: of what.
        name: that was given.
        known: the names there are.
        field: the setting that asks for it, for the message.

    Raises:
        UserError: there is none of that name.
    """
    if name not in known:
        where, hint = f"{field}: " if field else "", did_you_mean(str(name), known)
        available = ", ".join(known)
        raise UserError(f"{where}there is no {kind} '{name}'{hint}; available: {available}")


class Registry:
    """Classes by their `name`, or functions by their own.

    Example:
        >>> shapes = Registry("shape")
        >>> @shapes.register
        ... class Circle:
        ...     name = "circle"
        >>> shapes["circle"].__name__
        'Circle'
        >>> shapes["square"]
        Traceback (most recent call last):
        ...
        fedkl.core.errors.UserError: there is no shape 'square'; available: circle
    """

    def __init__(self, kind: str, *bases: str, replaced: Callable[[], None] = lambda: None) -> None:
        """Args:
        kind: of what is registered, for messages.
        bases: names of our classes, from one of which a class must derive; none: from any.
        replaced: called when what a name stood for is replaced.
        """
        self.kind = kind
        self._bases = bases
        self._replaced = replaced
        self._classes: dict[str, tuple[Any, Any]] = {}
        """The class or function of each name, and the module that registered it."""

    def register(self, cls: T) -> T:
        """Add a class under its `name`, or a function under its own.

        A file that is run again (an edited plugin, a cell of a notebook) replaces what it
        registered.

        Raises:
            UserError: the class has no name, or another has it; or it derives from another class.
        """
        classes = cls.__mro__ if isinstance(cls, type) else ()
        derived = any(c.__name__ in self._bases and c.__module__[:6] == "fedkl." for c in classes)
        if self._bases and not derived:
            allowed = " or ".join(f"fedkl.{base}" for base in self._bases)
            raise UserError(f"{_place(cls)} must derive from {allowed} to be a {self.kind}")
        if missing := sorted(getattr(cls, "__abstractmethods__", ())):
            names = ", ".join(f"`{name}`" for name in missing)
            raise UserError(f"{_place(cls)} lacks {names}, which every {self.kind} must have")
        name = getattr(cls, "name" if isinstance(cls, type) else "__name__", None)
        if not isinstance(name, str):
            kind = with_article(self.kind)
            raise UserError(f"{_place(cls)} needs a `name` to be registered as {kind}")
        module = sys.modules.get(cls.__module__)
        known, before = self._classes.get(name, (cls, None))
        again = module is not before or cls.__module__ == "__main__"
        if known is not cls and not (again and _home(known) == _home(cls)):
            raise UserError(
                f"there are two {self.kind}s named '{name}': {_place(known)} and {_place(cls)}"
            )
        self._classes[name] = (cls, module)
        if known is not cls:
            self._replaced()
        return cls

    def __getitem__(self, name: str) -> Any:
        return self.find(name)

    def find(self, name: str, field: str = "") -> Any:
        """Look up the class or function of that name.

        Args:
            name: as registered.
            field: the setting that asks for it, for the message.

        Raises:
            UserError: there is none.
        """
        require_known(self.kind, name, list(self), field)
        return self._classes[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._classes))


def _home(cls: Callable[..., Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _place(cls: Callable[..., Any]) -> str:
    """Name a class for its author: with the file of a plugin, whose module has a name of ours."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return f"{cls.__qualname__} ({file})" if file else _home(cls)
