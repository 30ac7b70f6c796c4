"""Training from Python: a run directory, callbacks, and nothing left of what cannot work."""

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from commands import call

import fedkl
from fedkl.training.directory import SERVING, RunDirectory


class Heard(fedkl.Callback):
    def __init__(self, stop_after=None):
        self.rounds, self.ends, self.stop_after = [], [], stop_after

    def on_round(self, record):
        self.rounds.append(record["round"])
        if record["round"] == self.stop_after:
            raise KeyboardInterrupt

    def on_end(self, summary):
        self.ends.append(summary)


def test_a_run_is_trained_resumed_read_and_loaded(tiny, tmp_path):
    heard = Heard(stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        fedkl.train(tiny(), tmp_path / "run", [heard])
    assert (heard.rounds, heard.ends) == ([1, 2], [None])
    assert fedkl.load(tmp_path / "run").round == 2
    again = Heard()
    assert fedkl.resume(str(tmp_path / "run"), callbacks=[again]) == tmp_path / "run"
    assert again.rounds == [3]
    (summary,) = again.ends
    assert summary["rounds"] == 3
    assert [record["round"] for record in fedkl.records(tmp_path / "run")] == [1, 2, 3]
    assert fedkl.load(tmp_path / "run").round == 3


def test_a_run_stops_where_it_is_told_and_is_the_same_as_that_of_the_command(tiny, tmp_path):
    path = fedkl.train(tiny(), tmp_path / "whole")
    stopped = Heard(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        fedkl.train(tiny(), tmp_path / "parts", [stopped])
    until = Heard()
    fedkl.resume(tmp_path / "parts", [until], until=2)
    assert (until.rounds, until.ends) == ([2], [None])
    subprocess.run(
        [sys.executable, "-m", "fedkl", "resume", str(tmp_path / "parts")],
        check=True, timeout=300, capture_output=True,
    )  # fmt: skip
    whole, parts = fedkl.records(path), fedkl.records(tmp_path / "parts")
    for ours, theirs in zip(whole, parts, strict=True):
        measured = {"seconds": 0, "time": ""}
        assert ours | measured == theirs | measured


def test_what_cannot_be_trained_leaves_nothing_behind(tiny, tmp_path):
    class Fails(fedkl.Callback):
        def on_start(self, run, config):
            raise fedkl.UserError("no connection")

    with pytest.raises(fedkl.UserError, match="no connection"):
        fedkl.train(tiny(), tmp_path / "run", [Fails()])
    with pytest.raises(
        fedkl.UserError, match=r"config must be a preset, a file or what fedkl\.pre"
    ):
        fedkl.train({"preset": "demo"}, tmp_path / "run")
    with pytest.raises(fedkl.UserError, match=r"did you mean probe-point\?"):
        fedkl.train("probe-pont", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_preset_or_a_file_is_trained_by_its_name(tmp_path):
    file = tmp_path / "short.toml"
    file.write_text('extends = ["probe-point"]\nfederation.rounds = 1\n')
    fedkl.train(file, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        fedkl.train("probe-point", tmp_path / "named", [Heard(stop_after=1)])
    made = [RunDirectory(tmp_path / name).config() for name in ("run", "named")]
    assert [config["preset"] for config in made] == [str(file), "probe-point"]


def test_a_directory_that_holds_a_run_is_left_alone(tiny, tmp_path):
    RunDirectory.create(tmp_path / "run", {})
    with pytest.raises(fedkl.UserError, match="holds a run already"):
        fedkl.train(tiny(), tmp_path / "run")


def test_a_run_of_a_network_is_not_resumed_here(tiny, tmp_path):
    RunDirectory.create(tmp_path / "run", {})
    (tmp_path / "run" / SERVING).write_text("")
    with pytest.raises(fedkl.UserError, match="is served over a network"):
        fedkl.resume(tmp_path / "run")


def test_a_federation_uses_the_compilation_cache_without_being_asked(tmp_path):
    program = (
        "import fedkl, jax\n"
        "given = jax.config.jax_compilation_cache_dir\n"
        "fedkl.Federation(fedkl.preset('probe-point'))\n"
        "print(given, jax.config.jax_compilation_cache_dir)\n"
        "jax.config.update('jax_compilation_cache_dir', 'mine')\n"
        "from fedkl.io.compilation import enable_cache; enable_cache()\n"
        "print(jax.config.jax_compilation_cache_dir)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"None {tmp_path / 'fedkl'}", "mine"]


def test_a_finished_run_is_trained_longer_and_nobody_is_told_what_they_asked_for(tiny, tmp_path):
    path = fedkl.train(tiny(), tmp_path / "run")
    heard = Heard()
    fedkl.resume(path, [heard], rounds=4)  # a warning would be an error
    assert heard.rounds == [4]
    with pytest.raises(fedkl.UserError, match=r"^rounds must be at least 4, which .* has, not 3$"):
        fedkl.resume(path, rounds=3)


class Duck:
    def on_round(self, record):
        """The only hook it has."""


@pytest.mark.parametrize(
    ("callbacks", "said"),
    [
        ([3], r"a callback must be an object of what derives from fedkl\.Callback, not 3"),
        ([Duck()], r"a callback must be an object of what derives from fedkl\.Callback, not <"),
        ([Heard], r"a callback must be an object of what derives from fedkl\.Callback, not <class"),
        (print, r"callbacks must be a list of what derives from fedkl\.Callback, not <built-in"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_written(tiny, tmp_path, callbacks, said):
    with pytest.raises(fedkl.UserError, match=said):
        fedkl.train(tiny(), tmp_path / "run", callbacks)
    assert list(tmp_path.iterdir()) == []
    RunDirectory.create(tmp_path / "run", tiny().mapping())
    with pytest.raises(fedkl.UserError, match=said):
        fedkl.resume(tmp_path / "run", callbacks)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"until": 0}, "until must be a whole number from 1 on, not 0"),
        ({"until": "2"}, "until must be a whole number from 1 on, not '2'"),
        ({"rounds": 2.5}, "rounds must be a whole number from 1 on, not 2.5"),
    ],
)
def test_rounds_that_are_no_numbers_are_refused(tiny, tmp_path, given, said):
    RunDirectory.create(tmp_path / "run", tiny().mapping())
    with pytest.raises(fedkl.UserError, match=said):
        fedkl.resume(tmp_path / "run", **given)


@pytest.mark.parametrize("call", [fedkl.load, fedkl.resume, fedkl.records])
def test_what_is_no_path_is_no_run(call):
    with pytest.raises(fedkl.UserError, match="must be the path of a run's directory, not None"):
        call(None)


@pytest.mark.parametrize("writes", range(4))
def test_a_full_disk_leaves_nothing_of_a_run_that_has_not_begun(
    tiny, tmp_path, monkeypatch, writes
):
    """Lock, config, table of clients, spaces."""
    written, write = [], os.write

    def full(descriptor, data):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(str(tmp_path)):
            written.append(path)
            if len(written) > writes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(fedkl.UserError, match="the disk is full"):
        fedkl.train(tiny(world__spread=0.1), tmp_path / "runs" / "one")
    assert len(written) == writes + 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_evaluated_as_by_the_command(tiny, tmp_path, capsys):
    run = fedkl.train(tiny(checkpoint__keep_best=True), tmp_path / "run")
    found = fedkl.evaluate(run, 3, deterministic=True, best=True)
    arguments = ["evaluate", run, "--episodes", 3, "--deterministic", "--best", "--json"]
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    assert found == json.loads(out)
    assert RunDirectory(run).metrics.count() == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"episodes": 0}, "episodes must be a whole number from 1 on"),
        ({"episodes": "ten"}, "episodes must be a whole number"),
        ({"client": 1}, "needs --video"),
        ({"video": 3}, "a file must be given by its path, not by 3"),
        ({"video": "film.avi"}, "film.avi"),
        ({"video": "film.gif"}, "the world probe-point cannot be drawn"),
        ({"best": True}, "keep_best"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_a_sentence(trained, given, said):
    with pytest.raises(fedkl.UserError, match=said):
        fedkl.evaluate(trained, **given)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config = fedkl.preset("probe-point", set=SMALL)
    return fedkl.train(config, tmp_path_factory.mktemp("trained") / "run")


SMALL = {"federation.rounds": 1, "learner.iterations": 1, "learner.epochs": 1, "learner.steps": 64}


def test_a_policy_is_exported_from_a_run_or_from_memory(trained, tmp_path, capsys):
    policy = fedkl.export(trained, tmp_path / "a.npz")
    assert policy.round == 1
    fedkl.export(fedkl.load(trained), str(tmp_path / "b.npz"))
    code, out, _ = call(capsys, "export", trained, tmp_path / "c.npz")
    assert (code, out) == (0, f"policy after round 1: {tmp_path / 'c.npz'}\n")
    arrays = [dict(np.load(tmp_path / f"{name}.npz")) for name in "abc"]
    for name in arrays[0]:
        assert all(np.array_equal(other[name], arrays[0][name]) for other in arrays)
    with pytest.raises(fedkl.UserError, match="give its path"):
        fedkl.export(policy, tmp_path / "d.npz", best=True)


def test_arrays_are_exported_where_onnx_is_not_installed(trained, tmp_path):
    program = "import sys; sys.modules['onnx'] = None; import fedkl; fedkl.export(*sys.argv[1:])"
    command = [sys.executable, "-c", program, str(trained)]
    subprocess.run([*command, str(tmp_path / "a.npz")], check=True, timeout=100)
    done = subprocess.run(
        [*command, str(tmp_path / "a.onnx")], check=False, capture_output=True, timeout=100
    )
    assert b"an ONNX file needs the package onnx" in done.stderr


@pytest.mark.parametrize(("progress", "lines"), [(None, 0), (False, 0), (True, 3)])
def test_rounds_are_shown_where_somebody_asks_for_them(tiny, tmp_path, capsys, progress, lines):
    fedkl.train(tiny(), tmp_path / "run", progress=progress)
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == lines
    assert not lines or err.startswith("round 1/3  return ")


def test_rounds_are_shown_on_a_terminal(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    shown = []
    monkeypatch.setattr(
        "fedkl.io.progress.RoundProgress.show", lambda self, record: shown.append(record["round"])
    )
    fedkl.train(tiny(), tmp_path / "run")
    fedkl.resume(tmp_path / "run", rounds=4)
    fedkl.resume(tmp_path / "run", rounds=5, progress=False)
    assert shown == [1, 2, 3, 4]
