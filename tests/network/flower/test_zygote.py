"""A fork runs a command of Flower's; where there is nobody to fork, the command runs as it is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import PATIENCE, runs, until

from fedkl.network.flower import shim, zygote

# Forks a zygote, says its number, and waits.
PARENT = """
import contextlib, os, signal, sys, time
from pathlib import Path
from fedkl.network.flower import zygote

def command():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("ran").write_text(f"{sys.argv} {os.getppid()}")
    print("said by the fork", flush=True)
    while sys.argv[1] == "for ever":
        with contextlib.suppress(BaseException):
            time.sleep(1)
    sys.exit(int(sys.argv[1]))

commands = {"flwr-clientapp": command, "flower-superexec": lambda: sys.stdin.read() and 1 / 0}
folder = Path(sys.argv[1])
print(zygote.start(folder, folder / zygote.LOG, commands, "flower-superexec"), flush=True)
assert not {"jax", "equinox"} & sys.modules.keys()
sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path):
    """A process with a zygote, in a folder whose name is too long for a socket."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT, str(folder)], text=True, **pipes
    ) as process:
        process.folder = folder
        process.zygote = int(process.stdout.readline())
        yield process
        process.kill()


@pytest.fixture
def command(tmp_path):
    """Runs a shim."""

    def run(folder, name, *arguments):
        shims = zygote.write_shims(folder, ["flwr-clientapp", "flower-superexec"], ["flwr-model"])
        return subprocess.run(
            [shims / name, *arguments],
            env={**os.environ, "PATH": str(shims), shim.FULL_PATH: "/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


def test_a_fork_runs_the_command(parent, command):
    assert command(parent.folder, "flwr-clientapp", "7", "--token", "a b'c").stdout == ""
    until((parent.folder / "ran").exists)
    said = ["flwr-clientapp", "7", "--token", "a b'c"]
    until(lambda: (parent.folder / "ran").read_text() == f"{said} {parent.zygote}")
    until(lambda: "said by the fork" in (parent.folder / zygote.LOG).read_text())


def test_without_a_zygote_the_command_runs_as_it_is(parent, command, tmp_path):
    os.kill(parent.zygote, signal.SIGKILL)
    until(lambda: not runs(parent.zygote))
    said = command(parent.folder, "flower-superexec", "--help").stdout
    assert "usage: flower-superexec" in said
    (tmp_path / "empty").mkdir()
    said = command(tmp_path / "empty", "flower-superexec", "--help").stdout
    assert "usage: flower-superexec" in said


def test_without_a_zygote_an_app_is_guarded_all_the_same(monkeypatch, tmp_path):
    became = []
    monkeypatch.setenv(shim.FULL_PATH, "/somewhere")
    monkeypatch.setenv("PATH", "shims")
    monkeypatch.setattr(shim.os, "execv", lambda *command: became.append(command))
    shim.main(str(tmp_path), ["flwr-clientapp", "--token", "t"])
    guarded = ["-P", "-m", "fedkl.network.flower.entry", "flwr-clientapp", "--token", "t"]
    assert became[0] == (sys.executable, [sys.executable, *guarded])
    assert os.environ["PATH"] == "/somewhere"
    monkeypatch.setenv("PATH", "shims")
    shim.main(str(tmp_path), ["flower-superexec"])
    assert became[1][1][-2:] == ["fedkl.network.flower.entry", "flower-superexec"]
    assert os.environ["PATH"] == "shims"


def test_what_is_none_of_ours_fails(command, tmp_path):
    done = command(tmp_path, "flwr-model", "x")
    assert (done.returncode, done.stdout) == (1, "fedkl: flwr-model was not run\n")


def test_one_who_does_not_take_the_arguments_is_no_zygote(parent):
    assert not shim.hand_over(str(parent.folder), ["rm", "-r"])
    assert not shim.hand_over(str(parent.folder), [])
    assert shim.hand_over(str(parent.folder), ["flwr-clientapp", "0"])


@pytest.mark.parametrize("said", [b"", b"\xff" * 8, b"\0" * 7 + b"\2{}", b"\0" * 7 + b"\1x"])
def test_noise_does_not_end_the_zygote(parent, said, monkeypatch):
    monkeypatch.chdir(parent.folder)
    with shim.socket.socket(shim.socket.AF_UNIX) as connection:
        connection.connect(shim.SOCKET)
        connection.sendall(said)
    assert shim.hand_over(".", ["flwr-clientapp", "0"])


def test_a_zygote_ends_with_its_parent(parent):
    assert runs(parent.zygote)
    parent.kill()
    parent.wait()
    until(lambda: not runs(parent.zygote))


@pytest.mark.skipif(sys.platform != "linux", reason="only there the kernel ends children")
def test_a_command_ends_with_its_zygote_whatever_it_does(parent):
    assert shim.hand_over(str(parent.folder), ["flwr-clientapp", "for ever"])
    until((parent.folder / "ran").exists)
    children = Path(f"/proc/{parent.zygote}/task/{parent.zygote}/children").read_text().split()
    assert len(children) == 1
    assert runs(children[0])
    parent.kill()
    parent.wait()
    until(lambda: not runs(children[0]))


def test_the_end_of_what_the_parent_cannot_do_without_is_its_own(parent):
    assert shim.hand_over(str(parent.folder), ["flwr-clientapp", "0"])
    until((parent.folder / "ran").exists)
    time.sleep(0.1)
    assert parent.poll() is None
    children = Path(f"/proc/{parent.zygote}/task/{parent.zygote}/children")
    assert shim.hand_over(str(parent.folder), ["flower-superexec"])
    for number in children.read_text().split():
        os.kill(int(number), signal.SIGKILL)
    assert parent.wait(PATIENCE) == -signal.SIGTERM


def test_a_shim_is_not_for_others(tmp_path):
    shims = zygote.write_shims(tmp_path, ["flwr-clientapp"])
    assert (shims / "flwr-clientapp").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in shims.iterdir()] == ["flwr-clientapp"]
