"""Runs notebooks, all or those named, and keeps what they print and draw.

python docs/make_notebooks.py [FILE.ipynb ...]

The command `fedkl` is that of the environment that runs this.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parent / "notebooks"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook as it is after it was run, in a folder of its own."""
    content = nbformat.read(path, as_version=4)
    commands = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([commands, os.environ.get("PATH", os.defpath)])
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(content, timeout=900, resources=resources).execute()
    for cell in content.cells:
        cell.metadata = {}  # of when it was run
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    content.metadata["language_info"] = {"name": "python"}
    return content


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs, with what was printed piece by piece in one, and without its colours."""
    result: list[nbformat.NotebookNode] = []
    for output in outputs:
        if "text" in output:
            output.text = _COLOUR.sub("", output.text)
        if result and output.get("name") and output.get("name") == result[-1].get("name"):
            result[-1].text += output.text
        else:
            result.append(output)
    return result


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or sorted(FOLDER.glob("*.ipynb"))):
        nbformat.write(run(path), path)
