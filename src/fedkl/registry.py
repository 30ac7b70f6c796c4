"""Named things a config can ask for: algorithms and worlds, ours and the user's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from fedkl.errors import UserError

T = TypeVar("T", bound=type)


class Registry:
    """Maps the `name` of a class to the class.

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
        fedkl.errors.UserError: there is no shape 'square'; there is: circle
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._classes: dict[str, Any] = {}

    def register(self, cls: T) -> T:
        """Adds a class under its `name`.

        A file that is run again (an edited plugin in a notebook, say) replaces what it registered.

        Raises:
            UserError: another class has the name.
        """
        name: str = cls.name  # type: ignore[attr-defined]  # every registered class has one
        known = self._classes.get(name)
        if known is not None and _home(known) != _home(cls):
            raise UserError(
                f"there are two {self.kind}s named '{name}': {_home(known)} and {_home(cls)}"
            )
        self._classes[name] = cls
        return cls

    def __getitem__(self, name: str) -> Any:
        if name not in self._classes:
            raise UserError(f"there is no {self.kind} '{name}'; there is: {', '.join(self)}")
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._classes))


def _home(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
