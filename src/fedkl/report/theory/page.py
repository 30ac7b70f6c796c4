"""Computes, draws and writes the page on theory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.io import strict_json
from fedkl.io.files import explain_os_errors, make_directory, write_atomically
from fedkl.report.markup import Html, Page, definitions, figure, filled, made_by, typed
from fedkl.report.mathml import typeset
from fedkl.report.pictures import Picture, require_matplotlib, write_figures
from fedkl.report.theory.answer import answer, notes
from fedkl.report.theory.claims import claims
from fedkl.report.theory.examples import examples
from fedkl.report.theory.figures import draw_theory
from fedkl.report.theory.method import drawn, method
from fedkl.report.theory.record import record
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.studies import Sizes, study
from fedkl.tabular.verification import check_counts, verify


def write_theory_report(
    directory: Path | str,
    families: int = 1000,
    seed: int = 0,
    show: Callable[[str], None] = lambda line: None,
    sizes: Sizes | None = None,
) -> Path:
    """Writes `theory.html`, its numbers as `theory.json`, and its figures into `figures/`.

    Nothing else in the directory is touched, so it may be that of a run.

    Args:
        directory: where to write; made if it is missing.
        families: on how many random families the claims are checked.
        seed: of the first family, and of the studies; the same seed gives the same files.
        show: told in a line what starts.
        sizes: of the studies behind the figures.

    Returns:
        The path of the page.

    Raises:
        UserError: if the directory cannot be written, or matplotlib is not installed.
    """
    directory = Path(directory)
    require_matplotlib()
    check_counts(families, seed)
    # What cannot be written is refused before anything is computed.
    with explain_os_errors("write", directory):
        make_directory(directory)
        make_directory(directory / "figures")
    for name in ("theory.html", "theory.json"):
        if (directory / name).is_dir():
            raise UserError(f"cannot write {directory / name}: it is a directory")
    versions = {package: metadata.version(package) for package in ("fedkl", "numpy", "scipy")}
    made = made_by(_command(directory, families, seed), [*versions, "matplotlib"])
    show(f"checking {len(CLAIMS)} claims on {families:,} families")
    results = verify(families, seed)
    studies = study(sizes or Sizes(), seed, show)
    found = examples(results, seed)
    show("drawing figures")
    pictures = draw_theory(results, studies)
    write_figures(directory, pictures)
    facts = {"families": families, "seed": seed, "versions": versions}
    data = strict_json.encode(facts | record(results, studies, found), indent=1)
    write_atomically(directory / "theory.json", data + b"\n")
    body = filled(
        "theory.html",
        claims=claims(results),
        movement=_figures(pictures, "theory_movement"),
        improvement=_figures(pictures, "theory_improvement"),
        tightness=_figures(pictures, "theory_tightness"),
        slopes=_figures(pictures, "theory_corollary_1"),
        examples=definitions([(example.title, typeset(example.text)) for example in found]),
        method=definitions(method(families, seed, studies, versions)),
    )
    checks = sum(result.checks for result in results)
    page = Page(
        title="FedKL's theory, checked on finite MDPs",
        facts=f"{drawn(families)} · seed {seed} · {checks:,} checks",
        answer=answer(results, studies),
        notes=notes(results),
        body=body,
        made=made,
        styles=["theory.css"],
    )
    return page.write(directory / "theory.html")


def _command(directory: Path, families: int, seed: int) -> str:
    """What makes the page again."""
    return f"fedkl theory report {typed(directory)} --families {families} --seed {seed}"


def _figures(pictures: Mapping[str, Picture], beginning: str) -> Html:
    """The figures of a section; one that is alone has its caption beside it."""
    shown = [p for name, p in pictures.items() if name.startswith(beginning)]
    figures = "\n".join(figure(picture, wide=len(shown) == 1) for picture in shown)
    return Html(f'<div class="figures">{figures}</div>')
