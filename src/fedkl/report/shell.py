"""What all pages share: the document around them, their style, and their head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from fedkl.report.markup import bullets, html
from fedkl.runs import write_atomically


@dataclass(frozen=True)
class Page:
    """One HTML file that needs nothing else.

    Attributes:
        title: of the page.
        facts: what it is about, in a line.
        answer: what it found, in two or three sentences.
        notes: what a careful reader has to know before believing it.
        body: the rest, HTML already.
        made: what the page says about itself, HTML already.
        styles: style sheets beside the one that all pages share.
    """

    title: str
    facts: str
    answer: str
    notes: Sequence[str]
    body: str
    made: str
    styles: Sequence[str] = ()

    def write(self, path: Path) -> Path:
        """Writes the file as a whole, or not at all; returns its path."""
        text = filled(
            "page.html",
            title=html(self.title),
            css="".join(_resource(name) for name in ("page.css", *self.styles)),
            facts=html(self.facts),
            answer=html(self.answer),
            notes=bullets(self.notes, "notes"),
            body=self.body,
            made=self.made,
            script=_resource("page.js"),
        )
        write_atomically(path, text.encode())
        return path


def filled(template: str, **parts: str) -> str:
    """One of our templates with its parts, which are HTML already, in their places."""
    return Template(_resource(template)).substitute(parts)


def _resource(name: str) -> str:
    return (resources.files("fedkl.report") / name).read_text(encoding="utf-8")
