"""The report page: one HTML file that needs nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

import tomli_w

from fedkl.core.text import counted, few
from fedkl.report.answer import answer, improvements, notes
from fedkl.report.exports import FILES, write_tables
from fedkl.report.figures import COEFFICIENT, draw
from fedkl.report.groups import Group, drawn, grouped, levels, worlds
from fedkl.report.labels import differing, flat, shown
from fedkl.report.lines import shades_of
from fedkl.report.markup import (
    Html,
    Page,
    collapsed,
    definitions,
    figure,
    filled,
    html,
    html_table,
    link,
    made_by,
    paragraph,
    preformatted,
    typed,
)
from fedkl.report.method import legend, method, target_note
from fedkl.report.pairs import pairs_of, pairs_table
from fedkl.report.pictures import Picture, write_figures
from fedkl.report.price import Price, price_table
from fedkl.report.runs import LoadedRun, without_rounds
from fedkl.report.statistics import Estimate
from fedkl.report.style import MUTED, themed
from fedkl.report.table import (
    NOTHING,
    Row,
    minus,
    number,
    rounds_cell,
    run_row,
    table,
    target_of,
)

_PAPER = "paper"  # the figure that a phone shows whole; others have to be scrolled there
# The sections of the page and the figures of each (names or patterns), in the order of reading.
_SECTIONS = {
    "Learning": [_PAPER, "learning_curves", "return_by_level", "price"],
    "Clients and communication": [
        "worst_client",
        "client_spread",
        "client_returns",
        "return_by_megabytes",
    ],
    "Distances and penalties": ["kl_local", "distance_global", f"{COEFFICIENT}*"],
    "Trouble": ["guarded", "rejected"],
}
_MOST_NAMED = 8  # groups, directories and the like in a row; more are not read
_MOST_SEEDS = 20
_KINDS = {"learning_curves": "wide", _PAPER: "narrow"}
_WITHOUT = {
    "client_spread": "All clients had the same returns in every round.",
    "guarded": "No iteration of local training was rolled back.",
    "rejected": "No client update was rejected.",
}


def write_report(
    directory: Path | str,
    runs: Sequence[LoadedRun],
    target: float | None = None,
    sources: Sequence[Path] | None = None,
    x: str = "rounds",
    price: Price | None = None,
    alike: Path | None = None,
) -> Path:
    """Write `report.html`, its figures into `figures/`, and its tables (`exports.FILES`).

    Args:
        directory: where the report goes: that of the run or of the comparison, or any other.
        runs: what `load_runs` read.
        target: the return whose reaching is timed; by default see `statistics.default_target`.
        sources: the directories that `load_runs` read; by default the one that the report goes to.
        x: of `lines.X_AXES`, what figures of a quantity over rounds have from left to right.
        price: what heterogeneity costs, if that was asked.
        alike: the directory that it was compared with.

    Returns:
        The path of the page.

    Raises:
        UserError: if it cannot be written, or matplotlib is not installed.
    """
    directory = Path(directory)
    groups = grouped(runs)
    used = target_of(groups) if target is None else target
    # Before anything is drawn, because it refuses a day that is none.
    command = _command(directory, target, sources, x, alike)
    made = made_by(command, ["fedkl", "numpy", "matplotlib"])
    pictures = draw(groups, used, x, None if price is None else price.alike)
    patterns = [pattern for section in _SECTIONS.values() for pattern in section]
    write_figures(directory, pictures, patterns)
    write_tables(directory, runs, target)
    body = filled(
        "runs.html",
        results=_results(runs, groups, used, given=target is not None)
        + ("" if price is None else price_table(price))
        + _exported(pictures),
        legend=html(legend(groups)),
        figures="\n".join(_section(title, pictures) for title in _SECTIONS),
        runs=_runs(runs, used, directory) + _rejections(runs) + _broken_readings(runs),
        settings=_settings(runs, groups) + _versions(runs),
        method=definitions(method(groups)),
    )
    page = Page(
        title=_title(runs),
        facts=_facts(runs),
        answer=minus(answer(groups)),
        notes=notes(runs, groups, without_rounds(sources or [directory], runs)),
        body=body,
        made=made,
    )
    return page.write(directory / "report.html")


def _exported(pictures: Mapping[str, Picture]) -> Html:
    """Link to the files beside the page that are for a paper, or for other programs."""
    paper = [f"figures/{_PAPER}{end}" for end in (".pdf", ".svg", ".png") if _PAPER in pictures]
    links = " ".join(link(name, name.rpartition("/")[2]) for name in (*FILES, *paper))
    said = "For a paper and other programs: the curves, this table, all algorithms in one panel: "
    return paragraph(Html(f"{html(said)}{links}"), "small")


def _command(
    directory: Path,
    target: float | None,
    sources: Sequence[Path] | None,
    x: str,
    alike: Path | None,
) -> str:
    """Return the command that makes the page again."""
    given = "" if target is None else f" --target {target:g}"
    given += "" if x == "rounds" else f" --x {x}"
    given += "" if alike is None else f" --alike {typed(alike)}"
    names = [typed(path) for path in sources or [directory]]
    if sources and [*sources] != [directory]:
        given += f" --out {typed(directory)}"
    more = " ..." if len(names) > _MOST_NAMED else ""
    return f"fedkl report {' '.join(names[:_MOST_NAMED])}{more}{given}"


def _shades(groups: Sequence[Group]) -> dict[str, str]:
    """Return the colour that each group has in the figures; grey if it is not there."""
    grey = dict.fromkeys((group.label for group in groups), MUTED)
    return grey | shades_of(drawn(groups))


def _title(runs: Sequence[LoadedRun]) -> str:
    groups = grouped(runs)
    tasks, environments = list(levels(groups)), worlds(groups)
    names = list(dict.fromkeys(run.method if len(tasks) > 1 else run.label for run in runs))
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    if len(names) > _MOST_NAMED:
        algorithms = dict.fromkeys(str(run.setting("algorithm", "name")) for run in runs)
        listed = f"{len(names)} groups of runs: {few([*algorithms], _MOST_NAMED)}"
    where = f"{listed} on {few(environments, _MOST_NAMED)}" if environments else listed
    # Where there are several environments, they say enough.
    return f"{where}: {few(tasks, _MOST_NAMED)}" if len(tasks) > 1 >= len(environments) else where


def _facts(runs: Sequence[LoadedRun]) -> str:
    presets = dict.fromkeys(str(run.config["preset"]) for run in runs if run.config.get("preset"))
    counts = {run.setting("federation", "clients") for run in runs}
    clients = sorted(count for count in counts if isinstance(count, int))
    seeds = sorted({run.seed for run in runs})
    facts = [f"preset {few([*presets], _MOST_NAMED)}"] if presets else []
    facts += [_span(clients, "client")] if clients else []
    facts.append(_span(sorted({int(run.rounds[-1]) for run in runs}), "round"))
    which = few([str(seed) for seed in seeds], _MOST_SEEDS)
    facts.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {which}")
    return " · ".join(facts)


def _span(values: Sequence[int], what: str) -> str:
    most = counted(values[-1], what)
    return most if len(values) == 1 else f"{values[0]} to {most}"


def _results(
    runs: Sequence[LoadedRun], groups: Sequence[Group], target: float | None, given: bool
) -> str:
    shades = _shades(groups)
    several_tasks = len(levels(groups)) > 1
    rows = [
        [
            *_named(group, shades[row.label], row.finished, several_tasks),
            _estimate(row.final),
            str(row.seeds),
            _estimate(row.worst_client),
            _estimate(row.drop),
            _estimate(row.best),
            _rounds(row),
            number(row.megabytes_to_target),
            number(row.seconds_to_target),
            number(row.seconds_training),
            number(row.steps_per_second),
            f"{number(row.megabytes_down)} / {number(row.megabytes_up)}",
        ]
        for group, row in zip(groups, table(runs, target), strict=True)
    ]
    header = ["Algorithm", *(["Level"] if several_tasks else []), "Final return", "Seeds"]
    header += ["Worst client", "Largest drop", "Best"]
    header += ["Rounds to target", "MB to target", "Seconds to target"]
    header += ["Seconds of training", "Steps a second", "MB down / up a round"]
    parts = [html_table(header, rows)]
    several = any(len(group.counted) > 1 for group in groups)
    explained = (
        "Numbers are interquartile means over seeds, in brackets their 95 % bootstrap interval."
        if several
        else "One seed for each algorithm, so there is no interval."
    )
    if target is not None:
        explained += f" Target {minus(number(target))}: {target_note(target, given, groups)}"
    parts.append(paragraph(explained, "small"))
    chances = [paragraph(_chance(*found)) for found in improvements(groups)]
    if chances:
        parts.append(paragraph(_compared(groups)))
    parts += _folded("Probabilities of improvement", chances)
    parts.append(pairs_table(pairs_of(groups)))
    return "\n".join(parts)


def _named(what: Group | LoadedRun, colour: str, finished: bool, several_tasks: bool) -> list[Html]:
    """Return the cells that say what a row is of; its level has one where there are several."""
    name = what.method if several_tasks else what.label
    tag = "" if finished else '<span class="tag">unfinished</span>'
    chip = f'<span class="chip" style="background:{themed(colour)}"></span>'
    cell = Html(f"{chip}<strong>{html(name)}</strong>{tag}")
    level = Html(f'<span class="level">{html(minus(what.level))}</span>')
    return [cell, level] if several_tasks else [cell]


def _compared(groups: Sequence[Group]) -> str:
    """Say which algorithms the page's answer compares, and which the probabilities below."""
    within = ", within each level," if len(levels(groups)) > 1 else ""
    return (
        f"The answer at the top compares{within} the algorithm that ended highest with the one "
        "that ended second. Below are the probabilities of the one that ended highest, among those "
        "with two seeds or more, against each of the others."
    )


def _estimate(value: Estimate | None) -> Html:
    if value is None:
        return html(NOTHING)
    text = minus(number(value.value))
    if value.low is None:
        return html(text)
    bounds = minus(f"[{number(value.low)}, {number(value.high)}]")
    return Html(f"{html(text)}<small>{html(bounds)}</small>")


def _rounds(row: Row) -> Html:
    """Return the round of the target, and below it how many of the seeds reached it."""
    first, bracket, seeds = rounds_cell(row).partition(" (")
    return Html(
        f"{html(first)}<small>{html(bracket.strip() + seeds)}</small>" if bracket else first
    )


def _chance(first: str, other: str, chance: Estimate) -> str:
    # Where all pairs agree every bootstrap draw agrees too: an interval of no width, not certainty.
    if chance.value in (0.0, 1.0):
        pairs = "every pair" if chance.value else "no pair"
        return (
            f"{first} ended above {other} in {pairs} of these runs, which are too few for an "
            "interval of that probability."
        )
    return (
        f"Probability that a run of {first} ends above a run of {other}: {chance.value:.2f} "
        f"(95 % interval {chance.low:.2f} to {chance.high:.2f})."
    )


def _section(title: str, pictures: Mapping[str, Picture]) -> str:
    patterns = _SECTIONS[title]
    drawn = [p for pattern in patterns for p in pictures.values() if fnmatchcase(p.name, pattern)]
    absent = [_WITHOUT[name] for name in patterns if name not in pictures and name in _WITHOUT]
    if not drawn and not absent:
        return ""
    figures = "\n".join(figure(picture, _KINDS.get(picture.name, "")) for picture in drawn)
    said = "".join(paragraph(text) for text in absent)
    return f'<section><h2>{html(title)}</h2>\n{said}<div class="figures">{figures}</div></section>'


def _runs(runs: Sequence[LoadedRun], target: float | None, directory: Path) -> str:
    groups = grouped(runs)
    shades, several_tasks = _shades(groups), len(levels(groups)) > 1
    rows = []
    for run in runs:
        row = run_row(run, target)
        planned = "" if run.planned_rounds is None else f" of {run.planned_rounds}"
        worst = "" if row.worst_client_id is None else f"client {row.worst_client_id}: "
        rows.append(
            [
                *_named(run, shades[run.label], run.finished, several_tasks),
                str(run.seed),
                f"{run.rounds[-1]}{planned}",
                _estimate(row.final),
                Html(worst + _estimate(row.worst_client)),
                _estimate(row.drop),
                _estimate(row.best),
                _rounds(row),
                number(float(run.megabytes[-1])),
                number(row.seconds),
                _files(run, directory),
            ]
        )
    header = ["Algorithm", *(["Level"] if several_tasks else []), "Seed", "Rounds", "Final return"]
    header += ["Worst client", "Largest drop", "Best", "Rounds to target", "MB", "Seconds", "Files"]
    return html_table(header, rows)


def _files(run: LoadedRun, directory: Path) -> Html:
    """Link to the files of a run that lies where the page does or below."""
    if not run.path.is_relative_to(directory):
        return html(NOTHING)
    folder = run.path.relative_to(directory)
    names = {"config.toml": "config", "metrics.jsonl": "metrics", "summary.json": "summary"}
    there = {name: text for name, text in names.items() if (run.path / name).is_file()}
    return Html(" ".join(link(quote(str(folder / name)), text) for name, text in there.items()))


def _rejections(runs: Sequence[LoadedRun]) -> str:
    """Count rejected updates by reason."""
    reasons = Counter(
        (run.label, str(rejected["reason"]))
        for run in runs
        for record in run.records
        for rejected in record.get("rejected") or ()
    )
    if not reasons:
        return ""
    rows = [[label, reason, str(count)] for (label, reason), count in reasons.items()]
    found = html_table(["Algorithm", "Reason", "Rejected updates"], rows, "text")
    return collapsed("Why updates were rejected", found)


def _broken_readings(runs: Sequence[LoadedRun]) -> str:
    """Name the clients whose sensors gave readings that no world means."""
    shares: dict[tuple[str, int, int], list[float]] = {}
    for run in runs:
        for record in run.records:
            for broken in record.get("outliers") or ():
                whose = (run.label, run.seed, broken["client"])
                shares.setdefault(whose, []).append(broken["share"])
    if not shares:
        return ""
    rows = [
        [label, str(seed), str(client), str(len(found)), f"{max(found):.2%}"]
        for (label, seed, client), found in sorted(shares.items())
    ]
    header = ["Algorithm", "Seed", "Client", "Rounds", "Most of its steps in a round"]
    return collapsed("Clients with broken readings", html_table(header, rows, "text"))


def _settings(runs: Sequence[LoadedRun], groups: Sequence[Group]) -> str:
    configs = [flat(run.config) for run in runs]
    unequal = differing(configs)
    parts = []
    if unequal:
        rows = [
            [run.name, *(shown(config, key) or NOTHING for key in unequal)]
            for run, config in zip(runs, configs, strict=True)
        ]
        body = html_table(["Run", *unequal], rows, "text")
        parts.append(collapsed("Settings in which the runs differ", body))
    own = []
    for group in groups:
        run = (*group.counted, *group.left_out)[0]
        whose = f"Settings of {group.label}, seed {run.seed}" if len(runs) > 1 else "Settings"
        own.append(collapsed(whose, preformatted(tomli_w.dumps(run.config))))
    parts += _folded(f"Settings of each of the {len(groups)} groups", own)
    said = "Saved to a file, they train the same again: fedkl train FILE.toml."
    return paragraph(said, "small") + "\n".join(parts)


def _folded(title: str, parts: Sequence[Html]) -> list[Html]:
    """Return the parts as they are, or, if they are many, under a title that opens them."""
    return [*parts] if len(parts) <= _MOST_NAMED else [collapsed(title, Html("".join(parts)))]


def _versions(runs: Sequence[LoadedRun]) -> str:
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for package, version in ((run.summary or {}).get("versions") or {}).items():
            found.setdefault(str(package), {})[str(version)] = None
    rows = [[package, ", ".join(versions)] for package, versions in sorted(found.items())]
    if not rows:
        return ""
    return collapsed("Versions", html_table(["Package", "Version"], rows, "text"))
