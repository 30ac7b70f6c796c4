"""What the page says of how its numbers were made."""

from types import SimpleNamespace
from typing import Any

import pytest

from fedkl.report.method import _clients


def group(tmp_path: Any, name: str, *tables: str | None) -> Any:
    runs = []
    for seed, table in enumerate(tables):
        path = tmp_path / f"{name}-seed{seed}"
        path.mkdir()
        if table is not None:
            (path / "clients.csv").write_text(table)
        runs.append(SimpleNamespace(path=path))
    return SimpleNamespace(counted=runs)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ((("a", "a"), ("a", "a")), "The same in all seeds: an interval is of training"),
        ((("a", "b"), ("a", "b")), "Drawn anew for each seed: an interval has in it"),
        ((("a", "a"), ("a", "b")), "The same in all seeds of some algorithms"),
        (((None, None),), None),
        ((("a",), ("a",)), None),
    ],
)
def test_the_page_says_whether_clients_were_the_same_in_all_seeds(
    tmp_path: Any, tables: Any, said: str | None
) -> None:
    groups = [group(tmp_path, f"g{i}", *each) for i, each in enumerate(tables)]
    found = _clients(groups)
    assert [text.startswith(said or "") for _, text in found] == ([] if said is None else [True])
