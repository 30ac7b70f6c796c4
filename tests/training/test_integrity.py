"""A log that was tampered with, a lock that was lost: found before anything else is written."""

import fcntl
import os

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.io import strict_json
from fedkl.io.locks import last_saved
from fedkl.training import metrics
from fedkl.training.directory import RunDirectory
from fedkl.training.metrics import MetricsLog


@pytest.fixture
def log(tmp_path) -> MetricsLog:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for round in range(1, 6):
        log.append({"round": round, "return_mean": -1.5 * round})
    return log


def lines_of(log):
    return log.path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], "line 3 .*does not fit its checksum"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2 .*does not fit"),
        (lambda lines: [*lines[:1], *lines[2:]], "line 2 .*does not fit"),
        (lambda lines: [*lines[:3], lines[3].replace(b"-6.0", b"-5.0"), lines[4]], "line 4 "),
        (lambda lines: [b'{"round": 1}\n', *lines[1:]], "line 2 .*does not fit"),
        (lambda lines: [*lines, b'{"round": 6}\n'], "line 6 .*carries no checksum"),
        (lambda lines: lines[1:], "line 1 .*does not fit"),
    ],
    ids=["repeated", "reordered", "removed", "edited", "bare", "added", "beheaded"],
)
def test_a_log_that_was_changed_is_found(log, change, sentence):
    log.path.write_bytes(b"".join(change(lines_of(log))))
    before = log.path.read_bytes()
    for action in (log.read, lambda: log.truncate_after(2)):
        with pytest.raises(UserError, match=sentence):
            action()
    assert log.path.read_bytes() == before


def test_every_flip_of_a_bit_is_found_or_is_a_torn_last_line(log):
    whole, records = log.path.read_bytes(), log.read()
    last = len(whole) - len(lines_of(log)[-1])
    for position in range(len(whole)):
        data = bytearray(whole)
        data[position] ^= 1 << position % 8
        log.path.write_bytes(bytes(data))
        try:
            found = log.read()
        except UserError:
            continue
        assert position >= last - 1
        assert found in (records[:-1], records[:-2])


def test_two_who_write_at_once_are_found(log):
    """Each adds to what there is, so the checksums fit; but rounds are there twice."""
    log.append({"round": 5})
    log.append({"round": 6})
    assert len(log.read()) == 7
    with pytest.raises(UserError, match=r"line 6 of .* is of round 5, .*two processes"):
        log.require_rounds()


@pytest.mark.parametrize("round", [True, 6.0, "6", None, 7, 5])
def test_a_round_is_the_next_whole_number(log, round):
    log.append({"round": round})
    with pytest.raises(UserError, match="line 6"):
        log.require_rounds()


def test_a_log_belongs_to_its_checkpoint(log):
    told = [line.content_digest for line in log.lines()]
    assert log.require_rounds(3, told[2]) == 5
    with pytest.raises(UserError, match="is not the log that the checkpoint of round 3"):
        log.require_rounds(3, told[1])
    with pytest.raises(UserError, match="it ends after round 5"):
        log.require_rounds(6)


def test_what_a_log_tells_does_not_depend_on_time_or_on_what_was_lost_on_the_way(tmp_path):
    logs = [MetricsLog(tmp_path / name) for name in "abc"]
    for log, seconds, value in zip(logs, (1.5, 2.25, 1.5), (1, 1, 2), strict=True):
        again = [{"client": 3, "reason": f'its "connection" \\ [}}], {seconds}'}] * int(seconds)
        measured = {"seconds": seconds, "actors_replaced": seconds, "time": f"{seconds}, at noon"}
        measured |= {"traffic_received": int(seconds), "traffic_sent": 4}
        for round in (1, 2):
            log.append({"round": round, "retried": again, "value": value, **measured})
    first, second, third = ([line.content_digest for line in log.lines()] for log in logs)
    assert first == second
    assert not {*first} & {*third}
    assert first[1] == metrics.content_digest(first[0], {"round": 2, "value": 1})
    heads = [[line.head for line in log.lines()] for log in logs]
    assert heads[0] != heads[1]


def test_a_log_that_was_begun_without_checksums_continues_with_them(tmp_path):
    log = MetricsLog(tmp_path / "log")
    log.path.write_bytes(b'{"round": 1}\n{"round": 2}\n')
    log.append({"round": 3})
    assert log.read() == [{"round": 1}, {"round": 2}, {"round": 3}]
    assert [line.sealed for line in log.lines()] == [False, False, True]
    log.path.write_bytes(log.path.read_bytes().replace(b'{"round": 2}', b'{"round": 9}'))
    with pytest.raises(UserError, match="line 3"):
        log.read()


def test_the_log_stays_plain_json(log):
    import json

    for number, line in enumerate(lines_of(log), start=1):
        assert json.loads(line)["round"] == number


def test_a_summary_that_was_edited_is_found(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"a": 1})
    run.write_summary({"rounds": 3, "return_mean": -0.5})
    path = run.path / "summary.json"
    path.write_text(path.read_text().replace("-0.5", "-0.4"))
    with pytest.raises(UserError, match=r"does not fit its checksum.*`fedkl resume .*` writes it"):
        run.summary()


def test_another_file_in_the_place_of_a_summary_is_found(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"a": 1})
    (run.path / "summary.json").write_bytes(strict_json.encode_sealed({"observation_size": 3}))
    with pytest.raises(UserError, match=r"summary\.json is another file: it has no rounds"):
        run.summary()


def test_a_process_that_lost_its_lock_notices_before_it_writes(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"a": 1})
    with run.lock() as lock:
        lock.require()
        os.unlink(run.path / ".lock")
        with pytest.raises(UserError, match="was removed while it was held"):
            lock.require()
        with RunDirectory.open(run.path).lock() as second:
            with pytest.raises(UserError, match="another process may write"):
                lock.require()
            second.require()


def test_a_lock_remembers_the_last_checkpoint(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"a": 1})
    with run.lock() as lock:
        assert last_saved(run.path) is None
        lock.note(12)
    assert last_saved(run.path) == 12
    with run.lock():
        assert last_saved(run.path) == 12
        assert (run.path / ".lock").read_text() == f"{os.getpid()}\n12\n"
    for text in ("", "x", "1\nx\n", "1\n²\n", "\x00" * 100):
        (run.path / ".lock").write_text(text)
        with run.lock():
            assert last_saved(run.path) is None


def test_nothing_is_written_to_a_run_whose_lock_was_lost(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"a": 1})
    with run.lock():
        for round in (1, 2):
            run.metrics.append({"round": round})
            run.checkpoints.save(round, {"x": np.ones(1)})
            run.best.save(round, {"x": np.ones(1)})
        os.unlink(run.path / ".lock")
        before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
        for write in (
            lambda: run.metrics.append({"round": 3}),
            lambda: run.metrics.truncate_after(1),
            lambda: run.checkpoints.save(3, {"x": np.ones(1)}),
            lambda: run.best.drop_after(1),
            lambda: run.replace_config({"a": 2}),
            lambda: run.write_clients({"gravity": np.ones(2)}),
            lambda: run.write_returns(1, np.ones(2)),
            lambda: run.write_summary({"rounds": 2}),
        ):
            with pytest.raises(UserError, match="was removed while it was held"):
                write()
        after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
        assert after == before
    run.metrics.append({"round": 3})  # whoever holds none is not asked for it


def test_a_lock_that_is_removed_before_it_is_taken_is_not_held(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", {"a": 1})
    take = fcntl.flock

    def slowly(descriptor, how):
        os.unlink(run.path / ".lock")
        take(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", slowly)
    with pytest.raises(UserError, match="another process may write"), run.lock():
        pass
    monkeypatch.undo()
    with run.lock() as lock:
        lock.require()


def test_a_sealed_file_without_its_end_is_damaged():
    whole = strict_json.encode_sealed({"rounds": 3})
    assert strict_json.decode_sealed(whole, "rounds") == {"rounds": 3}
    with pytest.raises(ValueError, match="cut off"):
        strict_json.decode_sealed(whole[:-1], "rounds")


def test_no_flipped_bit_of_a_sealed_file_is_passed_over():
    whole = strict_json.encode_sealed({"rounds": 3, "log": "ab", "versions": {"fedkl": "0.1.0"}})
    for position in range(8 * len(whole)):
        data = bytearray(whole)
        data[position // 8] ^= 1 << position % 8
        with pytest.raises(ValueError, match=r"valid JSON|checksum|cut off|another file"):
            strict_json.decode_sealed(bytes(data), "rounds")
