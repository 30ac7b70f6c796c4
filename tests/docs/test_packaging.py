"""What people install: the metadata, the container, the wheel, the notebooks."""

import base64
import json
import os
import re
import runpy
import shutil
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_citation_is_of_this_version_and_of_the_papers_article():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(rf"^version: {re.escape(PROJECT['version'])}$", text, re.M)
    assert f"name: {PROJECT['authors'][0]['name']}" in text
    doi = re.search(r"^    doi: (\S+)$", text, re.M)[1]
    assert PROJECT["urls"]["Paper"] == f"https://doi.org/{doi}"
    assert doi in (ROOT / "README.md").read_text("utf-8")


def test_the_container_has_what_the_readme_installs_with_checksums_of_all_of_it():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    extras = re.search(r"^ARG EXTRAS=(.*)$", text, re.M)[1]
    text = text.replace('".[$EXTRAS]"', f"'.[{extras}]'")
    first, second = re.findall(r"pip install (.*)$", text, re.M)
    assert first == "--require-hashes -r /tmp/uv.txt"
    constraint, build, *what = second.split(" -e ")[0].split("--")[1:] + second.split(" -e ")[1:]
    assert (constraint, build) == tuple(
        f"{name} requirements-hashes.txt{end}"
        for name, end in (("constraint", " "), ("build-constraint", ""))
    )
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"    pip install -e {what[0]}\n" in readme
    least = re.match(r">=(.*)", PROJECT["requires-python"])[1]
    assert f"FROM python:{least}-slim" in text


def test_the_lock_has_the_same_versions_with_checksums():
    plain, hashed = (
        (ROOT / f"requirements-{name}.txt").read_text("utf-8") for name in ("lock", "hashes")
    )
    pattern = re.compile(r"^([\w.-]+)==(\S+)", re.M)
    lock, found = (
        {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pattern.findall(text)}
        for text in (plain, hashed)
    )
    assert "--hash" not in plain  # pip takes it for a wish to have all of them
    assert found.pop("setuptools")
    assert found == lock
    entries = re.split(r"^(?=[\w.-]+==)", hashed, flags=re.M)[1:]
    assert len(entries) == len(found) + 1
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)


def test_every_extra_is_in_the_readme():
    readme = (ROOT / "README.md").read_text("utf-8")
    for extra in PROJECT["optional-dependencies"]:
        assert re.search(rf"^\|.*`{extra}`.* \|", readme, re.M), extra


def test_every_file_that_a_page_is_made_of_is_packaged():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["fedkl"]
    package = ROOT / "src/fedkl"
    packaged = {path for pattern in patterns for path in package.glob(pattern)}
    for path in package.rglob("*"):
        if path.is_file() and path.suffix not in {".py", ".pyc"}:
            assert path in packaged, path


@pytest.mark.slow
def test_the_wheel_trains_in_an_empty_environment(tmp_path):
    # A build leaves files in its source, and what is on the path counts as installed.
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    place = tmp_path / "venv"
    venv.create(place, with_pip=True)
    python = str(place / "bin/python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheel_of = [*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(wheel_of, env=clean, check=True, timeout=600)
    (wheel,) = tmp_path.glob("fedkl-*.whl")
    subprocess.run([*pip, "install", f"{wheel}[report]"], env=clean, check=True, timeout=900)
    for command in (
        ["train", "probe-point", "--rounds", "2", "--run", "run"],
        ["report", "run"],
    ):
        subprocess.run(
            [place / "bin/fedkl", *command], cwd=tmp_path, env=clean, check=True, timeout=600
        )
    where = [python, "-c", "import fedkl; print(fedkl.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=clean, check=True, capture_output=True)
    assert Path(found.stdout.decode().strip()).is_relative_to(place)
    assert (tmp_path / "run/report.html").stat().st_size > 100_000


NOTEBOOKS = pytest.mark.parametrize("name", ["first_federation", "own_algorithm"])


def outputs_of(content):
    """The outputs of each cell with code."""
    return [cell["outputs"] for cell in content["cells"] if cell["cell_type"] == "code"]


@NOTEBOOKS
def test_a_notebook_shows_the_results_of_its_cells(name):
    content = json.loads((ROOT / f"docs/notebooks/{name}.ipynb").read_text("utf-8"))
    cells = outputs_of(content)
    assert sum(not outputs for outputs in cells) <= 1  # one trains for the picture after it
    kinds = [output["output_type"] for outputs in cells for output in outputs]
    assert {"stream", "execute_result"} <= {*kinds} <= {"stream", "execute_result", "display_data"}
    assert "\x1b" not in json.dumps(cells)
    assert not re.search(r"/(root|home|tmp)/", json.dumps(content))


def test_the_first_notebook_learns_and_ends_in_a_picture():
    content = json.loads((ROOT / "docs/notebooks/first_federation.ipynb").read_text("utf-8"))
    cells = outputs_of(content)
    printed = [line.split() for outputs in cells for out in outputs for line in out.get("text", ())]
    returns = [float(mean) for _, mean, _ in printed]
    assert len(returns) == 8
    assert returns[-1] > 450 > 200 > returns[0]
    (last,) = cells[-1]
    assert base64.b64decode("".join(last["data"]["image/png"])).startswith(b"\x89PNG")


@pytest.mark.slow
@NOTEBOOKS
def test_a_notebook_comes_to_what_it_shows(name):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    path = ROOT / f"docs/notebooks/{name}.ipynb"
    made = runpy.run_path(str(ROOT / "docs/make_notebooks.py"))["run"](path)
    kept = outputs_of(json.loads(path.read_text("utf-8")))
    for shown, cell in zip(kept, outputs_of(made), strict=True):
        assert [out["output_type"] for out in shown] == [out.output_type for out in cell]
        assert not [out for out in cell if out.get("name") == "stderr"]


def test_whoever_made_the_environment_is_told_how_to_get_the_command():
    readme = (ROOT / "README.md").read_text("utf-8")
    (section,) = re.findall(r"^## Two commands\n(.*?)^## ", readme, re.M | re.S)
    activate = ". .venv/bin/activate"
    assert f"\n    {activate}\n" in section
    said = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", "env"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert said.stdout.splitlines()[-1].endswith(f"{activate}'")
