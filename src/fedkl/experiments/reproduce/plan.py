"""A directory of experiments: ordinary runs side by side, then a figure, a table and verdicts.

reproduce.toml               the plan; a directory that has it holds experiments
EXPERIMENT-CASE-seedS/       a run for each case and each seed
NAME.csv, NAME.png, NAME.svg, NAME.md   at the end, of each experiment

An experiment that judges runs of another finds them here, too, so each is trained once. A run that
the plan asks for and that is not there yet, because the table of experiments has grown, is made
when the directory is resumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from fedkl.config import config
from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.experiments import additions, compare, workers
from fedkl.experiments.compare import refuse_seen_seeds
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FIRST_SEED, Case, Experiment, ExperimentResult
from fedkl.experiments.reproduce.judges import JUDGES
from fedkl.experiments.reproduce.quick import with_pointers
from fedkl.experiments.reproduce.results import Row, row_of, table_path
from fedkl.experiments.reproduce.text import as_csv, finding_text
from fedkl.io.files import write_atomically
from fedkl.io.locks import lock_directory
from fedkl.report.pictures import save_figure
from fedkl.training import binding, growth
from fedkl.training.directory import RunDirectory
from fedkl.training.plans import RunsPlan
from fedkl.training.plugin_consent import of_run

ALL = "all"


class Run(NamedTuple):
    """One of the runs of a plan."""

    path: Path
    case: Case
    seed: int


@dataclass(frozen=True)
class ReproductionPlan(RunsPlan):
    """The plan of a reproduction."""

    FILE = "reproduce.toml"
    OF_TABLE = True

    experiment: str = setting("", "which", choices=(*EXPERIMENTS, ALL))
    jobs: int = setting(1, "how many runs go on at a time", low=1)
    quick: bool = setting(False, "cut down to minutes")
    seeds: int = setting(0, "of each case at the most; 0: as many as the table says", low=0)
    rounds: int = setting(0, "of each run; 0: as many as the table says", low=0)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changed in all runs, by dotted name."""
    known: tuple[str, ...] = setting((), "runs that are left out: their tables are there already")

    @property
    def full(self) -> bool:
        """True if its runs are those of the table, all or some, and can stand for the paper's."""
        return not (self.quick or self.rounds or self.settings)

    def experiments(self) -> list[Experiment]:
        """The experiments, cut down as the plan says."""
        names = [*EXPERIMENTS] if self.experiment == ALL else [self.experiment]
        return [self._cut(EXPERIMENTS[name]) for name in names]

    def _cut(self, whole: Experiment) -> Experiment:
        kept = whole.quickly() if self.quick else whole
        cases = [
            case._replace(rounds=self.rounds or case.rounds, seeds=case.seeds[: self.seeds or None])
            for case in kept.cases
        ]
        return dataclasses.replace(kept, cases=cases)

    def runs(self, path: Path) -> list[Run]:
        """The runs, each once, in the order in which they are trained.

        Tier by tier, the first three seeds of all groups before the others, and in a group seed by
        seed.
        """
        found: dict[Path, Run] = {}
        for experiment in self.experiments():
            for group in dict.fromkeys((c.experiment, c.group) for c in experiment.cases):
                cases = [c for c in experiment.cases if (c.experiment, c.group) == group]
                for seed in dict.fromkeys(s for case in cases for s in case.seeds):
                    for case in (case for case in cases if seed in case.seeds):
                        place = path / run_name(case, seed)
                        if place.name not in self.known:
                            found.setdefault(place, Run(place, case, seed))
        return sorted(found.values(), key=lambda run: (run.case.tier, run.seed >= FIRST_SEED + 3))

    def run_paths(self, path: Path) -> list[Path]:
        """Return the directories of the runs, in the order in which they are trained."""
        return [run.path for run in self.runs(path)]

    def settings_by_run(self) -> dict[str, dict[str, Any]]:
        """Return what the plan says of each run: all of its config."""
        said = {}
        for run in self.runs(Path()):
            mapping = self.configure(run.case, run.seed).mapping()
            flat = {key: entry for key, entry in mapping.items() if not isinstance(entry, Mapping)}
            for group in mapping.keys() - flat.keys():
                flat |= {f"{group}.{name}": entry for name, entry in mapping[group].items()}
            del flat["preset"]
            said[run.path.name] = flat
        return said

    def results(self, path: Path) -> dict[str, bytes] | None:
        """Return the table and the text of each experiment; None while runs have rounds left."""
        if not all(workers.is_there(run, None) for run in self.run_paths(path)):
            return None
        files = {}
        for name, finding in findings_of(path, self).items():
            files[f"{name}.csv"] = as_csv(finding.rows)
            files[f"{name}.md"] = finding_text(EXPERIMENTS[name], finding).encode()
        return files

    @classmethod
    def parse(cls, values: dict[str, Any], file: str) -> Self:
        settings = values.pop("settings", {})
        if not isinstance(settings, dict):
            raise UserError(f"{file}.settings must be a table, not {settings!r}")
        if "experiment" not in values:
            known = ", ".join((*EXPERIMENTS, ALL))
            raise UserError(f"{file}.experiment must say which; available: {known}")
        return dataclasses.replace(super().parse(values, file), settings=settings)

    def without_known(self, results: Path) -> ReproductionPlan:
        """The plan for what is not in `results` yet.

        Raises:
            UserError: everything is.
        """
        runs = self.runs(Path())
        known = [run for run in runs if table_path(results, run.case, run.seed).is_file()]
        if len(known) == len(runs):
            raise UserError(f"nothing is missing: {results} has the tables of all these runs")
        return dataclasses.replace(self, known=tuple(run.path.name for run in known))

    def configure(self, case: Case, seed: int) -> config.Config:
        """The config of a run.

        Raises:
            UserError: a setting that was given is wrong.
        """
        settings = {"federation.rounds": case.rounds} | {**case.settings, **self.settings}
        federation = config.preset(case.preset, case.algorithm, seed, settings)
        return compare.MAKE[case.reference](federation) if case.reference else federation


def run_name(case: Case, seed: int) -> str:
    """The name of a run's directory."""
    return f"{case.experiment}-{case.name}-seed{seed}"


def create(path: Path, plan: ReproductionPlan) -> None:
    """Make the directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is run.

    Raises:
        UserError: a config is wrong, its settings were chosen on a seed of the plan, or nothing
            would be measured where that is what is judged (nothing is written then), or the
            directory exists.
    """
    mappings = {name: config.mapping() for name, config in _configs(path, plan).items()}
    workers.create(path, plan, mappings)


def _configs(path: Path, plan: ReproductionPlan) -> dict[str, config.Config]:
    """The config of each run of a plan, by name; otherwise as `create`."""
    runs = plan.runs(path)
    configs = {run.path.name: plan.configure(run.case, run.seed) for run in runs}
    refuse_seen_seeds(configs.values(), {run.seed for run in runs})
    if plan.settings.get("heterogeneity.every") == 0:
        raise UserError("heterogeneity.every must not be 0: what is measured makes the figure")
    return configs


def add(path: Path, plan: ReproductionPlan, warn: additions.Warn) -> int:
    """Make a directory of experiments one of a larger plan: more seeds, or longer runs.

    Args:
        path: the directory.
        plan: what it is to be; without settings or jobs it has those that it had.
        warn: is notified of what need not stop it.

    Returns:
        The number of runs that were made.

    Raises:
        UserError: the plan has less than what is there, or something else; nothing is written then.
    """
    before = additions.open_plan(ReproductionPlan, path, warn)
    plan = dataclasses.replace(
        plan, jobs=plan.jobs or before.jobs, settings=plan.settings or before.settings
    )
    there = additions.rounds_in(before.run_paths(path))
    configs = _configs(path, plan)
    for run, rounds in there.items():
        if (now := configs.get(run.name)) is None:
            raise UserError(f"{run} is no run of what this command says; nothing is taken away")
        if now.federation.rounds < rounds:
            raise UserError(
                f"{run} has {rounds} rounds, and this command says {now.federation.rounds}; "
                "nothing is taken away"
            )
        additions.require_same_config(run, of_run(RunDirectory(run)), now)
    new = {name: config.mapping() for name, config in configs.items() if path / name not in there}
    if plan != before:
        growth.grow(path, before, plan, new)
    return len(new)


def add_missing(path: Path, plan: ReproductionPlan) -> list[Path]:
    """Make the runs that the plan asks for and that are not there yet, and return them."""
    made = []
    for run in plan.runs(path):
        if not (run.path / "config.toml").is_file():
            RunDirectory.create(run.path, plan.configure(run.case, run.seed).mapping())
            binding.bind(plan, run.path)
            made.append(run.path)
    return made


def tables_of(runs: Sequence[Run]) -> dict[str, dict[int, list[Row]]]:
    """The tables of runs, by case and seed."""
    tables: dict[str, dict[int, list[Row]]] = {}
    for run in runs:
        log = RunDirectory(run.path).metrics.read()
        tables.setdefault(run.case.name, {})[run.seed] = [row_of(record) for record in log]
    return tables


def run_remaining(
    path: Path, plan: ReproductionPlan, train: workers.Trainer
) -> dict[str, ExperimentResult]:
    """Train what is left, and write the results.

    Args:
        path: the directory.
        plan: its plan.
        train: trains them, `plan.jobs` at a time where they are processes here.

    Returns:
        The result of each experiment, by name; nothing if some of its runs are elsewhere.

    Raises:
        UserError: a run could not be finished (the others were), nothing was measured, or a file
            not be written.
    """
    with lock_directory(path):
        train(plan.run_paths(path), plan.jobs)
        findings = findings_of(path, plan)
        for name, finding in findings.items():
            write_finding(path, EXPERIMENTS[name], finding)
    return findings


def findings_of(path: Path, plan: ReproductionPlan) -> dict[str, ExperimentResult]:
    """Return the result of each experiment, by name; nothing if some of its runs are elsewhere."""
    findings: dict[str, ExperimentResult] = {}
    if plan.known:
        return findings
    runs = plan.runs(path)
    for experiment in plan.experiments():
        own = {(case.experiment, case.name) for case in experiment.cases}
        tables = tables_of([run for run in runs if (run.case.experiment, run.case.name) in own])
        finding = JUDGES[experiment.judge](experiment, tables)
        findings[experiment.name] = (
            with_pointers(experiment, tables, finding) if plan.quick else finding
        )
    return findings


def write_finding(path: Path, experiment: Experiment, finding: ExperimentResult) -> None:
    """Write a finding's table, text and figure into a directory."""
    stem = path / experiment.name
    write_atomically(stem.with_suffix(".csv"), as_csv(finding.rows))
    write_atomically(stem.with_suffix(".md"), finding_text(experiment, finding).encode())
    for suffix in (".png", ".svg"):
        save_figure(stem.with_suffix(suffix), finding.draw)
