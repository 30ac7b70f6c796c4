"""docs/reproduction.md follows from `results/`, and finished runs get there by one command."""

import shutil
from pathlib import Path

import pytest
import tables

from fedkl.core.errors import UserError
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.page import add_runs, judge_results, page, readme_with, write_page
from fedkl.experiments.reproduce.plan import ReproductionPlan, Run
from fedkl.experiments.reproduce.results import read_table, table_path, write_table
from fedkl.training.directory import RunDirectory

ROOT = Path(__file__).parents[3]


def test_the_page_in_the_docs_is_what_the_results_give():
    made = page(judge_results(ROOT / "results"))
    assert made == (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


def test_the_page_has_a_row_for_each_claim_and_a_figure_for_each_experiment_that_was_run(tmp_path):
    results, out = tmp_path / "results", tmp_path / "docs"
    results.mkdir()
    case = EXPERIMENTS["reacher-dynamics"].cases[0]
    path = table_path(results, case, 10)
    path.parent.mkdir()
    write_table(path, tables.table([-40.0 + t / 10 for t in range(case.rounds)]))
    write_page(results, out)
    text = (out / "reproduction.md").read_text(encoding="utf-8")
    for one in EXPERIMENTS.values():
        for claim in one.claims.values():
            assert f"| {claim} |" in text
    assert [p.name for p in (out / "images/reproduction").iterdir()] == ["reacher-dynamics.png"]
    assert "(images/reproduction/reacher-dynamics.png)" in text
    assert EXPERIMENTS["reacher-dynamics"].differs in text
    assert EXPERIMENTS["reacher-dynamics"].tried in text
    planned = sum(len(case.seeds) for case in EXPERIMENTS["communication"].cases)
    assert (
        f"| not run yet | cannot be told | - | `fedkl reproduce communication` | 0 of {planned} |"
        in text
    )


def test_the_readme_has_the_first_rows_of_the_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme_with(readme, judge_results(ROOT / "results")) == readme


def test_rows_between_the_marks_of_a_readme_are_written_anew_and_nothing_else(tmp_path):
    marks = "<!-- first rows of docs/reproduction.md -->\n", "<!-- end -->\n"
    (tmp_path / "results").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{marks[0]}what was\n{marks[1]}after\n")
    write_page(tmp_path / "results", tmp_path / "docs")
    text = readme.read_text()
    assert text.startswith(f"before\n{marks[0]}\n| the paper says |")
    assert text.endswith(f" |\n\n{marks[1]}after\n")
    assert "what was" not in text
    assert text.count("\n| ") == 4
    readme.write_text("no marks\n")
    write_page(tmp_path / "results", tmp_path / "docs")
    assert readme.read_text() == "no marks\n"


def test_the_page_counts_how_often_a_quick_look_agrees(tmp_path):
    """Seed 10 is a straight line, as all are: both say that FedKL is not more stable."""
    cases = EXPERIMENTS["reacher-dynamics"].cases
    for case in (c for c in cases if (c.group, c.tier) == ("letter", 1)):
        for seed in case.seeds[:3]:
            path = table_path(tmp_path, case, seed)
            path.parent.mkdir(exist_ok=True)
            write_table(path, tables.table([-40.0 + (t + seed) / 10 for t in range(case.rounds)]))
    text = page(judge_results(tmp_path))
    assert "| **does not hold** | does not hold | `fedkl reproduce reacher-dynamics` |" in text
    assert "Of 1 claim on which both say something, they agree in 1." in text


@pytest.mark.parametrize(("seeds", "said"), [(2, "cannot be told"), (3, "does not hold")])
def test_two_seeds_are_too_few_to_judge(tmp_path, seeds, said):
    for case in EXPERIMENTS["reacher-dynamics"].cases:
        for seed in case.seeds[: seeds if case.tier == 1 else 0]:
            path = table_path(tmp_path, case, seed)
            path.parent.mkdir(exist_ok=True)
            write_table(path, tables.table([-40.0 + (t + seed) / 10 for t in range(case.rounds)]))
    (one,) = [one for one in judge_results(tmp_path) if one.experiment.name == "reacher-dynamics"]
    assert one.finding.verdicts[0].verdict == said


def test_a_damaged_table_is_refused_and_the_old_page_stays(tmp_path):
    results = tmp_path / "results"
    path = table_path(results, EXPERIMENTS["reacher-dynamics"].cases[0], 10)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no table")
    (tmp_path / "reproduction.md").write_text("old")
    with pytest.raises(UserError, match="is damaged, or no table of a run"):
        write_page(results, tmp_path)
    assert (tmp_path / "reproduction.md").read_text() == "old"


@pytest.mark.parametrize(
    "content",
    [b"magic\n1\n", b"\xff\xfe\n1\n", b"table,commit,python,jax,numpy,stalled,seconds\na,b\n"],
)
def test_a_damaged_list_of_what_made_the_tables_is_refused_and_stays(tmp_path, content):
    (tmp_path / "made-with.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"made-with\.csv is damaged: it must have the columns"):
        add_runs(tmp_path, ReproductionPlan("reacher-dynamics"), [], "abc123")
    assert (tmp_path / "made-with.csv").read_bytes() == content


def test_finished_runs_are_added_with_the_commit_that_made_them_and_others_are_not(
    tmp_path, tiny, made_up_run
):
    case = EXPERIMENTS["reacher-dynamics"].cases[0]
    finished = Run(made_up_run(tmp_path / "a"), case, 10)
    RunDirectory.create(tmp_path / "b", tiny().mapping())
    begun = Run(tmp_path / "b", case, 11)
    missing = Run(tmp_path / "c", case, 12)
    results = tmp_path / "results"
    added = add_runs(
        results, ReproductionPlan("reacher-dynamics"), [finished, begun, missing], "abc123"
    )
    assert added == ["reacher-dynamics/letter-fedkl-seed10.csv.gz"]
    log = RunDirectory(finished.path).metrics.read()
    kept = read_table(results / added[0])
    assert [row["round"] for row in kept] == [record["round"] for record in log]
    first = (results / "made-with.csv").read_text()
    assert "reacher-dynamics/letter-fedkl-seed10.csv.gz,abc123,3." in first
    # Once more changes nothing.
    add_runs(results, ReproductionPlan("reacher-dynamics"), [finished], "abc123")
    assert (results / "made-with.csv").read_text() == first


@pytest.fixture
def made_up_run(tiny, tmp_path):
    """Makes a finished run of a world that takes no time."""
    import fedkl

    def make(path):
        fedkl.train(tiny(), path)
        return path

    yield make
    shutil.rmtree(tmp_path, ignore_errors=True)
