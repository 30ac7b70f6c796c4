"""Golden digests: what small runs of every kind come to, before and after a change of the code.

    python tests/checks/golden.py make golden.json
    python tests/checks/golden.py compare golden.json

Every algorithm and every kind of world is trained for two rounds, and so are a comparison, a
tuning, a run on Ray and one over a network; then configs, logs (without times), arrays of
checkpoints, numbers of reports and the verdicts of the theory are compared. Bits depend on the
machine: make and compare on the same.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

SMALL = [
    "federation.clients=4",
    "federation.clients_per_round=2",
    "learner.iterations=2",
    "learner.epochs=2",
    "evaluation.episodes=2",
    "checkpoint.every=1",
]
ALGORITHMS = ("fedavg", "fedkl", "fedkl-anchored", "fedprox", "fmarl", "scaffold")
DEMO = ["learner.steps=100", "learner.minibatch=32"]
SHARED = ["learner.iterations=1", "learner.epochs=1", "evaluation.episodes=1", "checkpoint.every=1"]
PASSING = {"seconds", "time", "chain", "log", "sha256", "versions", "history", "made", "started"}
"""What differs from run to run, or says with what a run was made."""


def commands(folder: Path) -> dict[str, list[str]]:
    """Name and arguments of each command; those that train keep their run in `folder / name`."""

    def train(name: str, *arguments: str) -> list[str]:
        return ["train", *arguments, "--rounds", "2", "--run", str(folder / name)]

    found = {
        f"demo-{algorithm}": train(
            f"demo-{algorithm}", "demo", "--algorithm", algorithm, "--set", *SMALL, *DEMO
        )
        for algorithm in ALGORITHMS
    }
    found |= {
        "paper": train("paper", "reacher-init-state-paper", "--set", *SMALL, *DEMO),
        "dynamics": train("dynamics", "reacher-dynamics", "--set", *SMALL, *DEMO),
        "personal": train(
            "personal",
            "demo",
            "--set",
            *SMALL,
            *DEMO,
            "federation.personal=action-bias",
            "federation.critic=local",
        ),
        "measured": train("measured", "demo", "--set", *SMALL, *DEMO, "heterogeneity.every=1"),
        "robust": train("robust", "demo", "--set", *SMALL, *DEMO, "aggregation.reduce=median"),
        "cartpole": train("cartpole", "cartpole-gravity", "--set", *SMALL, "learner.steps=100"),
        "gymnasium": train("gymnasium", "gym:Pendulum-v1", "--set", *SMALL, "learner.steps=400"),
        "shared": train("shared", "figure-eight", "--set", *SHARED, "world.horizon=100"),
        "pettingzoo": train("pettingzoo", "pettingzoo", "--set", *SHARED),
        "ray": [*train("ray", "demo", "--set", *SMALL, *DEMO), "--engine", "ray", "--actors", "1"],
        "network": [
            "serve",
            "demo",
            "--set",
            *SMALL[1:],
            *DEMO,
            "federation.clients=2",
            "--rounds",
            "2",
            "--local",
            "2",
            "--run",
            str(folder / "network"),
        ],
        "compare": [
            "compare",
            "demo",
            "--algorithms",
            "fedavg",
            "fedkl",
            "--seeds",
            "2",
            "--rounds",
            "2",
            "--set",
            *SMALL,
            *DEMO,
            "--run",
            str(folder / "compare"),
            "--jobs",
            "2",
            "--json",
        ],
        "tune": [
            "tune",
            "demo",
            "--algorithm",
            "fedkl",
            "--grid",
            "algorithm.d_global=0.3,0.6",
            "--seeds",
            "1",
            "--rounds",
            "2",
            "--set",
            *SMALL,
            *DEMO,
            "--run",
            str(folder / "tune"),
            "--json",
        ],
        "report": ["report", str(folder / "compare"), "--json"],
        "evaluate": ["evaluate", str(folder / "demo-fedkl"), "--json"],
        "describe": ["describe", "reacher-both", "--csv"],
        "theory": ["theory", "verify", "--json"],
        "list": ["list"],
        "show": ["show", "reacher-init-state"],
    }
    return found


def digests(folder: Path) -> dict[str, Any]:
    """Run all commands, and digest what they print and write."""
    found: dict[str, Any] = {}
    for name, arguments in commands(folder).items():
        print(name, file=sys.stderr)
        done = subprocess.run(
            [sys.executable, "-m", "fedkl", *arguments], capture_output=True, text=True
        )
        found[name] = {"code": done.returncode}
        if arguments[0] not in ("train", "serve"):
            found[name]["printed"] = _digest(_text(done.stdout.replace(str(folder), "")))
        if done.returncode:
            found[name]["error"] = done.stderr[-300:]
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(folder))
            if (contents := _contents(path, folder)) is not None:
                found[_without_checksum(name)] = _digest(contents)
    return found


def _contents(path: Path, folder: Path) -> Any:
    if path.suffix == ".safetensors":
        arrays = load_file(path)
        return {n: [a.dtype.name, a.shape, a.tobytes().hex()] for n, a in sorted(arrays.items())}
    if path.name in ("config.toml", "compare.toml", "tune.toml", "best.toml", "clients.csv"):
        return path.read_text().replace(str(folder), "")
    if path.suffix in (".json", ".jsonl") and path.name != "status.json":
        return _text(path.read_text())
    return None


def _text(text: str) -> Any:
    """JSON without what passes, a value or a line; else the text."""
    try:
        return _lasting(json.loads(text))
    except ValueError:
        pass
    try:
        return [_lasting(json.loads(line)) for line in text.splitlines()]
    except ValueError:
        return text


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _lasting(one)
            for key, one in value.items()
            if key not in PASSING and not key.startswith(("traffic", "seconds", "steps_per_second"))
        }
    return [_lasting(one) for one in value] if isinstance(value, list) else value


def _without_checksum(name: str) -> str:
    parts = name.split(".")
    return ".".join(part for part in parts if len(part) != 64)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def main(what: str, path: str) -> int:
    """Make the file, or print in what it differs from now."""
    with tempfile.TemporaryDirectory() as folder:
        now = digests(Path(folder))
    if what == "make":
        Path(path).write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        failed = [name for name, one in now.items() if isinstance(one, dict) and one["code"]]
        print(f"{len(now)} digests; failed: {failed}")
        return bool(failed)
    before = json.loads(Path(path).read_text())
    differ = sorted(name for name in before | now if before.get(name) != now.get(name))
    for name in differ:
        print(f"{name}: {before.get(name)} -> {now.get(name)}")
    print(f"{len(before)} digests, {len(differ)} differ")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
