"""A connection to Ray, and everything that may be wrong with one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest
from children import python
from waiting import PATIENCE

from fedkl.core.errors import UserError
from fedkl.core.processes import cores
from fedkl.network.ray import connection, nodes
from fedkl.network.ray.connection import RaySettings, connected
from fedkl.network.ray.nodes import Node
from fedkl.network.ray.probe import Access

NODES = (Node("a", "one (10.0.0.1)", 4), Node("b", "two (10.0.0.2)", 8))
LISTENING = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
AT_WORK = """
import sys, time
from fedkl.network.ray.connection import Where, connected
with connected(Where()):
    import ray
    assert ray.get(ray.remote(lambda: 5).remote()) == 5
    sys.stderr.write("there\\n")
    time.sleep(float(sys.argv[1]))
"""


def refusal(where: RaySettings) -> str:
    with pytest.raises(UserError) as caught, connected(where):
        pass
    return str(caught.value)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(connection, "find_spec", lambda name: None)
    assert (
        refusal(RaySettings()) == "a cluster needs Ray; install it with `pip install -e '.[ray]'`"
    )


@pytest.mark.parametrize("address", ["demo", "ray://head:10001", "head", ":6379", "head:ray"])
def test_an_address_is_a_host_and_a_port(address):
    assert refusal(RaySettings(address)) == (
        f"the address of a Ray cluster must be HOST:PORT, not '{address}'"
    )


def test_an_address_that_nobody_listens_on_is_answered_without_a_long_wait():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.monotonic()
    assert refusal(RaySettings(f"127.0.0.1:{port}")).startswith(
        f"no Ray cluster answers at 127.0.0.1:{port}: "
    )
    assert time.monotonic() - start < PATIENCE / 2
    assert "no Ray cluster answers at" in refusal(RaySettings("127.0.0.1:70000"))


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_what_cannot_be_the_name_of_a_host_is_told_in_a_sentence(host):
    assert refusal(RaySettings(f"{host}:6379")).startswith(
        f"no Ray cluster answers at {host}:6379: "
    )


def test_a_cluster_whose_nodes_have_no_cpus_is_told_in_a_sentence(monkeypatch):
    monkeypatch.setattr(connection, "_started", lambda where: contextlib.nullcontext())
    monkeypatch.setattr(connection, "nodes", lambda: ())
    assert refusal(RaySettings()) == "no node of the Ray cluster has a CPU; start some that have"


def asked(monkeypatch: pytest.MonkeyPatch, **answers: Access) -> list[dict[str, str]]:
    """A cluster that answers strangers and those with a token."""
    who: list[dict[str, str]] = []

    def ask(address: str, identity: dict[str, str]) -> Access:
        who.append(identity)
        stranger = identity["RAY_AUTH_MODE"] == "disabled"
        return answers["stranger" if stranger else "token"]

    monkeypatch.setattr(connection, "ask", ask)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return who


def test_a_cluster_without_a_token_is_refused_unless_one_insists(monkeypatch):
    asked(monkeypatch, stranger=Access.ADMITTED)
    with pytest.raises(UserError, match=r"at head:1 has no token: .*or say --insecure-ray$"):
        connection._identity("head:1", insecure=False)
    assert connection._identity("head:1", insecure=True) == {"RAY_AUTH_MODE": "disabled"}


def test_somebody_who_does_not_speak_ray_is_named(monkeypatch):
    asked(monkeypatch, stranger=Access.SILENT)
    with pytest.raises(UserError, match="at head:1 does not answer like a Ray cluster"):
        connection._identity("head:1", insecure=False)


def test_a_token_that_is_missing_is_asked_for(monkeypatch, tmp_path):
    asked(monkeypatch, stranger=Access.REFUSED)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match="wants a token: give it as RAY_AUTH_TOKEN, or a file"):
        connection._identity("head:1", insecure=False)


def test_a_wrong_token_is_told_by_where_it_came_from(monkeypatch, tmp_path):
    who = asked(monkeypatch, stranger=Access.REFUSED, token=Access.REFUSED)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "nonsense")
    with pytest.raises(UserError, match=r"at head:1 refuses the token of RAY_AUTH_TOKEN$"):
        connection._identity("head:1", insecure=False)
    assert who[-1] == {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "nonsense"}
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("nonsense")
    with pytest.raises(UserError, match=r"refuses the token of ~/\.ray/auth_token$"):
        connection._identity("head:1", insecure=False)


def test_a_file_for_the_token_that_is_not_there_is_named(monkeypatch, tmp_path):
    asked(monkeypatch, stranger=Access.REFUSED)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"cannot read .*none: it does not exist"):
        connection._identity("head:1", insecure=False)


@pytest.mark.parametrize("token", [" ", "one\ntwo", "schlüssel", "a\x01b"])
def test_a_token_that_ray_would_abort_at_is_told_by_where_it_came_from(
    monkeypatch, tmp_path, token
):
    asked(monkeypatch, stranger=Access.REFUSED)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(token)
    (tmp_path / "mine").write_text(token)
    expected = "^the token of {} must be one line of ASCII characters$"
    with pytest.raises(UserError, match=expected.format(r"~/\.ray/auth_token")):
        connection._identity("head:1", insecure=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "mine"))
    with pytest.raises(UserError, match=expected.format("RAY_AUTH_TOKEN_PATH")):
        connection._identity("head:1", insecure=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with pytest.raises(UserError, match=expected.format("RAY_AUTH_TOKEN")):
        connection._identity("head:1", insecure=False)


def test_white_space_around_a_token_is_not_part_of_it(monkeypatch, tmp_path):
    asked(monkeypatch, stranger=Access.REFUSED, token=Access.ADMITTED)
    (tmp_path / "mine").write_text(" 0123\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "mine"))
    assert connection._identity("head:1", insecure=False)["RAY_AUTH_MODE"] == "token"


def test_more_actors_than_cpus_are_refused_before_ray_is_started(monkeypatch):
    monkeypatch.setattr(connection, "_initialised", None)  # would be called
    assert refusal(RaySettings(actors=len(cores()) + 1)) == (
        f"{len(cores()) + 1} actors are more than the {len(cores())} CPUs that there are"
    )


def test_other_versions_on_a_node_are_told_with_its_name(monkeypatch):
    ours = {"python": "3.11.4", "fedkl": "0.1.0", "jax": "0.6.0", "numpy": "2.0.0"}
    theirs = [ours, ours | {"jax": "0.7.1"}]
    monkeypatch.setattr(nodes, "versions", lambda: ours)
    monkeypatch.setattr(nodes, "run_on_each", lambda nodes, function, *arguments: theirs)
    with pytest.raises(UserError) as caught:
        nodes.check_versions(NODES)
    assert str(caught.value) == "the node two (10.0.0.2) has jax 0.7.1, and this machine 0.6.0"
    theirs[1] = ours | {"fedkl": None}
    with pytest.raises(UserError) as caught:
        nodes.check_versions(NODES)
    assert (
        str(caught.value) == "the node two (10.0.0.2) lacks fedkl, of which this machine has 0.1.0"
    )
    theirs[1] = ours
    nodes.check_versions(NODES)


def test_a_ray_of_ones_own_has_the_cores_of_the_process_and_its_versions(cluster):
    assert cluster.cpus == len(cores())
    nodes.check_versions(cluster.nodes)


def test_a_task_on_each_node_is_asked_where_it_runs(cluster):
    def node() -> str:
        import ray

        return ray.get_runtime_context().get_node_id()

    assert nodes.run_on_each(cluster.nodes, node) == [node.id for node in cluster.nodes]


def test_a_node_that_is_gone_before_it_was_asked_is_told_in_a_sentence(cluster):
    with pytest.raises(UserError, match=r"^a node died while it was asked"):
        nodes.run_on_each([Node("a" * 56, "gone", 1)], lambda: 5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_ray_starts_ends_the_command_though_ray_loses_it(
    cluster, monkeypatch, number
):
    import ray

    ended = []

    def init(*arguments, **options):
        ray._private.utils.set_sigterm_handler(lambda *_: None)
        with contextlib.suppress(KeyboardInterrupt):  # as of a hook that runs at a fork
            signal.raise_signal(number)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    with pytest.raises(KeyboardInterrupt), connection._initialised("local"):
        ended.append("it went on")
    assert ended == [True]


def test_a_ray_of_ones_own_listens_on_loopback_alone(cluster):
    assert elsewhere(family(os.getpid())) == []


def test_what_ray_keeps_is_closed_to_others(cluster):
    (folder,) = Path("/tmp").glob(f"fedkl-ray-{os.getpid()}-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["ray"]


class FakeNode:
    """Ray's own, as far as one needs it: a raylet that sleeps."""

    def __init__(self):
        self.process = subprocess.Popen(["sleep", "60"])
        self.all_processes = {"raylet": [self]}


@pytest.mark.parametrize("raised", [None, ValueError("an object was lost")])
def test_a_raylet_that_dies_ends_in_a_sentence(cluster, monkeypatch, raised):
    node = FakeNode()
    monkeypatch.setattr("ray._private.worker._global_node", node)
    ended = pytest.raises(UserError, match="Ray's raylet has died")
    with ended, connection.ended_by_signals(), connection._raylet_watched():
        node.process.kill()
        node.process.wait()
        if raised:
            raise raised
        time.sleep(PATIENCE)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_what_else_ends_a_block_is_not_taken_for_the_raylets_death(cluster, monkeypatch, raised):
    node = FakeNode()
    monkeypatch.setattr("ray._private.worker._global_node", node)
    with pytest.raises(raised), connection.ended_by_signals(), connection._raylet_watched():
        raise raised
    node.process.kill()
    node.process.wait()
    time.sleep(0.2)  # nobody is told any more


def test_sigterm_is_heard_like_ctrl_c_while_one_is_connected(cluster):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_a_ray_that_was_imported_otherwise_is_not_joined(cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    with pytest.raises(UserError, match="has imported Ray already"):
        connection._prepare(connection.LOCAL)


# What follows starts and ends Rays of its own.


def family(parent: int) -> list[int]:
    """A process, its children and theirs."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue  # it has ended meanwhile
    found = [parent]
    for one in found:
        found += [child for child, its in parents.items() if its == one]
    return found


def elsewhere(processes: list[int]) -> list[str]:
    """The sockets of these processes that listen off loopback."""
    inodes = set()
    for process in processes:
        try:
            links = [os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {match[1] for link in links if (match := re.match(r"socket:\[(\d+)\]", link))}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[i] for i in (1, 3, 9))
            if state == LISTENING and inode in inodes and local.split(":")[0] not in LOOPBACK:
                found.append(local)
    return found


def alive(processes: list[int]) -> list[int]:
    """Those that still run, and are not only waited for."""
    found = []
    for process in processes:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(process)
    return found


def gone_within(seconds: float, processes: list[int]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not alive(processes):
            return True
        time.sleep(0.5)
    return False


def folders_of(process: subprocess.Popen[str]) -> list[Path]:
    """What Ray keeps for a process."""
    return [*Path("/tmp").glob(f"fedkl-ray-{process.pid}-*")]


def at_work(seconds: float, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python("-c", AT_WORK, seconds),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={n: x for n, x in os.environ.items() if not n.startswith("RAY_")} | {"HOME": str(home)},
    )


@pytest.mark.slow
def test_nothing_listens_off_loopback_at_any_time_and_nothing_is_left_after_the_end(tmp_path):
    process = at_work(2, tmp_path)
    seen, outside = set(), []
    while process.poll() is None:
        members = family(process.pid)
        outside += elsewhere(members)
        seen |= {*members}
        time.sleep(0.05)
    assert len(seen) > 5
    assert outside == []
    out, err = process.communicate()
    assert (process.returncode, out, err) == (0, "", "there\n")
    assert gone_within(5, sorted(seen))
    assert folders_of(process) == []
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_mode & stat.S_IROTH]


@pytest.mark.slow
def test_a_command_whose_raylet_was_killed_says_so(tmp_path):
    with at_work(600, tmp_path) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "there\n"
        members = family(process.pid)
        names = {one: Path(f"/proc/{one}/comm").read_text().strip() for one in members}
        (raylet,) = [one for one, name in names.items() if name == "raylet"]
        os.kill(raylet, signal.SIGKILL)
        process.wait(30)
        last = process.stderr.read().strip().splitlines()[-1]
        assert "Ray's raylet has died (killed, or out of memory)" in last
        assert gone_within(65, members)


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_command_that_a_signal_ended(by, tmp_path):
    with at_work(600, tmp_path) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == "there\n"
        members = family(process.pid)
        process.send_signal(by)
        process.wait(30)
        if by is not signal.SIGKILL:
            assert process.stdout.read() == ""
        # Ray's agents notice after a minute that nobody is there any more.
        assert gone_within(65 if by is signal.SIGKILL else 10, members)
    assert len(folders_of(process)) == (by is signal.SIGKILL)
    for folder in folders_of(process):
        shutil.rmtree(folder)
