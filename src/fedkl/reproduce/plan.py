"""An experiment's directory: ordinary runs side by side, then a figure, a table and a text.

reproduce.toml   the plan; a directory that has it is an experiment
CASE-seedS/      a run for each case and each seed
NAME.csv, NAME.png, NAME.svg, NAME.md   at the end, with the experiment's name
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedkl import workers
from fedkl.compare import refuse_seen_seeds
from fedkl.config import Config
from fedkl.errors import UserError
from fedkl.report.pictures import save_figure
from fedkl.reproduce import EXPERIMENTS
from fedkl.reproduce.experiment import Case, Experiment, Finding
from fedkl.runs import MetricsLog, lock_directory, strict_toml, write_atomically
from fedkl.runs.comparison import name_of
from fedkl.settings import build, setting

_PLAN = "reproduce.toml"


@dataclass(frozen=True)
class Plan:
    """What is run."""

    experiment: str = setting("", "which", choices=tuple(EXPERIMENTS))
    seeds: tuple[int, ...] = setting((), "of each case", low=0)
    jobs: int = setting(1, "how many runs go on at a time", low=1)

    def it(self) -> Experiment:
        """The experiment."""
        return EXPERIMENTS[self.experiment]

    def runs(self, path: Path) -> list[Path]:
        """The run directories, seed by seed, so that an early look compares like with like."""
        return [path / name_of(case, seed) for seed in self.seeds for case in self.it().cases]


def is_reproduction(path: Path) -> bool:
    """Whether a directory holds an experiment."""
    return (path / _PLAN).is_file()


def read_plan(path: Path) -> Plan:
    """The plan of an experiment's directory.

    Raises:
        UserError: the file cannot be read, or is not a plan.
    """
    file = path / _PLAN
    plan: Plan = build(Plan, strict_toml.read(file), str(file))
    return plan


def create(path: Path, plan: Plan, configure: Callable[[Case, int], Config]) -> None:
    """Makes the directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is run.
        configure: the config of a case and a seed.

    Raises:
        UserError: a config is wrong, its settings were chosen on a seed of the plan, or nothing
            would be measured (nothing is written then), or the directory exists.
    """
    configs = {
        name_of(name, seed): configure(case, seed)
        for name, case in plan.it().cases.items()
        for seed in plan.seeds
    }
    refuse_seen_seeds(configs.values(), plan.seeds)
    if not all(config.heterogeneity.every for config in configs.values()):
        raise UserError("heterogeneity.every must not be 0: what is measured makes the figure")
    mappings = {name: config.mapping() for name, config in configs.items()}
    text = tomli_w.dumps(dataclasses.asdict(plan))
    workers.create(path, mappings, lambda aside: write_atomically(aside / _PLAN, text.encode()))


def go_on(path: Path, plan: Plan, train: workers.Trainer) -> Finding:
    """Runs what is left, and writes what came out.

    Args:
        path: the experiment's directory.
        plan: its plan.
        train: trains them, `plan.jobs` at a time where they are processes here.

    Raises:
        UserError: a run could not be finished (the others were), nothing was measured, or a file
            not be written.
    """
    experiment = plan.it()
    with lock_directory(path):
        train(plan.runs(path), plan.jobs)
        logs = {
            case: {
                s: MetricsLog(path / name_of(case, s) / "metrics.jsonl").read() for s in plan.seeds
            }
            for case in experiment.cases
        }
        labels = {name: case.label for name, case in experiment.cases.items()}
        finding = experiment.judge(logs, labels)
        stem = path / experiment.name
        write_atomically(stem.with_suffix(".csv"), _csv(finding.rows))
        write_atomically(stem.with_suffix(".md"), finding.text.encode())
        for suffix in (".png", ".svg"):
            save_figure(stem.with_suffix(suffix), finding.draw)
    return finding


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(_known(row) for row in rows)
    return text.getvalue().encode()


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is not known is empty."""
    return {key: "" if value is None else value for key, value in row.items()}
