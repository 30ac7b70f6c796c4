"""Reads our docstrings as the tool of the site does: it knows `Examples`, and we say `Example`."""

from __future__ import annotations

import re
from typing import Any

import griffe


class OneExample(griffe.Extension):
    """Calls the section by the name under which its code is set as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE
            )
