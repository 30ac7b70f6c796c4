"""What is said of a server of Flower's that has ended: the reason, and not where one could look."""

from types import SimpleNamespace

import pytest

from fedkl.network.flower.superlink import SuperLink

FINE = """\
2026-01-02T03:04:05.678Z INFO [uvicorn.error] Uvicorn running on http://127.0.0.1:9092
\x1b[92mINFO \x1b[0m:      SuperLinkLifespan: stop
2026-01-02T03:04:06.678Z INFO [uvicorn.error] Finished server process [12924]
"""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            FINE,
            "INFO :      SuperLinkLifespan: stop | 2026-01-02T03:04:06.678Z INFO [uvicorn.error] "
            "Finished server process [12924]",
        ),
        (
            "2026-01-02T03:04:05Z ERROR [uvicorn.error] address already in use\n" + FINE,
            "2026-01-02T03:04:05Z ERROR [uvicorn.error] address already in use",
        ),
        (
            "\x1b[91mERROR \x1b[0m:     no such certificate\nsqlite3.OperationalError: locked\n"
            + FINE,
            "ERROR :     no such certificate | sqlite3.OperationalError: locked",
        ),
        ("", "nothing"),
    ],
)
def test_the_end_of_its_log_is_told_and_what_is_no_error_is_not_called_one(tmp_path, log, told):
    link = SuperLink(tmp_path, "127.0.0.1", 9092, None)
    (tmp_path / "superlink.log").write_text(log)
    link._processes["superlink"] = SimpleNamespace(poll=lambda: None)
    assert link.problem() is None
    link._processes["superlink"] = SimpleNamespace(poll=lambda: 1)
    told = " ".join(told.split())
    assert link.problem() == f"Flower's superlink has ended; superlink.log ends with: {told}"
