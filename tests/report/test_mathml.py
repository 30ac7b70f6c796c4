"""Formulas in plain letters, typeset."""

import re
from xml.etree import ElementTree

import pytest

from fedkl.report.mathml import typeset
from fedkl.tabular.claims import CLAIMS


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a round gains", "a round gains"),
        ("gamma > 1/2", "<math><mi>γ</mi></math> <math><mo infix>&gt;</mo><room>"
         "<mfrac><mn>1</mn><mn>2</mn></mfrac></math>"),
        ("g_n^2 / 4C", "<math><msubsup><mi>g</mi><mi>n</mi><mn>2</mn></msubsup><mo>/</mo>"
         "<mrow><mn>4</mn><mi>C</mi></mrow></math>"),
        ("1/(1-gamma)^2", "<math><mfrac><mn>1</mn><msup><mrow><mo>(</mo><mn>1</mn>"
         "<mo infix>−</mo><mi>γ</mi><mo>)</mo></mrow><mn>2</mn></msup></mfrac></math>"),
        ("gamma/(1-gamma)", "<math><mfrac><mi>γ</mi><mrow><mn>1</mn><mo infix>−</mo>"
         "<mi>γ</mi></mrow></mfrac></math>"),
        ("||B_n||_F", "<math><msub><mrow><mo>‖</mo><msub><mi>B</mi><mi>n</mi></msub><mo>‖</mo>"
         "</mrow><mi>F</mi></msub></math>"),
        ("rho_bar(s)", "<math><mover accent=\"true\"><mi>ρ</mi><mo>¯</mo></mover>"
         "<mrow><mo>(</mo><mi>s</mi><mo>)</mo></mrow></math>"),
        ("Algorithm 1 never loses", "Algorithm 1 never loses"),
        ("h_n = 0.25, where", "<math><msub><mi>h</mi><mi>n</mi></msub></math> <math>"
         '<mo infix>=</mo><room><mn>0.25</mn></math>, where'),
        ("agent n's own", "agent <math><mi>n</mi></math>&#x27;s own"),
        ("c + <M, Pi>", "<math><mi>c</mi></math> <math><mo infix>+</mo><room><mrow><mo>⟨</mo>"
         "<mi>M</mi><mo>,</mo><mi>Π</mi><mo>⟩</mo></mrow></math>"),
        ("-1 < 0", "<math><mo infix>−</mo><mn>1</mn></math> <math><mo infix>&lt;</mo><room>"
         "<mn>0</mn></math>"),
        ("<M, Pi>", "<math><mrow><mo>⟨</mo><mi>M</mi><mo>,</mo><mi>Π</mi><mo>⟩</mo></mrow></math>"),
        ("sqrt(KL/2)", "<math><msqrt><mfrac><mi mathvariant=\"normal\">KL</mi><mn>2</mn></mfrac>"
         "</msqrt></math>"),
    ],
)  # fmt: skip
def test_formulas_by_hand(line: str, expected: str) -> None:
    between = '<mo form="infix" lspace="0.2em" rspace="0.2em">'
    room = '<mspace width="0.25em"/>'
    assert typeset(line) == expected.replace("<mo infix>", between).replace("<room>", room)


WORDS = {"eta", "gamma", "eps", "rho", "sum", "sqrt", "TV", "alpha", "Pi", "pi"}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_is_well_formed_and_loses_no_letter(claim) -> None:
    made = str(typeset(claim.statement))
    tree = ElementTree.fromstring(f"<p>{made}</p>")
    shown = "".join(tree.itertext())
    # Whatever is no symbol with a sign of its own is still there, in the same order.
    greek = r"alpha|beta|gamma|delta|eps|eta|sigma|rho|Pi|pi|Phi"
    plain = re.sub(rf"(?<![A-Za-z])(?:{greek}|sum|sqrt|bar|AA|E)(?![A-Za-z])", "", claim.statement)
    kept = re.sub(r"[^A-Za-z0-9]", "", plain)
    assert re.sub(r"[^A-Za-z0-9]", "", re.sub("[𝔼𝔸]", "", shown)) == kept
    for bare in ("_", "^", "||", "{", "}", ">=", "<="):
        assert bare not in shown
    words = "".join(text for text in (tree.text or "", *(e.tail or "" for e in tree)))
    assert not WORDS & set(re.findall("[A-Za-z]+", words)), "a symbol is left as a word"
