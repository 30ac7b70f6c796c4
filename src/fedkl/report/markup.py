"""The few pieces of HTML that the page is made of. Text goes in plain and comes out escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape


class Html(str):
    """Text that is HTML already and must not be escaped again."""

    __slots__ = ()


def html(text: str) -> Html:
    """The text as HTML, escaped unless it is HTML already."""
    return text if isinstance(text, Html) else Html(escape(text))


def paragraph(text: str, kind: str = "") -> Html:
    """A paragraph of a CSS class."""
    return Html(f'<p class="{kind}">{html(text)}</p>')


def bullets(items: Sequence[str], kind: str) -> Html:
    """A list of a CSS class; nothing if there are no items."""
    lines = "".join(f"<li>{html(item)}</li>" for item in items)
    return Html(f'<ul class="{kind}">{lines}</ul>' if items else "")


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> Html:
    """A table that scrolls sideways by itself where the screen is narrow."""
    head = "".join(f"<th>{html(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{html(c)}</td>' for c in row)}</tr>\n" for row in rows)
    return Html(
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def definitions(entries: Sequence[tuple[str, str]]) -> Html:
    """Terms and what they mean."""
    return Html(f"<dl>{''.join(f'<dt>{html(t)}</dt><dd>{html(d)}</dd>' for t, d in entries)}</dl>")


def collapsed(title: str, content: str) -> Html:
    """Content that shows when its title is clicked."""
    return Html(f"<details><summary>{html(title)}</summary>{html(content)}</details>")


def preformatted(text: str) -> Html:
    """Text with its line breaks."""
    return Html(f"<pre>{html(text)}</pre>")


def figure(name: str, svg: str, caption: str, wide: bool) -> Html:
    """An SVG figure within the page, with its caption."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    # Every figure calls its parts by the same names, which must not clash on one page.
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    body = body.replace("<svg", f'<svg role="img" aria-labelledby="{name}-caption"', 1)
    kind = ' class="wide"' if wide else ""
    return Html(
        f'<figure{kind}>{body}<figcaption id="{name}-caption">{html(caption)}</figcaption></figure>'
    )
