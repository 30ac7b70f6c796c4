"""Where the time of the tests goes: a plugin that notes it, and a table of it.

    PYTHONPATH=tests/checks FEDKL_TIMES=/tmp/times pytest -p times -n 2 --dist loadfile
    python tests/checks/times.py /tmp/times

An empty `XDG_CACHE_HOME` makes the cache of compiled code cold.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

COLUMNS = ("cpu", "children", "wall", "compile", "trace")
_spent: Counter[str] = Counter()


def _note(event: str, seconds: float, **_: Any) -> None:
    if "backend_compile" in event:  # code that the cache has is read in this time
        _spent["compile"] += seconds
    elif "trace" in event or "mlir" in event:
        _spent["trace"] += seconds


def _now() -> Counter[str]:
    own, others = (
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return _spent + Counter(cpu=own, children=others, wall=time.monotonic())


def pytest_configure() -> None:
    jax.monitoring.register_event_duration_secs_listener(_note)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _now()
    result = yield
    row = {"test": item.nodeid} | dict(_now() - before)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with Path(f"{os.environ['FEDKL_TIMES']}.{worker}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return result


def main(path: str) -> None:
    """Print the seconds of each file of tests, the longest first."""
    files: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for part in Path(path).parent.glob(f"{Path(path).name}.*.jsonl"):
        for line in part.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            files[row.pop("test").partition("::")[0]].update(row)
    files["all"] = sum(files.values(), Counter())
    print(*(f"{name:>9}" for name in COLUMNS))
    for name, spent in sorted(files.items(), key=lambda x: -x[1]["cpu"] - x[1]["children"]):
        print(*(f"{spent[column]:9.1f}" for column in COLUMNS), name)


if __name__ == "__main__":
    main(sys.argv[1])
