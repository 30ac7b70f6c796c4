"""The few pieces of HTML that the page is made of. Text goes in plain and comes out escaped."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from fedkl.core.errors import UserError
from fedkl.core.text import printable
from fedkl.io.files import write_atomically
from fedkl.report.style import themed

if TYPE_CHECKING:
    from fedkl.report.pictures import Picture


class Html(str):
    """Text that is HTML already and must not be escaped again."""

    __slots__ = ()


def html(text: str) -> Html:
    """Return the text as HTML, escaped unless it is HTML already."""
    return text if isinstance(text, Html) else Html(escape(printable(text)))


def paragraph(text: str, kind: str = "") -> Html:
    """Return a paragraph of a CSS class."""
    return Html(f'<p class="{kind}">{html(text)}</p>')


def bullets(items: Sequence[str], kind: str) -> Html:
    """Return a list of a CSS class; nothing if there are no items."""
    lines = "".join(f"<li>{html(item)}</li>" for item in items)
    return Html(f'<ul class="{kind}">{lines}</ul>' if items else "")


_MORE = '<p class="more">Scroll sideways: there is more \N{RIGHTWARDS ARROW}</p>'
"""After what may be wider than the screen; it shows if that is so."""


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> Html:
    """Return a table that scrolls sideways by itself on a narrow screen, by keys as well."""
    head = "".join(f"<th>{html(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{html(c)}</td>' for c in row)}</tr>\n" for row in rows)
    return Html(
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>{_MORE}"
    )


def definitions(entries: Sequence[tuple[str, str]]) -> Html:
    """Return terms and their definitions as HTML."""
    return Html(f"<dl>{''.join(f'<dt>{html(t)}</dt><dd>{html(d)}</dd>' for t, d in entries)}</dl>")


def collapsed(title: str, content: str) -> Html:
    """Content that shows when its title is clicked."""
    return Html(f"<details><summary>{html(title)}</summary>{html(content)}</details>")


def preformatted(text: str) -> Html:
    """Text with its line breaks, to be copied."""
    return Html(f"<pre><code>{html(text)}</code></pre>")


def link(to: str, text: str) -> Html:
    """Return a link to a page, or to a file beside this one."""
    return Html(f'<a href="{html(to)}">{html(text)}</a>')


def _width(svg: str) -> str:
    """Return the width of a picture in points, in which its letters are measured."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ', svg)
    return found[1] if found else "0"


def figure(picture: Picture, kind: str = "") -> Html:
    """Return a figure within the page, with its caption, its files and the values of its lines.

    Args:
        picture: to be shown.
        kind: "wide", beside its caption; "narrow", on narrow screens only; else empty.
    """
    name, svg = picture.name, picture.svg
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    # Every figure calls its parts by the same names, which must not clash on one page.
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    title = html(picture.title or picture.caption)
    described = f'role="img" aria-label="{title}" aria-describedby="{name}-caption"'
    body = themed(body).replace("<svg", f"<svg {described}", 1)
    kind = f' class="{kind}"' if kind else ""
    files = " ".join(link(f"figures/{name}{end}", end[1:].upper()) for end in picture.files)
    values = picture.values
    if values:
        values = f'<script type="application/json" class="values">{values}</script>'
    return Html(
        f'<figure{kind}><div class="scroll"><div class="plot" style="--points:{_width(svg)}">'
        f'{body}</div></div>{_MORE}{values}<figcaption id="{name}-caption">'
        f'{html(picture.caption)} <span class="files">{files}</span></figcaption></figure>'
    )


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
        """Write the file as a whole, or not at all; return its path."""
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
    """Fill one of our templates with its parts, which are HTML already."""
    return Template(_resource(template)).substitute(parts)


def _resource(name: str) -> str:
    return (resources.files("fedkl.report") / name).read_text(encoding="utf-8")


PAPER = "https://doi.org/10.1109/JSAC.2023.3242734"


def made_by(command: str, packages: Sequence[str]) -> Html:
    """Return the foot of a page.

    Args:
        command: makes the page again.
        packages: those that drew and computed it.
    """
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    said = html(f"Made on {_today()} with {versions}. FedKL is the algorithm of ")
    paper = link(PAPER, "Xie and Song, 2023")
    return Html(preformatted(command) + paragraph(Html(f"{said}{paper}.")))


def typed(directory: Path) -> str:
    """Return a directory as it was typed; of an absolute path only its name, which tells nothing of
    the machine."""
    return shlex.quote(directory.name if directory.is_absolute() else str(directory))


def _today() -> str:
    """Return the day, or the one that builds which are to be repeated exactly give for it."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None and not given.isdecimal():
        raise UserError(f"SOURCE_DATE_EPOCH is a number of seconds, and not {given!r}")
    return time.strftime("%Y-%m-%d", time.gmtime(None if given is None else int(given)))
