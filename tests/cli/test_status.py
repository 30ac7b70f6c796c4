"""How a federation is doing, as an operator asks for it."""

import json
import os
import re
import time

import pytest
from commands import call
from finished_runs import finish

from fedkl.network import status
from fedkl.network.status import FleetStatus, JoinStatus, write_join_status
from fedkl.training.directory import RunDirectory

SERVED = """host = "127.0.0.1"
port = 9092
keys = ""
local = 0
attached = false
wait = 1.0
federation = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
"""


def record(round, **more):
    return {"round": round, "rejected": [], "note": None, "seconds": 2.5, **more}


@pytest.fixture
def run(tmp_path):
    """A run with two rounds, which this process serves."""
    run = RunDirectory.create(tmp_path / "run", {"federation": {"rounds": 5}})
    (run.path / "serving.toml").write_text(SERVED)
    (run.path / "flower").mkdir(0o700)
    with run.lock():
        run.metrics.append(record(1))
        left_out = [{"client": 2, "reason": "it lied"}]
        run.metrics.append(record(2, rejected=left_out, time="2026-01-02T03:04:05Z"))
    return run.path


@pytest.fixture
def fleet(run):
    fleet = FleetStatus(run / "flower" / status.FILE)
    fleet.expires = time.time() + 20.5 * 86400
    fleet.connected({0, 1})
    fleet.connected({0})
    fleet.asked(2)
    fleet.answered(0, 1.25)
    fleet.failed(1, "it did not\x1b[2J answer")
    fleet.retried(1)
    fleet._written = 0.0
    fleet.write()
    return fleet


def test_a_person_sees_who_is_connected_and_who_fails(run, fleet, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = call(capsys, "status", run)
    assert (code, err) == (0, "")
    assert f"run: round 2 of 5, served by process {os.getpid()} since 20" in out
    assert "last round: 2026-01-02T03:04:05Z, 2.5 s" in out
    assert "(in 20 days)" in out
    lines = [re.split(r"  +", line.strip()) for line in out.splitlines()]
    assert ["0", "yes", "0:00:00 ago", "1.2 s", "1", "0", "0", "0"] in lines
    assert ["2", "no", "never", "0", "0", "0", "1"] in lines
    assert "\x1b" not in out
    assert "not\\x1b[2J" in out


def test_a_machine_reads_the_same(run, fleet, capsys):
    code, out, _ = call(capsys, "status", run, "--json")
    found = json.loads(out)
    assert (code, found["served"], found["round"], found["rounds"]) == (0, True, 2, 5)
    assert [row["connected"] for row in found["clients"]] == [True, False, False]
    assert found["clients"][1]["retries"] == 1
    assert found["clients"][2]["rejected"] == 1
    code, out, _ = call(capsys, "status", run, "--csv")
    assert out.splitlines()[0].startswith("client,connected,last_seen,latency,answers,failures")


def test_prometheus_reads_it_line_by_line(run, fleet, capsys):
    code, out, _ = call(capsys, "status", run, "--prometheus")
    assert code == 0
    sample = re.compile(r'[a-z_]+(\{client="\d+"\})? [0-9.e+-]+')
    for line in out.splitlines():
        assert line.startswith("# ") or sample.fullmatch(line), line
    assert "\nfedkl_round 2\n" in out
    assert "\nfedkl_clients_connected 1\n" in out
    assert '\nfedkl_client_failures_total{client="1"} 1\n' in out
    names = re.findall(r"^# TYPE (\S+)", out, re.M)
    assert len(names) == len({*names}) > 10


def test_a_health_check_is_passed_by_who_serves_and_by_what_is_finished(run, fleet, capsys):
    assert call(capsys, "status", run, "--check")[0] == 0
    code, _, err = call(capsys, "status", run, "--check", "--max-age", "1e-9")
    assert (code, "was last heard of 0:00:0" in err) == (2, True)
    fleet.write(over=True)
    code, _, err = call(capsys, "status", run, "--check")
    assert (code, err) == (2, f"fedkl: nobody serves {run}\n")
    assert "nobody serves it" in call(capsys, "status", run)[1]
    code, _, err = call(capsys, "status", run, "--max-age", 0)
    assert (code, "--max-age must be a number of seconds above 0" in err) == (2, True)


def test_a_run_that_nobody_has_served_yet_is_told_so(run, capsys):
    code, out, _ = call(capsys, "status", run)
    assert (code, "nobody serves it" in out) == (0, True)
    assert call(capsys, "status", run, "--check")[0] == 2


def test_a_finished_run_is_well(tmp_path, capsys):
    run = finish(tmp_path / "run")
    (run.path / "serving.toml").write_text(SERVED)
    code, out, _ = call(capsys, "status", run.path, "--check")
    assert (code, "finished" in out) == (0, True)


def test_what_is_not_served_or_no_run_is_said(run, tmp_path, capsys):
    (run / "serving.toml").unlink()
    code, _, err = call(capsys, "status", run)
    assert (code, "is not served over a network" in err) == (2, True)
    code, _, err = call(capsys, "status", tmp_path)
    assert (code, err.count("\n")) == (2, 1)


def test_a_client_says_whether_it_is_connected(tmp_path, capsys):
    ours = os.getpid()

    def written(connected, process=ours):
        joined = JoinStatus(time.time(), process, 1e9, connected, "host:1", False)
        write_join_status(tmp_path / status.FILE, joined)

    written(True)
    code, out, _ = call(capsys, "status", tmp_path, "--check")
    assert (code, out) == (0, "connected to host:1 since 2001-09-09T01:46:40Z\n")
    assert "fedkl_connected 1\n" in call(capsys, "status", tmp_path, "--prometheus")[1]
    assert json.loads(call(capsys, "status", tmp_path, "--json")[1])["connected"]
    written(False)
    code, _, err = call(capsys, "status", tmp_path, "--check")
    assert (code, err) == (2, f"fedkl: {tmp_path} is not connected to host:1\n")
    written(True, process=None)
    code, _, err = call(capsys, "status", tmp_path, "--check")
    assert (code, "does not run" in err) == (2, True)
