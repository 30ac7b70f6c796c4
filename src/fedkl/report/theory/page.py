"""The page on theory: computed, drawn and written, with its numbers as `theory.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from fedkl.core.errors import UserError
from fedkl.io import strict_json
from fedkl.io.files import explain_os_errors, make_directory, write_atomically
from fedkl.report.markup import Html, Page, definitions, figure, filled, made_by, typed
from fedkl.report.mathml import typeset
from fedkl.report.pictures import Picture, require_matplotlib, write_figures
from fedkl.report.theory.claims import THRESHOLD, by_name, claims, main_results, tally, tightness
from fedkl.report.theory.examples import Example, examples
from fedkl.report.theory.figures import draw_theory
from fedkl.tabular import studies
from fedkl.tabular.claims import CLAIMS, VACUOUS_FROM
from fedkl.tabular.sampling import ACTIONS, AGENTS, GAMMAS, STATES
from fedkl.tabular.studies import GAMMA, Improvement, Movement, Sizes, Studies, study
from fedkl.tabular.verification import Result, check_counts, verify


def write_theory_report(
    directory: Path | str,
    families: int = 1000,
    seed: int = 0,
    show: Callable[[str], None] = lambda line: None,
    sizes: Sizes | None = None,
) -> Path:
    """Write `theory.html`, its numbers as `theory.json`, and its figures into `figures/`.

    Nothing else in the directory is touched, so it may be that of a run.

    Args:
        directory: where to write; made if it is missing.
        families: on how many random families the claims are checked.
        seed: of the first family, and of the studies; the same seed gives the same files.
        show: is called with a line about what starts.
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
    """Return the command that makes the page again."""
    return f"fedkl theory report {typed(directory)} --families {families} --seed {seed}"


def _figures(pictures: Mapping[str, Picture], beginning: str) -> Html:
    """Return the figures of a section; one that is alone has its caption beside it."""
    shown = [p for name, p in pictures.items() if name.startswith(beginning)]
    figures = "\n".join(figure(picture, "wide" if len(shown) == 1 else "") for picture in shown)
    return Html(f'<div class="figures">{figures}</div>')


def answer(results: Sequence[Result], studies: Studies) -> str:
    """Summarise the outcomes of the claims, who moves, and how far that leads."""
    main = main_results(results)
    ours = [r for r in results if r.claim.source == "ours"]
    others = [r for r in results if r not in main and r not in ours]
    paper, second = (_shares_beyond(studies, name) for name in ("paper", "second-order"))
    moved = "no agent" if max(paper) == 0 else f"up to {max(paper):.0%} of the agents"
    least = "every agent" if min(second) == 1 else f"at least {min(second):.0%} of the agents"
    reached = " and ".join(
        f"{100 * found.shares['second-order'][-1].mean():.0f} % where agents {found.setting.words}"
        for found in studies.improvements
    )
    return (
        f"Of the paper's main results, {by_name(main)}. Of {len(others)} other statements, most of "
        f"them steps of its proofs and remarks, {tally(others)}; of the {len(ours)} that we add, "
        f"{tally(ours)}. At every gamma ≥ {VACUOUS_FROM:.3f} that was tried, the paper's Algorithm "
        f"1 moves {moved}, while the second-order version, with the same guarantee, "
        f"moves {least}. Of the improvement that is possible at gamma = {GAMMA:g}, "
        f"{studies.sizes.rounds['second-order']} such rounds bring {reached}."
    )


def notes(results: Sequence[Result]) -> list[str]:
    """List claims that disagree with the documentation, or were checked on too few families."""
    said = []
    if wrong := [r.claim.name for r in results if r.contradicts]:
        said.append(f"This contradicts docs/theory.md: {', '.join(wrong)}.")
    if spared := [r.claim.name for r in results if r.outcome == "no counterexample found"]:
        said.append(
            "False, but so few families were drawn that none of them refutes it: "
            f"{', '.join(spared)}."
        )
    return said


def _shares_beyond(studies: Studies, objective: str) -> list[float]:
    """Return the shares of agents that move where the paper's constants leave no step to make."""
    return [
        float(share)
        for found in studies.movements
        for share in found.shares[objective][found.gammas >= VACUOUS_FROM]
    ]


def drawn(families: int) -> str:
    """Return the number of families as text."""
    return "1 random family" if families == 1 else f"{families:,} random families"


def method(
    families: int, seed: int, found: Studies, versions: dict[str, str]
) -> list[tuple[str, str]]:
    """Return terms and their definitions."""
    sizes = found.sizes
    last = ", ".join(f"{name} {rounds}" for name, rounds in sizes.rounds.items())
    ceilings = " and ".join(
        f"{100 * i.of_ceiling.min():.0f} to {100 * i.of_ceiling.max():.0f} % of the way there "
        f"where agents {i.setting.words}"
        for i in found.improvements
    )
    return [
        (
            "Families",
            f"Claims are checked on {drawn(families)}, numbered by their seeds from {seed} on: "
            f"{AGENTS[0]} to {AGENTS[-1]} agents, {STATES[0]} to {STATES[-1]} states, {ACTIONS[0]} "
            f"to {ACTIONS[-1]} actions, gamma from {GAMMAS[0]:g} to {GAMMAS[-1]:g}. "
            "Agents differ in the initial distribution (mu), the "
            "dynamics (P), the rewards (R), all of them or nothing, slightly or entirely; dynamics "
            "range from close to deterministic to close to uniform; some rewards are tied; the "
            "weights of the agents are equal or random.",
        ),
        (
            "Cases",
            "Twenty for each family: uniform, random, nearly deterministic and sparse policies, "
            "and from each a step that is random, greedy, harmful, within a radius, or in one "
            "state only, of any length from a thousandth to the whole way. A check is a case for "
            "each agent, where the claim says anything about it.",
        ),
        (
            "Tolerance",
            "All quantities are solved for, not sampled, in double precision. A violation among "
            "returns must exceed 10⁻¹² (max |R| + max |V|) / (1 \N{MINUS SIGN} gamma), which is "
            "more than rounding can make up. That nothing was violated proves nothing; the proofs "
            "are in docs/theory.md.",
        ),
        (
            "Vacuous",
            "A claim that promises an improvement is called vacuous if it holds and, at "
            f"every gamma ≥ {THRESHOLD} of these cases, even the policy that is best for "
            "its bound is promised none. Maximising such a bound means to stay where one is.",
        ),
        (
            "Who moves",
            f"{sizes.movement_families} random families of {studies.AGENTS} agents, "
            f"{studies.STATES} states and {studies.ACTIONS} actions, each with a random policy, "
            f"the same at {len(sizes.gammas)} discounts. An agent moves if the policy that "
            "maximises its local objective, found in closed form, is not the one it has. "
            "second-order-exact has one objective for all agents, so there a family moves or not.",
        ),
        (
            "Possible improvement",
            f"{sizes.improvement_families} random families of the same size at gamma = "
            f"{studies.GAMMA:g}, from the uniform policy. One policy has to serve all agents, and "
            "the best one is no MDP's, so the best known is taken: the best of line searches from "
            "many starts (uniform, every agent's own best policy, that of the averaged MDP, and "
            "random ones), and of switching single actions from there. Nothing can exceed the "
            "ceiling, the return if every agent played its own best policy; the best known comes "
            f"{ceilings}. The rest is what one policy for "
            "all cannot have, or what the search did not find.",
        ),
        (
            "Rounds",
            f"As many as it takes to see where an algorithm leads: {last}.",
        ),
        (
            "Slopes",
            f"{sizes.slope_families} families as those that claims are checked on, one random "
            f"policy each; {found.slopes.left_out} agents whose B_n, A_n or their sum is zero are "
            "left out.",
        ),
        (
            "Versions",
            ", ".join(f"{package} {version}" for package, version in versions.items()) + ".",
        ),
    ]


def record(
    results: Sequence[Result], studies: Studies, examples: Sequence[Example]
) -> dict[str, Any]:
    """Return all numbers of the table, the figures and the examples."""
    slopes = studies.slopes
    return {
        "claims": [_claim(result) for result in results],
        "movement": {
            "families": studies.sizes.movement_families,
            "settings": [_movement(found) for found in studies.movements],
        },
        "improvement": {
            "families": studies.sizes.improvement_families,
            "gamma": GAMMA,
            "settings": [_improvement(found) for found in studies.improvements],
        },
        "corollary_1": {
            "families": studies.sizes.slope_families,
            "level_over_potential": slopes.ratio,
            "normalised_slope": slopes.cosine,
            "left_out": slopes.left_out,
        },
        "examples": {example.name: example.numbers for example in examples},
    }


def _claim(result: Result) -> dict[str, Any]:
    if not result.looseness.size:
        return result.record()
    _, low, _, high = tightness(result)
    return result.record() | {"penalty_over_gap_5": low, "penalty_over_gap_95": high}


def _movement(found: Movement) -> dict[str, Any]:
    return asdict(found.setting) | {"gamma": found.gammas, "share_that_moves": found.shares}


def _improvement(found: Improvement) -> dict[str, Any]:
    curves = {name: asdict(found.curve(name)) for name in found.shares}
    return asdict(found.setting) | {
        "share_of_possible_improvement": curves,
        "never_lost": sorted(found.monotone),
        "share_of_ceiling": found.of_ceiling,
    }
