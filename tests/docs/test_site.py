"""The site: built strictly, whole, and without anything from the network."""

import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import fedkl

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, as `make docs` builds it, but elsewhere."""
    place = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def text_of(page):
    """What a reader sees of a page, without code."""
    html = re.sub(r"<(script|style|code|pre)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.S)
    return unescape(re.sub(r"<[^>]+>", "", html))


def test_every_page_of_the_repository_is_there(site):
    for source in (ROOT / "docs").rglob("*.md"):
        assert (site / source.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), source
    for name in ("index", "CHANGELOG", "CONTRIBUTING", "SECURITY"):
        assert (site / f"{name}.html").is_file()
    for notebook in (ROOT / "docs/notebooks").glob("*.ipynb"):
        assert (site / "notebooks" / f"{notebook.stem}.html").is_file()
    assert (site / "search/search_index.json").stat().st_size > 100_000


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        html = page.read_text("utf-8")
        fetched = re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"([^\"]*)\"", html)
        assert [a for a in fetched if re.match(r"(https?:)?//", a)] == [], page


def test_formulas_are_set(site):
    theory = (site / "theory.html").read_text("utf-8")
    assert theory.count("<math") > 100
    for page in site.glob("**/*.html"):
        if not page.is_relative_to(site / "source"):
            assert "$" not in text_of(page), page
            assert "MATHML" not in text_of(page), page


def test_every_column_has_a_header(site):
    for page in site.rglob("*.html"):
        assert not re.search(r"<th\b[^>]*>\s*</th>", page.read_text("utf-8")), page


def test_the_reference_has_every_name_and_sets_examples_as_code(site):
    html = (site / "api.html").read_text("utf-8")
    for name in fedkl.__all__:
        assert re.search(rf'<h3 id="fedkl\.[\w.]*\b{name}"', html), name
    assert "&gt;&gt;&gt; import fedkl" not in re.sub(r"<pre.*?</pre>", "", html, flags=re.S)


@pytest.fixture
def address(site):
    """Where the site is served, on loopback."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


CUT_OR_COVERED = """
(() => {
  const found = [];
  for (const box of document.querySelectorAll("pre > code, .formula, .long"))
    if (box.scrollWidth > box.clientWidth + 1 ||
        (box.tagName != "CODE" && box.scrollHeight > box.clientHeight))
      found.push("cut: " + box.textContent.slice(0, 60));
  for (const button of document.querySelectorAll("pre button, pre nav")) {
    const at = button.getBoundingClientRect(), text = document.createRange();
    text.selectNodeContents(button.closest("pre").querySelector("code"));
    for (const line of text.getClientRects())
      if (line.right > at.left && line.top < at.bottom && line.bottom > at.top)
        found.push("covered: " + button.closest("pre").textContent.slice(0, 60));
  }
  return found;
})()
"""
"""What of code and formulas cannot be seen: cut off, or under the button that copies it."""


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what it is asked for."""

    def log_message(self, *_):
        pass


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")
def test_a_page_opens_without_a_complaint_and_fits(address, tmp_path):
    from browser import open_browser

    with open_browser(tmp_path) as browser:
        for name in ("index.html", "theory.html", "algorithms/fedkl.html", "deployment.html"):
            for width in (1400, 400):
                seen = browser.look(address + name, width, dark=False, ask=CUT_OR_COVERED)
                assert width == 400 or seen.answer == []
                assert seen.overflow <= 0, (name, width)
                assert seen.complaints == []
                assert all(url.startswith((address, "data:", "blob:")) for url in seen.requests)
                if folder := os.environ.get("FEDKL_PICTURES"):
                    picture = f"site-{name.replace('/', '-')}-{width}.png"
                    Path(folder, picture).write_bytes(seen.picture)
