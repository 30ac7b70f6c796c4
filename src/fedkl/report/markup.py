"""The few pieces of HTML that the page is made of. Text goes in plain and comes out escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fedkl.report.style import themed
from fedkl.texts import printable

if TYPE_CHECKING:
    from fedkl.report.pictures import Picture


class Html(str):
    """Text that is HTML already and must not be escaped again."""

    __slots__ = ()


def html(text: str) -> Html:
    """The text as HTML, escaped unless it is HTML already."""
    return text if isinstance(text, Html) else Html(escape(printable(text)))


def paragraph(text: str, kind: str = "") -> Html:
    """A paragraph of a CSS class."""
    return Html(f'<p class="{kind}">{html(text)}</p>')


def bullets(items: Sequence[str], kind: str) -> Html:
    """A list of a CSS class; nothing if there are no items."""
    lines = "".join(f"<li>{html(item)}</li>" for item in items)
    return Html(f'<ul class="{kind}">{lines}</ul>' if items else "")


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> Html:
    """A table that scrolls sideways by itself where the screen is narrow, by keys as well."""
    head = "".join(f"<th>{html(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{html(c)}</td>' for c in row)}</tr>\n" for row in rows)
    return Html(
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def definitions(entries: Sequence[tuple[str, str]]) -> Html:
    """Terms and what they mean."""
    return Html(f"<dl>{''.join(f'<dt>{html(t)}</dt><dd>{html(d)}</dd>' for t, d in entries)}</dl>")


def collapsed(title: str, content: str) -> Html:
    """Content that shows when its title is clicked."""
    return Html(f"<details><summary>{html(title)}</summary>{html(content)}</details>")


def preformatted(text: str) -> Html:
    """Text with its line breaks, to be copied."""
    return Html(f"<pre><code>{html(text)}</code></pre>")


def link(to: str, text: str) -> Html:
    """A link to a page, or to a file beside this one."""
    return Html(f'<a href="{html(to)}">{html(text)}</a>')


def _width(svg: str) -> str:
    """Of a picture, in points: what its letters are measured in."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ', svg)
    return found[1] if found else "0"


def figure(picture: Picture, wide: bool) -> Html:
    """A figure within the page, with its caption, its files and the values of its lines."""
    name, svg = picture.name, picture.svg
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    # Every figure calls its parts by the same names, which must not clash on one page.
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    title = html(picture.title)
    described = f'role="img" aria-label="{title}" aria-describedby="{name}-caption"'
    body = themed(body).replace("<svg", f"<svg {described}", 1)
    kind = ' class="wide"' if wide else ""
    files = " ".join(link(f"figures/{name}.{end}", end.upper()) for end in ("png", "svg"))
    values = picture.values
    if values:
        values = f'<script type="application/json" class="values">{values}</script>'
    return Html(
        f'<figure{kind}><div class="scroll"><div class="plot" style="--points:{_width(svg)}">'
        f'{body}</div></div>{values}<figcaption id="{name}-caption">'
        f'{html(picture.caption)} <span class="files">{files}</span></figcaption></figure>'
    )
