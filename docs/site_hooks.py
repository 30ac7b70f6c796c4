"""What the site needs beyond MkDocs: pages from elsewhere in the repository, notebooks, formulas.

The pages in docs/ are written to be read in the repository too. So they link to its files, which
become pages here, and have formulas in dollars, which become MathML: browsers draw it without a
script.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FRONT = {"README.md": "index.md"}
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)#:\s]+)(#[^)\s]*)?\)")
_BLOCKS = r"^```.*?^```$|^~~~.*?^~~~$|(?:^ {4}[^\n]*\n?)+"
_CODE = re.compile(rf"({_BLOCKS}|`[^`\n]+`)", re.M | re.S)
_CODE_BLOCK = re.compile(rf"({_BLOCKS})", re.M | re.S)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?=[^\s$])([^$]+?)(?<=[^\s\\])\$(?!\w)", re.S)

_SHORT = 35  # letters of TeX that surely fit on a narrow screen

_formulas: list[str] = []


def on_files(files: Files, config: Any) -> Files:
    """Adds what lies outside of docs/: pages of the top, notebooks, and every file linked to."""
    pages = {ROOT / name: FRONT.get(name, name) for name in TOP}
    pages |= {path: _place(path) for path in sorted(DOCS.glob("notebooks/*.ipynb"))}
    found = list(pages) + [ROOT / "docs" / f.src_uri for f in files if f.src_uri.endswith(".md")]
    while found:
        path = found.pop()
        for target in _linked(path):
            if target not in pages and not target.is_relative_to(DOCS):
                pages[target] = _place(target)
                found.append(target)
    for path, place in pages.items():
        files.append(File.generated(config, place, content=_content(path, place)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Puts a mark in the place of each formula, and leads links to where files are here."""
    source = page.file.src_uri
    if page.file.generated_by is None:
        markdown = _relinked(markdown, DOCS / source, source)
    return _outside(_CODE, lambda text: _FORMULA.sub(_marked, text), markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Puts the formulas in the places of their marks."""
    return re.sub(r"MATHML(\d+)X", lambda mark: _formulas[int(mark[1])], html)


def _marked(found: re.Match[str]) -> str:
    display, inline = found.groups()
    made = convert(display or inline, display="block" if display else "inline")
    if "\\" in re.sub(r"&#x0*5C;\s*&#x0*2F;", "", made):
        raise PluginError(f"a formula with a command that is not known: {found[0]}")
    kind = "formula" if display else "long" if len(inline) > _SHORT else ""
    _formulas.append(f'<span class="{kind}">{made}</span>' if kind else made)
    return f"MATHML{len(_formulas) - 1}X"


def _outside(code: re.Pattern[str], change: Callable[[str], str], markdown: str) -> str:
    parts = code.split(markdown)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def _place(path: Path) -> str:
    """The page on which a file is."""
    if path.suffix == ".ipynb":
        return path.relative_to(DOCS).with_suffix(".md").as_posix()
    name = path.relative_to(ROOT).as_posix()
    if name in TOP:
        return FRONT.get(name, name)
    return f"source/{name}" if path.suffix == ".md" else f"source/{name}.md"


def _content(path: Path, place: str) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"])
    if path.suffix == ".md":
        return _relinked(text, path, place)
    kind = {".py": "python", ".toml": "toml"}.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT)}\n\n~~~~{kind}\n{text}\n~~~~\n"


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        said = output.get("text") or data.get("text/plain", "")
        if picture := "".join(data.get("image/png", "")).replace("\n", ""):
            parts.append(f"![What the cell draws](data:image/png;base64,{picture})")
        elif said := "".join(said).rstrip():
            parts.append(f"```text\n{said}\n```")
    return "\n\n".join(parts)


def _linked(path: Path) -> list[Path]:
    """The files of the repository that a page links to."""
    if path.suffix != ".md":
        return []
    text = _CODE_BLOCK.sub("", path.read_text(encoding="utf-8"))
    targets = [(path.parent / found[2]).resolve() for found in _LINK.finditer(text)]
    return [target for target in targets if target.is_file() and target.is_relative_to(ROOT)]


def _relinked(markdown: str, path: Path, place: str) -> str:
    """A page whose links lead from its place on the site to the places of what it links to."""

    def relink(found: re.Match[str]) -> str:
        target = (path.parent / found[2]).resolve()
        if not target.is_file() or not target.is_relative_to(ROOT):
            return found[0]
        ours = target.is_relative_to(DOCS) and target.suffix != ".ipynb"
        at = target.relative_to(DOCS).as_posix() if ours else _place(target)
        to = os.path.relpath(at, Path(place).parent).replace(os.sep, "/")
        return f"{found[1]}({to}{found[3] or ''})"

    return _outside(_CODE_BLOCK, lambda text: _LINK.sub(relink, text), markdown)
