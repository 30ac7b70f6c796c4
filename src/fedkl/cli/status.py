"""`fedkl status`: say how a federation over a network, or a client of it, is doing."""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedkl.cli import common, console, interrupts, output
from fedkl.core.errors import UserError
from fedkl.core.text import counted, printable, utc
from fedkl.io import tables
from fedkl.io.tables import Table
from fedkl.network import status
from fedkl.network.status import JoinStatus, ServeStatus

if TYPE_CHECKING:
    from fedkl.training.directory import RunDirectory


class Progress(NamedTuple):
    """The state of a run by its log."""

    round: int
    rounds: int
    """In all."""
    last: dict[str, Any]
    """The record of the last round, empty if there is none."""
    rejected: Counter[int]
    """Number of rounds that each client was left out of."""
    finished: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="a run, or what `fedkl join --state` keeps"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="end with code 2 if it is not served or connected, for a health check",
    )
    parser.add_argument(
        "--max-age",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds after which what was last heard of it is too old for --check",
    )
    parser.add_argument(
        "--prometheus",
        action="store_true",
        help="print it for the textfile collector of Prometheus' node_exporter",
    )
    common.add_formats(parser)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.training.directory import RunDirectory, is_served

    if not 0 < options.max_age < math.inf:
        raise UserError(f"--max-age must be a number of seconds above 0, not {options.max_age:g}")
    path = options.directory
    if not (path / "config.toml").exists() and (
        joined := status.read_join_status(path / status.FILE)
    ):
        return _client(options, joined)
    run = RunDirectory.open(path)
    if not is_served(run.path):
        raise UserError(f"{run.path} is not served over a network; `fedkl check` looks at any run")
    progress = _progress(run)
    served = status.read_serve_status(run.path / status.FOLDER / status.FILE)
    if options.check:
        _require_served(options, progress, served)
    if options.prometheus:
        console.out.print(exposition(progress, served), soft_wrap=True, end="")
        return
    record, rows = _record(progress, served), _rows(progress, served)
    if output.answered(options, record | {"clients": rows}, rows):
        return
    _show(run.path, progress, served, rows)


def _progress(run: RunDirectory) -> Progress:
    records = run.metrics.read()
    rounds = run.config().get("federation", {}).get("rounds", 0)
    left_out = Counter(row["client"] for record in records for row in record.get("rejected") or ())
    last = records[-1] if records else {}
    return Progress(len(records), rounds, last, left_out, run.summary() is not None)


def _require_served(
    options: argparse.Namespace, progress: Progress, served: ServeStatus | None
) -> None:
    """Require that a run is finished, or served.

    Raises:
        UserError: it is neither.
    """
    if progress.finished:
        return
    if served is None or not status.runs(served.process):
        raise UserError(f"nobody serves {options.directory}")
    _require_recent(options, served.time)


def _require_recent(options: argparse.Namespace, at: float) -> None:
    from fedkl.io.progress import duration

    if (age := time.time() - at) > options.max_age:
        raise UserError(
            f"{options.directory} was last heard of {duration(age)} ago, more than --max-age "
            f"{options.max_age:g} s"
        )


def _client(options: argparse.Namespace, joined: JoinStatus) -> None:
    """Print how a client is doing."""
    there = joined.connected and status.runs(joined.process)
    if options.check:
        if not status.runs(joined.process):
            raise UserError(f"`fedkl join` of {options.directory} does not run")
        if not there:
            raise UserError(f"{options.directory} is not connected to {joined.address}")
        _require_recent(options, joined.time)
    if options.prometheus:
        lines = [_sample("fedkl_connected", int(there), "whether the client is connected")]
        console.out.print("".join(lines), soft_wrap=True, end="")
        return
    record = dataclasses.asdict(joined) | {"connected": there}
    if output.answered(options, record, [record]):
        return
    over = "; the run there is over" if joined.over else ""
    word = "connected" if there else "not connected"
    console.out.print(f"{word} to {joined.address} since {utc(joined.since)}{over}", soft_wrap=True)


def _record(progress: Progress, served: ServeStatus | None) -> dict[str, Any]:
    return {
        "round": progress.round,
        "rounds": progress.rounds,
        "finished": progress.finished,
        "served": served is not None and status.runs(served.process),
        "process": None if served is None else served.process,
        "since": None if served is None else served.since,
        "last_heard": None if served is None else served.time,
        "certificate_expires": None if served is None else served.expires,
        "last_round_time": progress.last.get("time"),
        "last_round_seconds": progress.last.get("seconds"),
        "note": progress.last.get("note"),
        "traffic_received": progress.last.get("traffic_received"),
        "traffic_sent": progress.last.get("traffic_sent"),
    }


def _rows(progress: Progress, served: ServeStatus | None) -> list[dict[str, Any]]:
    """Make a row for each client that the server has met or left out."""
    there = served is not None and status.runs(served.process)
    known = {} if served is None else {one.client: one for one in served.clients}
    rows = []
    for client in sorted({*known, *progress.rejected}):
        one = dataclasses.asdict(known.get(client, status.ClientStatus(client)))
        one["connected"] = one["connected"] and there
        rows.append({**one, "rejected": progress.rejected[client]})
    return rows


def _show(
    path: Path, progress: Progress, served: ServeStatus | None, rows: list[dict[str, Any]]
) -> None:
    from fedkl.io.progress import duration

    state = "finished" if progress.finished else "nobody serves it"
    if served is not None and status.runs(served.process):
        state = f"served by process {served.process} since {utc(served.since)}"
    console.out.print(
        f"{path}: round {progress.round} of {progress.rounds}, {state}", soft_wrap=True
    )
    if "time" in progress.last:
        seconds = progress.last.get("seconds") or 0.0
        note = f"; {progress.last['note']}" if progress.last.get("note") else ""
        line = f"last round: {progress.last['time']}, {seconds:.1f} s{note}"
        console.out.print(line, soft_wrap=True)
    if served is not None and served.expires is not None:
        days = (served.expires - time.time()) / 86400
        left = f"in {counted(int(days), 'day')}" if days > 0 else "it has expired"
        line = f"server's certificate: until {utc(served.expires)} ({left})"
        console.out.print(line, soft_wrap=True)
    if not rows:
        return
    now = time.time()
    titles = ("client", "connected", "last seen", "latency", "answers", "failures", "retries",
              "rejected", "last failure")  # fmt: skip
    lines = [
        (
            str(row["client"]),
            "yes" if row["connected"] else "no",
            "never" if row["last_seen"] is None else f"{duration(now - row['last_seen'])} ago",
            "" if row["latency"] is None else f"{row['latency']:.1f} s",
            *(str(row[name]) for name in ("answers", "failures", "retries", "rejected")),
            printable(row["reason"]),
        )
        for row in rows
    ]
    tables.show(Table(titles, lines, words=(1, 8)), console.out)


def exposition(progress: Progress, served: ServeStatus | None) -> str:
    """Write the state of a run as Prometheus reads it, one gauge or counter after the other."""
    there = served is not None and status.runs(served.process)
    rows = _rows(progress, served)
    text = [
        _sample("fedkl_up", int(there or progress.finished), "served, or finished"),
        _sample("fedkl_round", progress.round, "rounds that are finished"),
        _sample("fedkl_rounds", progress.rounds, "rounds in all"),
        _sample("fedkl_round_seconds", progress.last.get("seconds"), "of the last round"),
        _sample(
            "fedkl_rejected", len(progress.last.get("rejected") or ()),
            "clients left out of the last round",
        ),
        _sample(
            "fedkl_clients_connected", sum(row["connected"] for row in rows),
            "clients that are connected",
        ),
        _sample(
            "fedkl_last_heard_timestamp_seconds", None if served is None else served.time,
            "when the server last wrote down how it is doing",
        ),
        _sample(
            "fedkl_certificate_expires_timestamp_seconds",
            None if served is None else served.expires,
            "of the server",
        ),
    ]  # fmt: skip
    for name, key, what in (
        ("fedkl_client_connected", "connected", "whether it is"),
        ("fedkl_client_last_seen_timestamp_seconds", "last_seen", "when it was last seen"),
        ("fedkl_client_latency_seconds", "latency", "from its last request to the answer"),
        ("fedkl_client_answers_total", "answers", "that count"),
        ("fedkl_client_failures_total", "failures", "answers that do not, or none"),
        ("fedkl_client_retries_total", "retries", "how often it was asked again"),
        ("fedkl_client_rejected_total", "rejected", "rounds that it was left out of"),
    ):
        samples = {row["client"]: row[key] for row in rows if row[key] is not None}
        kind = "counter" if name.endswith("_total") else "gauge"
        if samples:
            text.append(f"# HELP {name} {what}\n# TYPE {name} {kind}\n")
        text += [f'{name}{{client="{c}"}} {_number(value)}\n' for c, value in samples.items()]
    return "".join(text)


def _sample(name: str, value: float | None, what: str) -> str:
    """Write one gauge; nothing where it is not known."""
    if value is None:
        return ""
    return f"# HELP {name} {what}\n# TYPE {name} gauge\n{name} {_number(value)}\n"


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))
