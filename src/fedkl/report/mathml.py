"""Formulas in plain letters, such as `AA_n - 2 ||B_n||_F E[TV]`, typeset for the page.

A line may be words with formulas among them. Formulas become MathML, which browsers draw without
any script; a browser breaks no line within a formula, so a long one is several.
"""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

from fedkl.report.markup import Html

_GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "eps": "ε",
    "eta": "η",
    "pi": "π",
    "Pi": "Π",
    "rho": "ρ",
    "sigma": "σ",
    "Phi": "Φ",
}
_UPRIGHT = {"TV": "TV", "KL": "KL", "Tr": "Tr", "E": "𝔼", "AA": "𝔸", "CPO": "CPO", "sa": "s,a"}
_LARGE = {"sum": "∑", "max": "max", "span": "span"}
_SIGNS = {">=": "≥", "<=": "≤", "-": "−", "||": "‖"}
_BETWEEN = {"≥", "≤", "=", "<", ">", "+", "−"}
_SYMBOLS = {*_GREEK, *_UPRIGHT, *_LARGE, "sqrt"}
_PAIRS = {"(": ")", "[": "]"}
_STOPS = {",", ".", ":", ";", "?"}

_TOKEN = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?|[A-Za-z]\d(?=_)|[A-Za-z]+|>=|<=|\|\||\S")
_WORD = re.compile(r"[A-Za-z]{2,}|a")


class _Token(NamedTuple):
    text: str
    apart: bool  # whether a space is before it


def typeset(line: str) -> Html:
    """Typeset a line of words and formulas as HTML.

    Example:
        >>> typeset("all pi_n")
        'all <math><msub><mi>π</mi><mi>n</mi></msub></math>'
    """
    return Html(_Reader(line).line())


class _Reader:
    """Reads a line from left to right."""

    def __init__(self, line: str):
        ends = [0, *(m.end() for m in _TOKEN.finditer(line))]
        found = zip(_TOKEN.finditer(line), ends, strict=False)
        self._tokens = [_Token(m[0], m.start() > end) for m, end in found]
        self._at = 0

    def line(self) -> str:
        """Return words as they are, and formulas cut before each sign that stands between two
        terms."""
        parts: list[str] = []
        formula: list[str] = []

        def close() -> None:
            if formula:
                parts.append(f"<math>{''.join(formula)}</math>")
                formula.clear()

        while (token := self._now) is not None:
            sign = _SIGNS.get(token.text, token.text)
            if self._is_word(token) or (not formula and sign in _STOPS):
                close()
                self._at += 1
                space = " " if parts and token.apart else ""
                parts.append(space + escape(token.text))
                continue
            if sign in _STOPS and self._ends_formula():
                close()
                continue
            between = sign in _BETWEEN and not self._opens_product()
            if between:
                close()
            goes_on = between and "".join(parts).endswith("</math>")
            if not formula:
                parts.append(" " if parts and token.apart else "")
            formula.append(self._term())
            if goes_on:
                # Chromium leaves no room behind a sign that is the first of its formula.
                formula.append('<mspace width="0.25em"/>')
        close()
        return "".join(parts)

    @property
    def _now(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next_is(self, text: str, apart: bool | None = None) -> bool:
        token = self._now
        return token is not None and token.text == text and apart in (None, token.apart)

    def _is_word(self, token: _Token) -> bool:
        """Return True if a token is English: no symbol, or the article before a word."""
        if token.text == "'" or (token.text == "s" and self._before("'")):
            return token.text == "s" or self._after("s")
        if token.text[0].isdecimal():
            return self._is_alone()
        if not _WORD.fullmatch(token.text):
            return False
        if token.text == "a":
            following = self._tokens[self._at + 1 : self._at + 2]
            return bool(following) and following[0].apart and bool(_WORD.match(following[0].text))
        return token.text not in _SYMBOLS

    def _is_alone(self) -> bool:
        """Return True if a number stands among words, such as that of a theorem."""
        before = self._tokens[self._at - 1].text if self._at else ""
        after = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else None
        if len(before) < 3 or not before.isalpha() or before in _SYMBOLS:
            return False
        if after is None or after.text in _STOPS:
            return True
        return (
            after.apart
            and (after.text == "(" or (len(after.text) > 1 and after.text.isalpha()))
            and after.text not in _SYMBOLS
        )

    def _opens_product(self) -> bool:
        """Return True if a < is the bracket of an inner product, as in <x, y>, and not a
        comparison."""
        token, after = self._tokens[self._at], self._tokens[self._at + 1 : self._at + 2]
        return token.text == "<" and bool(after) and not after[0].apart

    def _before(self, text: str) -> bool:
        return self._at > 0 and self._tokens[self._at - 1].text == text

    def _after(self, text: str) -> bool:
        return self._at + 1 < len(self._tokens) and self._tokens[self._at + 1].text == text

    def _ends_formula(self) -> bool:
        """Return True if a new formula or words follow a comma, and not another argument."""
        return self._at + 1 == len(self._tokens) or self._tokens[self._at + 1].apart

    def _term(self) -> str:
        """Read one symbol, bracket or fraction, with what hangs on it."""
        over, bare_over = self._scripted()
        if not self._next_is("/", apart=False):
            return over
        self._at += 1
        _, bare_under = self._scripted()
        return f"<mfrac>{bare_over}{bare_under}</mfrac>"

    def _scripted(self) -> tuple[str, str]:
        """Read a symbol or bracket with its index and power; and the same as part of a fraction."""
        base, bare, large = self._atom()
        marks = ""
        while self._next_is("'", apart=False) and not self._after("s"):
            self._at += 1
            marks += "′"
        below = above = ""
        if self._next_is("_", apart=False):
            self._at += 1
            below = self._index()
        if self._next_is("^", apart=False):
            self._at += 1
            above, _, _ = self._atom()
        if marks:
            above = f"<mrow><mo>{marks}</mo>{above}</mrow>"
        if below == "<mi>bar</mi>":
            base, below = f'<mover accent="true">{base}<mo>¯</mo></mover>', ""
        if below and above:
            base = f"<msubsup>{base}{below}{above}</msubsup>"
        elif below:
            under = "munder" if large and base.startswith("<mo>∑") else "msub"
            base = f"<{under}>{base}{below}</{under}>"
        elif above:
            base = f"<msup>{base}{above}</msup>"
        return base, base if below or above else bare

    def _index(self) -> str:
        """Read an index: one symbol, a sign, or all that is in braces."""
        if self._next_is("{"):
            self._at += 1
            return f"<mrow>{self._until('}')}</mrow>"
        if self._next_is("+"):
            self._at += 1
            return "<mo>+</mo>"
        name, _, _ = self._atom()
        return name.replace("<mo>max</mo>", "<mi>max</mi>")

    def _atom(self) -> tuple[str, str, bool]:
        """Read a symbol or a bracket; the same without its brackets; True if it is a large
        operator."""
        token = self._now
        assert token is not None, "the formula ends too early"
        product = self._opens_product()
        self._at += 1
        text = token.text
        if text == "sqrt":
            self._at += 1  # the bracket that belongs to it
            root = f"<msqrt>{self._until(')')}</msqrt>"
            return root, root, False
        if text in _PAIRS:
            inside = self._until(_PAIRS[text])
            whole = f"<mrow><mo>{text}</mo>{inside}<mo>{_PAIRS[text]}</mo></mrow>"
            return whole, f"<mrow>{inside}</mrow>" if text == "(" else whole, False
        if text == "||":
            inside = self._until("||")
            norm = f"<mrow><mo>‖</mo>{inside}<mo>‖</mo></mrow>"
            return norm, norm, False
        if product:
            inside = self._until(">")
            whole = f"<mrow><mo>⟨</mo>{inside}<mo>⟩</mo></mrow>"
            return whole, whole, False
        symbol = _symbol(text)
        if text[0].isdecimal() and (now := self._now) and not now.apart and now.text.isalpha():
            symbol = f"<mrow>{symbol}{self._scripted()[0]}</mrow>"  # such as 4C
        return symbol, symbol, text in _LARGE

    def _until(self, end: str) -> str:
        parts = []
        while not self._next_is(end):
            parts.append(self._term())
        self._at += 1
        return "".join(parts)


def _symbol(text: str) -> str:
    if text[0].isdecimal():
        return f"<mn>{text}</mn>"
    if text in _LARGE:
        return f"<mo>{_LARGE[text]}</mo>"
    if text in _GREEK:
        return f"<mi>{_GREEK[text]}</mi>"
    if text in _UPRIGHT:
        return f'<mi mathvariant="normal">{_UPRIGHT[text]}</mi>'
    if text.isalpha():
        return f"<mi>{text}</mi>"
    if re.fullmatch(r"[A-Za-z]\d", text):
        return f"<msup><mi>{text[0]}</mi><mn>{text[1]}</mn></msup>"
    sign = _SIGNS.get(text, text)
    # What begins a formula after a cut would else be taken for a sign of what follows.
    form = ' form="infix" lspace="0.2em" rspace="0.2em"' if sign in _BETWEEN else ""
    return f"<mo{form}>{escape(sign)}</mo>"
