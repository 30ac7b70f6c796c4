"""docs/reproduction.md: every claim of the paper's experiments, what we measured, and the verdict.

The page and its figures are made from the tables in `results/` alone.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkl.core.errors import UserError
from fedkl.core.text import counted
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import OPEN, Experiment, ExperimentResult
from fedkl.experiments.reproduce.judges import JUDGES
from fedkl.experiments.reproduce.plan import ReproductionPlan, Run
from fedkl.experiments.reproduce.quick import quick_pointers
from fedkl.experiments.reproduce.results import read_tables, row_of, table_path, write_table
from fedkl.experiments.reproduce.text import as_csv, table
from fedkl.io.files import explain_os_errors, write_atomically
from fedkl.report.pictures import save_figure
from fedkl.tabular.claims import CLAIMS
from fedkl.training.directory import RunDirectory

PAGE = "reproduction.md"
PICTURES = "images/reproduction"
README = "README.md"
_FIRST = 3
"""Rows of the table that the README has."""
_BEGIN, _END = "<!-- first rows of docs/reproduction.md -->\n", "<!-- end -->\n"
_MADE_WITH = "made-with.csv"
_KNOWN = ("table", "commit", "python", "jax", "numpy", "stalled", "seconds")
_NUMBERED = re.compile(r"(Definition|Theorem|Corollary|Remark|Lemma) \d+")
_INTRODUCTION = """# The paper, run again

Every claim of the paper's experiments, what came out here, and a verdict. The runs are of the
paper's own size, with seeds 10 and up, on which nothing was chosen. Tables of all rounds of all
finished runs are in `results/`; this page and its figures are made from them:

    fedkl reproduce report

A verdict is *holds* if the 95 % bootstrap interval of what the claim says lies above 0, *does not
hold* if it lies below (or at 0), *holds in part* if it holds for some of what the claim says, and
*cannot be told* else, also while a case that an experiment begins with has fewer than three seeds.
Any row can be looked at in minutes:

    fedkl reproduce NAME --quick --jobs 2 --run runs/NAME

has fewer rounds and one seed, so its figure is a sketch and its verdict "cannot be told", and it
says what that seed points to. Without `--quick` it is the whole experiment; stopped, it goes on
with `fedkl resume runs/NAME`. With `--missing` it trains only what `results/` has no table of.
"""


class Judged(NamedTuple):
    """An experiment, its result, and how many of its runs there are."""

    experiment: Experiment
    finding: ExperimentResult | None
    """None: nothing of it has been run yet."""
    there: int
    planned: int
    quick: Mapping[str, str]
    """What `--quick` points to, by claim, as far as it can be told."""


def add_runs(results: Path, plan: ReproductionPlan, runs: Sequence[Run], commit: str) -> list[str]:
    """Put the tables of finished runs into `results/`.

    Args:
        results: the folder.
        plan: theirs.
        runs: of which those that have not ended are passed over.
        commit: of the code that trained them.

    Returns:
        The names of those that were added.

    Raises:
        UserError: the plan is not that of full experiments, or a file cannot be written.
    """
    if not plan.full:
        raise UserError(
            "results are of whole experiments, and these runs were cut down (--quick, --rounds "
            "or --set)"
        )
    made = _made_with(results)
    added = []
    for run in runs:
        directory = RunDirectory(run.path)
        summary = directory.summary() if (run.path / "config.toml").is_file() else None
        if summary is None:
            continue
        path = table_path(results, run.case, run.seed)
        with explain_os_errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, [row_of(record) for record in directory.metrics.read()])
        name = path.relative_to(results).as_posix()
        versions = summary.get("versions") or {}
        made[name] = {
            "table": name,
            "commit": commit,
            **{key: versions.get(key) for key in ("python", "jax", "numpy")},
            "stalled": summary.get("stalled"),
            "seconds": round(summary.get("seconds") or 0),
        }
        added.append(name)
    with explain_os_errors("write", results):
        results.mkdir(parents=True, exist_ok=True)
        write_atomically(results / _MADE_WITH, as_csv([made[name] for name in sorted(made)]))
    return added


def _made_with(results: Path) -> dict[str, dict[str, Any]]:
    """Return what is known of each table.

    Raises:
        UserError: the file is damaged.
    """
    path = results / _MADE_WITH
    if not path.is_file():
        return {}
    with explain_os_errors("read", path):
        data = path.read_bytes()
    rows = list(csv.DictReader(io.StringIO(data.decode("utf-8", "replace"))))
    if any(tuple(row) != _KNOWN or None in row.values() for row in rows):
        raise UserError(f"{path} is damaged: it must have the columns {', '.join(_KNOWN)}")
    return {row["table"]: dict(row) for row in rows}


def judge_results(results: Path) -> list[Judged]:
    """Judge every experiment by the tables that there are.

    Raises:
        UserError: there is no such folder, or a table is damaged.
    """
    if not results.is_dir():
        raise UserError(f"there is no folder {results}; say where the tables are with --results")
    judged = []
    for experiment in EXPERIMENTS.values():
        tables = read_tables(results, experiment.cases)
        finding = JUDGES[experiment.judge](experiment, tables) if tables else None
        if finding is not None and not experiment.enough(tables):
            verdicts = [verdict._replace(verdict=OPEN) for verdict in finding.verdicts]
            finding = finding._replace(verdicts=verdicts)
        planned = sum(len(case.seeds) for case in experiment.cases)
        there = sum(map(len, tables.values()))
        judged.append(
            Judged(experiment, finding, there, planned, quick_pointers(experiment, tables))
        )
    return judged


def write_page(results: Path, out: Path) -> list[Judged]:
    """Write the page and its figures, and the page's first rows into the README above it.

    Args:
        results: the folder with the tables.
        out: the folder of the page.

    Raises:
        UserError: the tables are missing or damaged, or a file cannot be written.
    """
    judged = judge_results(results)
    pictures = out / PICTURES
    with explain_os_errors("write", pictures):
        pictures.mkdir(parents=True, exist_ok=True)
    for one in judged:
        if one.finding is not None:
            save_figure(pictures / f"{one.experiment.name}.png", one.finding.draw)
    with explain_os_errors("write", out / PAGE):
        write_atomically(out / PAGE, page(judged).encode())
    _update_readme(out.parent / README, judged)
    return judged


def _update_readme(path: Path, judged: Sequence[Judged]) -> None:
    """Write a README's rows anew, where there is a README that has some."""
    with explain_os_errors("read", path):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if (new := readme_with(text, judged)) != text:
        with explain_os_errors("write", path):
            write_atomically(path, new.encode())


def page(judged: Sequence[Judged]) -> str:
    """The page as Markdown."""
    sections = [_section(one) for one in judged if one.finding is not None]
    parts = [_INTRODUCTION, _claims_table(judged), "", _agreement(judged), _theory(), *sections]
    return "\n".join(parts)


def readme_with(text: str, judged: Sequence[Judged]) -> str:
    """A README with the first rows of the page's table between its marks, if it has them."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        return text
    rows = "\n".join(_claims_table(judged).splitlines()[: 2 + _FIRST])
    return f"{before}{begin}\n{rows}\n\n{end}{after}"


def _claims_table(judged: Sequence[Judged]) -> str:
    """Return the table of claims: what the paper says and what came out."""
    head = ["the paper says", "we measured", "verdict", "`--quick` points to", "command", "runs"]
    rows = [
        [
            claim,
            *_measured(one, name),
            one.quick.get(name, "-"),
            f"`fedkl reproduce {one.experiment.name}`",
            _progress(one),
        ]
        for one in judged
        for name, claim in one.experiment.claims.items()
    ]
    return table(head, rows)


def _agreement(judged: Sequence[Judged]) -> str:
    """Return how often a quick look points to what the whole experiment says."""
    pairs = [
        (verdict.verdict, one.quick[verdict.claim])
        for one in judged
        if one.finding is not None
        for verdict in one.finding.verdicts
        if one.quick.get(verdict.claim, OPEN) != OPEN != verdict.verdict
    ]
    same = sum(whole == quick for whole, quick in pairs)
    return (
        "What `--quick` points to is computed from the first rounds of the first seed of the whole "
        "runs, which are those that it trains: if that seed were as good as all. Of "
        f"{counted(len(pairs), 'claim')} on which both say something, they agree in {same}.\n"
    )


def _theory() -> str:
    """Return what `fedkl theory verify` finds of the paper's numbered statements."""
    rows = [
        [claim.source, _plain(claim.statement), claim.documented, f"`{claim.name}`"]
        for claim in CLAIMS
        if _NUMBERED.fullmatch(claim.source)
    ]
    head = ["statement", "says", "verdict", "claim"]
    return (
        "## The theory\n\nThe paper's numbered statements on finite MDPs, checked exactly by "
        "`fedkl theory verify`, which fails if a verdict is another one; [theory](theory.md) has "
        f"the proofs, the counterexamples and what is true instead.\n\n{table(head, rows)}\n"
    )


def _plain(text: str) -> str:
    """Text that may stand in a cell of a table."""
    return text.replace("|", "\\|")


def _progress(one: Judged) -> str:
    return f"{one.there} of {one.planned}"


def _measured(one: Judged, claim: str) -> tuple[str, str]:
    verdicts: Mapping[str, Any] = (
        {} if one.finding is None else {v.claim: v for v in one.finding.verdicts}
    )
    if claim not in verdicts:
        return "not run yet", OPEN
    return verdicts[claim].measured, f"**{verdicts[claim].verdict}**"


def _section(one: Judged) -> str:
    experiment, finding = one.experiment, one.finding
    assert finding is not None
    name = experiment.name
    notes = f"**Beside the paper's set-up.** {experiment.differs}\n"
    if experiment.tried:
        notes += f"\n**What was tried.** {experiment.tried}\n"
    return (
        f"## {name}\n\n{experiment.figure}: {experiment.summary} ({_progress(one)} runs).\n\n"
        f"![{experiment.summary}]({PICTURES}/{name}.png)\n\n{finding.text}\n{notes}"
    )
