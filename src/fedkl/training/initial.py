"""Round 0: the returns of a run's policy before it was trained.

Training does not evaluate it. It follows from the config alone, so that it can be evaluated at any
time, with keys that no round uses; it is kept beside the log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkl.core.errors import UserError
from fedkl.io import strict_json
from fedkl.io.files import explain_os_errors, write_atomically
from fedkl.training.directory import RunDirectory, is_served
from fedkl.training.origin import settings_of
from fedkl.training.records import is_number

INITIAL = "initial.json"
_RETURNS = ("return_mean", "return_min", "return_std", "deterministic_return_mean")


def read_initial(run: RunDirectory, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what `evaluate_initial` wrote; None if it did not, or of other settings.

    Args:
        run: the run's directory.
        config: of the run.

    Raises:
        UserError: the file is damaged.
    """
    path = run.path / INITIAL
    if not path.is_file():
        return None
    try:
        with explain_os_errors("read", path):
            found = strict_json.decode(path.read_bytes())
        known = all(found[key] is None or is_number(found[key]) for key in _RETURNS)
        config_then = found["config"]
    except (ValueError, KeyError):
        known = False
    if not known:
        raise UserError(f"{path} is damaged: remove it")
    return found if config_then == _digest(config) else None


def evaluate_initial(path: Path) -> None:
    """Evaluate the policy that a run began with as its rounds are, unless that was done.

    Raises:
        UserError: it is not a run, or its clients are in a network.
    """
    from fedkl.clients.work import Evaluate
    from fedkl.server import records
    from fedkl.server.loop import Federation
    from fedkl.training.plugin_consent import of_run

    run = RunDirectory.open(path)
    config = run.config()
    if read_initial(run, config) is not None:
        return
    if is_served(path):
        raise UserError(f"{path} is served over a network: its first policy is not evaluated")
    with Federation(of_run(run)) as federation:
        episodes, sample = federation.config.evaluation.episodes, federation.evaluated
        both = [federation.evaluation(Evaluate(episodes, d), sample) for d in (False, True)]
        stochastic, deterministic = (collect() for collect in both)
        returns = records.returns(stochastic, deterministic, sample)
    kept = {key: value for key, value in returns.items() if key in _RETURNS}
    data = strict_json.encode({"round": 0, **kept, "config": _digest(config)})
    with explain_os_errors("write", path / INITIAL):
        write_atomically(path / INITIAL, data + b"\n")


def _digest(config: Mapping[str, Any]) -> str:
    """Return a checksum of the settings that a policy and its returns depend on."""
    text = json.dumps(settings_of(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
