"""Commands of a federation over a network."""

from __future__ import annotations

from pathlib import Path

from fedkl.cli.parser import shared
from fedkl.cli.parser.base import Commands, adder


def add(commands: Commands) -> None:
    """Adds these commands."""
    sub = adder(commands, "keys")(
        "keys", "keys", "make the certificates and the clients' keys of a federation"
    )
    sub.add_argument("directory", type=Path, metavar="DIR", help="where they are kept")
    sub.add_argument("--clients", type=int, required=True, metavar="N", help="how many in all")
    sub.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or an address that clients know the server by; may be repeated",
    )
    sub.add_argument(
        "--days", type=int, default=365, metavar="D", help="that the server's certificate holds"
    )

    sub = adder(commands, "network")(
        "serve", "serve", "train with clients that join over a network", trains=True
    )
    shared.add_config(sub)
    shared.add_new_run(sub)
    sub.add_argument(
        "--keys", type=Path, metavar="DIR", help="as `fedkl keys` makes them; default: none"
    )
    sub.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    sub.add_argument("--port", type=int, metavar="P", help="default: 9092; with --local, any")
    sub.add_argument(
        "--superlink",
        metavar="HOST:PORT",
        help="use a SuperLink that runs on this machine already; default: start one",
    )
    sub.add_argument(
        "--wait", type=float, default=300.0, metavar="S", help="seconds to wait for enough clients"
    )
    sub.add_argument(
        "--local",
        type=int,
        metavar="N",
        help="start N clients on this machine, to try it out; default: none",
    )
    shared.add_insecure_network(sub)

    sub = adder(commands, "status")(
        "status", "status_", "how a federation over a network is doing: who is connected, who fails"
    )
    sub.add_argument(
        "directory", type=Path, metavar="DIR", help="a run, or what `fedkl join --state` keeps"
    )
    sub.add_argument(
        "--check",
        action="store_true",
        help="end with code 2 if it is not served or connected, for a health check",
    )
    sub.add_argument(
        "--max-age",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds after which what was last heard of it is too old for --check",
    )
    sub.add_argument(
        "--prometheus",
        action="store_true",
        help="print it for the textfile collector of Prometheus' node_exporter",
    )
    shared.add_formats(sub)

    sub = adder(commands, "join")("join", "join", "be a client of a federation over a network")
    sub.add_argument("address", metavar="HOST:PORT", help="of the server")
    sub.add_argument("--client", type=int, required=True, metavar="N", help="its number, from 0")
    sub.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="with ca.crt and client-N.key of `fedkl keys`; default: none",
    )
    sub.add_argument(
        "--state", type=Path, metavar="DIR", help="what the client keeps; default: fedkl-client-N"
    )
    sub.add_argument(
        "--wait", type=float, default=300.0, metavar="S", help="seconds to wait for the server"
    )
    sub.add_argument(
        "--once",
        action="store_true",
        help="end when the server's run is over; otherwise the client waits for the next one",
    )
    sub.add_argument(
        "--params",
        type=Path,
        metavar="FILE.toml",
        help="its own [world], which never leaves this machine; default: what the server says",
    )
    shared.add_plugins(sub)
    shared.add_insecure_network(sub)
