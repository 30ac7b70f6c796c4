"""What all pages share: the document around them, their style, and their head."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from string import Template

from fedkl.report.markup import bullets, html


def whole_page(
    *,
    title: str,
    facts: str,
    answer: str,
    notes: Sequence[str],
    body: str,
    made: str,
    styles: Sequence[str] = (),
) -> str:
    """One HTML file that needs nothing else.

    Args:
        title: of the page.
        facts: what it is about, in a line.
        answer: what it found, in two or three sentences.
        notes: what a careful reader has to know before believing it.
        body: the rest, HTML already.
        made: what the page says about itself, HTML already.
        styles: style sheets beside the one that all pages share.
    """
    return filled(
        "page.html",
        title=html(title),
        css="".join(_resource(name) for name in ("page.css", *styles)),
        facts=html(facts),
        answer=html(answer),
        notes=bullets(notes, "notes"),
        body=body,
        made=made,
        script=_resource("page.js"),
    )


def filled(template: str, **parts: str) -> str:
    """One of our templates with its parts, which are HTML already, in their places."""
    return Template(_resource(template)).substitute(parts)


def _resource(name: str) -> str:
    return (resources.files("fedkl.report") / name).read_text(encoding="utf-8")
