"""Checks of keys, certificates, addresses and ports before Flower starts.

Flower reports a wrong key, name, date or port late, in its log, or never; here each is one
sentence.
"""

from __future__ import annotations

import datetime
import errno
import ipaddress
import re
import socket
import ssl
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.core.text import counted
from fedkl.io import files
from fedkl.network import keys


class NotThereError(UserError):
    """A server that does not answer now and may later: it starts, or the network comes up."""


TIMEOUT = 10.0
"""Seconds to wait for a server's answer."""
WARN_DAYS = 30.0
"""Days before a certificate's end from which a warning is given."""
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+):(\d{1,5})")
# As OpenSSL numbers what is wrong with a certificate (X509_V_ERR_...).
_NOT_YET, _EXPIRED, _NAMES = 9, 10, (62, 64)
_LISTENING = {
    errno.EADDRINUSE: "it is in use",
    errno.EADDRNOTAVAIL: "that is not an address of this machine",
    errno.EACCES: "only root may listen there",
}


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of `HOST:PORT`; an IPv6 address has brackets.

    >>> parse_address("learn.example.org:9092"), parse_address("[::1]:9092")
    (('learn.example.org', 9092), ('::1', 9092))

    Raises:
        UserError: it is not such an address.
    """
    found = _ADDRESS.fullmatch(text)
    if not found or not 1 <= int(found[2]) <= 65535:
        raise UserError(f"'{text}' is not an address such as 192.0.2.7:9092 (HOST:PORT)")
    return found[1].strip("[]"), int(found[2])


def address_of(host: str, port: int) -> str:
    """Return `HOST:PORT` as `parse_address` reads it.

    >>> address_of("::1", 9092)
    '[::1]:9092'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return True if a host is loopback; names other than `localhost` are not looked up."""
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def check_server(folder: Path, host: str, port: int) -> None:
    """Check that a server can listen on an address, and that clients will trust its certificate.

    Args:
        folder: of the keys.
        host: to listen on; a wildcard address has no name to check.
        port: to listen on.

    Raises:
        UserError: it cannot, or they would not.
    """
    authority = _authority(folder)
    key, certificate = folder / "server.key", folder / "server.crt"
    keys.read_private(key)
    _check_dates(certificate, "remove it, and run `fedkl keys` again")
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key with a passphrase would make OpenSSL ask for it.
        shown.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise UserError(f"{key} is not the key of {certificate}, or has a passphrase") from error
    address = _address(host)
    name = None if address is not None and address.is_unspecified else host
    try:
        _handshake_in_memory(shown, authority, name)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _NAMES:
            raise UserError(
                f"{certificate} is not for {host}: remove it, and run `fedkl keys` again with "
                f"--host {host}"
            ) from error
        raise UserError(
            f"{certificate} is not by the authority of {folder / 'ca.crt'}: {error.verify_message}"
        ) from error
    check_port(host, port)


def expiring(folder: Path, days: float = WARN_DAYS) -> list[str]:
    """Return a warning for each certificate of a folder that expires soon.

    Raises:
        UserError: one cannot be read.
    """
    found = []
    for name in ("ca.crt", "server.crt"):
        path = folder / name
        if path.exists():
            remedy = "needs new keys for all" if name == "ca.crt" else "make a new one in time"
            found += _expires_soon(
                keys.certificate(path).not_valid_after_utc, f"{path}", days, remedy
            )
    return found


def _expires_soon(end: datetime.datetime, what: str, days: float, remedy: str) -> list[str]:
    left = end - datetime.datetime.now(datetime.UTC)
    if left > datetime.timedelta(days=days):
        return []
    return [f"{what} expires on {end:%Y-%m-%d}, in {counted(max(0, left.days), 'day')}: {remedy}"]


def check_client(folder: Path, client: int, host: str, port: int) -> list[str]:
    """Check that a client with these keys can join, as far as the client can see.

    Args:
        folder: with `ca.crt` and the client's private key.
        client: its number.
        host: of the server.
        port: of the server.

    Returns:
        A warning for each certificate that expires soon.

    Raises:
        UserError: it cannot.
    """
    keys.public_key_of(folder / f"client-{client}.key")
    authority = _authority(folder)
    place = address_of(host, port)
    try:
        shown = _handshake(authority, host, port)
    except ssl.SSLCertVerificationError as error:
        raise UserError(_trust_error(error, folder, host, port)) from error
    except (ssl.SSLError, EOFError, ConnectionError, TimeoutError) as error:
        raise UserError(f"what listens on {place} does not speak TLS as a server should") from error
    _, end = keys.validity(shown, place)
    what = f"the certificate of the server at {place}"
    return [
        *expiring(folder),
        *_expires_soon(end, what, WARN_DAYS, "its operator must make a new one"),
    ]


def check_port(host: str, port: int) -> None:
    """Check that this machine can listen on a host and port.

    Raises:
        UserError: it cannot.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise UserError(_unknown_host(host)) from error
    for family, _, _, _, where in found:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            # As servers do: what is left of a connection of one that just ended is not in the way.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(where)
                listener.listen()
            except OSError as error:
                reason = _LISTENING.get(error.errno or 0) or error.strerror
                raise UserError(f"cannot listen on {address_of(host, port)}: {reason}") from error


def free_port(host: str) -> int:
    """Return a port on which no process listens now."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def check_listens(host: str, port: int) -> None:
    """Check that a server listens on a host and port.

    Raises:
        UserError: none does.
    """
    _connect(host, port).close()


def _authority(folder: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts only the folder's authority, and checks host names."""
    path = folder / "ca.crt"
    _check_dates(path, "the federation needs new keys")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(path)
    return _as_grpc(context)


def _as_grpc(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["h2"])
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _check_dates(path: Path, remedy: str) -> None:
    with files.explain_os_errors("read", path):
        data = path.read_bytes()
    if problem := _problem_with_dates(data, str(path)):
        raise UserError(f"{problem}: {remedy}")


def _problem_with_dates(data: bytes, what: str) -> str | None:
    start, end = keys.validity(data, what)
    now = datetime.datetime.now(datetime.UTC)
    if now > end:
        return f"{what} expired on {end:%Y-%m-%d}"
    if now < start:
        return f"{what} is not valid before {start:%Y-%m-%d %H:%M} UTC"
    return None


def _handshake_in_memory(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> None:
    """Run both sides of a TLS handshake without a network."""
    client.check_hostname = name is not None
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    waiting = [ours, theirs]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)


def _handshake(context: ssl.SSLContext, host: str, port: int) -> bytes:
    """Connect, and return the server's certificate as DER."""
    with (
        _connect(host, port) as connection,
        context.wrap_socket(connection, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def _trust_error(error: ssl.SSLCertVerificationError, folder: Path, host: str, port: int) -> str:
    """Return the reason why a server's certificate is not trusted, in a sentence."""
    shown = f"the certificate of the server at {address_of(host, port)}"
    if error.verify_code in (_NOT_YET, _EXPIRED):
        # Only to say the date: nothing is believed, and nothing is sent.
        unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        data = _handshake(_as_grpc(unverified), host, port)
        clock = "; or the clock of this machine is wrong"
        return (_problem_with_dates(data, shown) or f"{shown}: {error.verify_message}") + clock
    if error.verify_code in _NAMES:
        return f"{shown} is not for {host}: the server needs `fedkl keys ... --host {host}`"
    return (
        f"{shown} is not by the authority of {folder / 'ca.crt'} ({error.verify_message}): the "
        "file is that of another federation, or the connection is intercepted"
    )


def _connect(host: str, port: int) -> socket.socket:
    place = address_of(host, port)
    try:
        return socket.create_connection((host, port), TIMEOUT)
    except (socket.gaierror, UnicodeError) as error:
        passing = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        raise (NotThereError if passing else UserError)(_unknown_host(host)) from error
    except ConnectionRefusedError as error:
        raise NotThereError(f"no server listens on {place}") from error
    except TimeoutError as error:
        raise NotThereError(f"{place} did not answer within {TIMEOUT:g} s") from error
    except OSError as error:
        raise NotThereError(f"{place} cannot be reached: {error.strerror}") from error


def _unknown_host(host: str) -> str:
    return f"the host '{host}' is not known here"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
