"""The configuration page is what the settings say."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    # A process of its own: other tests may have registered algorithms in this one.
    made = subprocess.run(
        [sys.executable, DOCS / "make_configuration.py"], capture_output=True, text=True, check=True
    )
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert page == made.stdout, "run: python docs/make_configuration.py > docs/configuration.md"
