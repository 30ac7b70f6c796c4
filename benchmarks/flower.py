"""What the network costs: a round with warm clients on loopback, beside one in this process, and
beside a plain Flower app whose clients import JAX anew for every message (examples/flower).

All three train the same clients with the same settings, without evaluation, on the same cores; what
a round takes longer than in this process is the overhead. Compiled code is shared by all. See
README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w
from measuring import emit, machine, spread, tree_cpu

import fedkl
from fedkl import Federation
from fedkl.config.config import Config, parse_assignment
from fedkl.core.errors import UserError
from fedkl.io.compilation import enable_cache
from fedkl.io.user_folders import cache_folder

try:
    from fedkl.network import keys
except UserError as error:
    raise SystemExit(str(error)) from error

from fedkl.network.flower.engine import Flower, Screen
from fedkl.network.flower.environment import flower_environment
from fedkl.network.flower.fleet import Fleet
from fedkl.network.flower.relay_client import NodeAnswer, NodeMessage, Transport
from fedkl.network.flower.superlink import SuperLink
from fedkl.network.flower.supervisor import LocalClients, local_nodes
from fedkl.network.messages import new_federation
from fedkl.network.signatures import Signer

EXAMPLE = Path(__file__).parents[1] / "examples" / "flower"
HOST = "127.0.0.1"
PATIENCE = 120.0
"""Seconds for anything of Flower's to come up, and for a round."""
LIMIT_SECONDS, LIMIT_SHARE = 5.0, 0.5
"""What the overhead may be on a quiet machine, and as a share of the plain app's."""


def settings_of(clients: int, rounds: int, given: dict[str, Any]) -> dict[str, Any]:
    """The first round starts everything; the last is always evaluated, and is never reached."""
    return {
        "federation.clients": clients,
        "federation.clients_per_round": clients,
        "federation.rounds": rounds + 2,
        "evaluation.every": 1_000_000,
        **given,
    }


def in_process(config: Config, rounds: int) -> list[float]:
    """Seconds of each round in this process."""
    federation = Federation(config)
    federation.run_round()
    return [federation.run_round()["seconds"] for _ in range(rounds)]


class Timed:
    """A transport that remembers when it was asked."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.push_begins = self.push_ends = self.last_answer = 0.0

    def nodes(self) -> dict[int, bytes]:
        return self._transport.nodes()

    def push(self, messages: Sequence[NodeMessage]) -> list[str]:
        self.push_begins = time.perf_counter()
        ids = self._transport.push(messages)
        self.push_ends = time.perf_counter()
        return ids

    def pull(self, ids: Mapping[str, int]) -> list[NodeAnswer]:
        answers = self._transport.pull(ids)
        if answers:
            self.last_answer = time.perf_counter()
        return answers

    def close(self) -> None:
        self._transport.close()


def over_network(config: Config, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round with warm clients on loopback, with TLS and keys, part by part."""
    names = ("round", "round_cpu", "before", "push", "waiting", "after", "empty_message")
    parts: dict[str, list[float]] = {name: [] for name in names}
    with served(config) as (federation, fleet, transport, signer):
        federation.run_round()
        for _ in range(rounds):
            cpu, begins = tree_cpu(), time.perf_counter()
            record = federation.run_round()
            ends = time.perf_counter()
            parts["round_cpu"].append(tree_cpu() - cpu)
            assert not record["rejected"], record["rejected"]
            moments = (
                begins, transport.push_begins, transport.push_ends, transport.last_answer, ends,
            )  # fmt: skip
            parts["round"].append(record["seconds"])
            for i, name in enumerate(("before", "push", "waiting", "after")):
                parts[name].append(moments[i + 1] - moments[i])
        for _ in range(rounds):
            parts["empty_message"].append(_there_and_back(fleet, signer))
    return parts


@contextlib.contextmanager
def served(config: Config) -> Iterator[tuple[Federation, Fleet, Timed, Signer]]:
    """A federation whose clients are processes of this machine, as `fedkl serve --local` has it."""
    clients = config.federation.clients
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "flower"
        keys.make(folder / "keys", clients)
        link = SuperLink(folder, HOST, _free_port(), folder / "keys")
        stack.callback(link.stop)
        transports: list[Timed] = []

        def connect() -> Timed:
            transports.append(Timed(link.connect()))
            return transports[-1]

        screen = Screen(lambda line: None, lambda text: None)
        engine = Flower(config, new_federation(), PATIENCE, screen)
        engine.signer = Signer(folder / "keys")
        engine.traffic = link.traffic
        owners = keys.public_keys(folder / "keys")
        fleet = Fleet(connect, owners, lambda line: None, engine.greet)
        stack.callback(engine.close)
        nodes = local_nodes(link.address, folder, folder / "keys", clients, ())
        local = LocalClients(nodes, lambda line: print(line, file=sys.stderr))
        stack.callback(local.stop)
        local.start()
        engine.start(fleet)
        yield Federation(config, engine), fleet, transports[-1], engine.signer


def _there_and_back(fleet: Fleet, signer: Signer) -> float:
    """Seconds until each client has answered a message that asks for nothing."""
    nodes = fleet.connected().items()
    begins = time.perf_counter()
    messages = [NodeMessage(node, signer.sign(client, b""), PATIENCE) for client, node in nodes]
    waiting = set(fleet.push(messages))
    while waiting:
        waiting -= {answer.id for answer in fleet.pull(dict.fromkeys(waiting, 0))}
        time.sleep(0.05)
        assert time.perf_counter() - begins < PATIENCE, "no answer"
    return time.perf_counter() - begins


def idle(config: Config, seconds: float) -> dict[str, float]:
    """Bytes that a client that waits sends and is sent in a day, by how long it has waited, and
    beside it those of a round."""
    found = {}
    with served(config) as (federation, *_):
        federation.run_round()
        moments = [_crossed(federation)]
        federation.run_round()
        moments.append(_crossed(federation))
        for part in (0.2, 0.8):
            time.sleep(part * seconds)
            moments.append(_crossed(federation))
    clients = config.federation.clients
    first, second, third, fourth = moments
    found["round"] = (second - first) / clients
    found["a_day_at_first"] = (third - second) / clients / (0.2 * seconds) * 86400
    found["a_day_later"] = (fourth - third) / clients / (0.8 * seconds) * 86400
    return found


def _crossed(federation: Federation) -> int:
    report = federation.engine.report()
    return report["traffic_received"] + report["traffic_sent"]


def plain(preset: str, settings: dict[str, Any], rounds: int) -> list[float]:
    """Seconds of each round of the plain Flower app, with SuperNodes on loopback."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        app, port = folder / "app", _free_port()
        shutil.copytree(EXAMPLE, app)
        text = (app / "pyproject.toml").read_text(encoding="utf-8")
        table = {"preset": preset, "algorithm": "fedkl", "seed": 0, **_nested(settings)}
        begins = text.index("[tool.flwr.app.config]")
        own = tomli_w.dumps({"tool": {"flwr": {"app": {"config": table}}}})
        (app / "pyproject.toml").write_text(text[:begins] + own, encoding="utf-8")
        connection = {"address": f"{HOST}:{port}", "insecure": True}
        told = {"superlink": {"default": "here", "here": connection}}
        (folder / "config.toml").write_text(tomli_w.dumps(told), encoding="utf-8")
        environment = flower_environment(folder) | {
            "JAX_COMPILATION_CACHE_DIR": str(cache_folder()),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

        def start(name: str, *command: str) -> subprocess.Popen[bytes]:
            program = Path(sys.executable).with_name(command[0])
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [program, *command[1:]], cwd=folder, env=environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
            return process

        here = ("--insecure", "--host", HOST)
        without = "--disable-runtime-dependency-installation"
        start("link", "flower-superlink", *here, "--port", str(port), without)
        _wait_for(port)
        for number in range(settings["federation.clients"]):
            where = ("--superlink", f"{HOST}:{port}", "--port", str(_free_port()))
            state = ("--node-config", f'state="states-{number}"')
            start(f"node-{number}", "flower-supernode", *here, *where, *state)
        start("run", "flwr", "run", str(app), "here", "--stream")
        return _rounds_in(folder / "run.log", rounds)


def _rounds_in(log: Path, rounds: int) -> list[float]:
    """Seconds of each round but the first, as the app prints them."""
    ends = time.monotonic() + PATIENCE * (rounds + 2)
    while time.monotonic() < ends:
        text = log.read_text(encoding="utf-8", errors="replace")
        found = re.findall(r"^round \d+: .* ([\d.]+) s, (.*)$", text, re.MULTILINE)
        if len(found) > rounds:
            assert all(rejected == "[]" for _, rejected in found), found
            return [float(seconds) for seconds, _ in found][1 : rounds + 1]
        time.sleep(1)
    raise TimeoutError(f"the plain app did not get through {rounds + 1} rounds:\n{text}")


def _wait_for(port: int) -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, port), 1.0).close()
            return
        time.sleep(0.2)
    raise TimeoutError("Flower's server did not come up")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def _nested(settings: dict[str, Any]) -> dict[str, Any]:
    """Flower takes no key with a dot in it, and makes one of nested tables."""
    result: dict[str, Any] = {}
    for name, value in settings.items():
        *tables, last = name.split(".")
        inner = result
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = value
    return result


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--plain-rounds", type=int, default=3, help="0: without the plain app")
    parser.add_argument("--idle", type=float, default=0, metavar="S", help="only that, for so long")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    enable_cache()
    given = dict(map(parse_assignment, options.set))
    settings = settings_of(options.clients, max(options.rounds, options.plain_rounds), given)
    config = fedkl.preset(options.preset, "fedkl", 0, settings)
    if options.idle:
        bytes_of = idle(config, options.idle)
        shown = "; ".join(f"{name} {number / 1e6:.1f} MB" for name, number in bytes_of.items())
        return emit(
            {"machine": machine("fedkl", "flwr"), "seconds": options.idle, "bytes": bytes_of},
            f"what crosses for a client: {shown}",
            options.out,
        )
    here = in_process(config, options.rounds)
    parts = over_network(config, options.rounds)
    overhead = median(parts["round"]) - median(here)
    result: dict[str, Any] = {
        "machine": machine("fedkl", "jax", "flwr"),
        "settings": {"preset": options.preset, **settings},
        "rounds": options.rounds,
        "in_process_seconds": spread(here),
        "network_seconds": {name: spread(seconds) for name, seconds in parts.items()},
        "overhead_seconds": overhead,
    }
    within = [name for name in parts if not name.startswith("round")]
    shown = "; ".join(f"{name} {median(parts[name]):.2f}" for name in within)
    summary = (
        f"a round: {median(here):.2f} s in this process, {median(parts['round']):.2f} s over the "
        f"network; overhead {overhead:.2f} s (limit on a quiet machine {LIMIT_SECONDS:g})\n"
        f"of it: {shown} s"
    )
    if options.plain_rounds:
        bare = plain(options.preset, settings, options.plain_rounds)
        share = overhead / (median(bare) - median(here))
        result |= {"plain_seconds": spread(bare), "share_of_plain_overhead": share}
        summary += (
            f"\na plain app: {median(bare):.2f} s a round; our overhead is {share:.2f} of its "
            f"(limit {LIMIT_SHARE:g})"
        )
    emit(result, summary, options.out)


if __name__ == "__main__":
    main()
