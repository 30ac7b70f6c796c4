"""The command that writes a run's policy to a file; it does without JAX."""

from __future__ import annotations

import argparse

from fedkl.cli import console
from fedkl.policies import export as exporting
from fedkl.policies import load


def export(options: argparse.Namespace) -> None:
    exporting.check_target(options.file)
    policy = load(options.run, options.client, options.best, options.accept_changes)
    exporting.export(policy, options.file)
    console.out.print(f"policy after round {policy.round}: {options.file}", soft_wrap=True)
