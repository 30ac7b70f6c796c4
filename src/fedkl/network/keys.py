"""The keys of a federation: an authority, the server's certificate, and a key pair for each client.

In a folder of keys:

    ca.key, ca.crt               the authority, which only signs the server's certificate
    server.key, server.crt       the server's, for TLS and signatures
    client-N.key, client-N.pub   client N's, to authenticate itself (OpenSSH, P-384)
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.io import files
from fedkl.network.client_process import locked, private_folder

NEEDS = ("a federation over a network needs Flower and cryptography", "flower")

try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise MissingPackageError(*NEEDS) from error

HOSTS = ("localhost", "127.0.0.1")
"""Hosts in every server's certificate."""
MAX_DAYS = 3650
"""Days that the authority is valid; the most for a server's certificate."""
MOST_CLIENTS = 100_000
_PRIVATE, _PUBLIC = 0o600, 0o644
_CLOCK_SKEW = datetime.timedelta(hours=1)
_CLIENT = re.compile(r"client-(0|[1-9]\d*)\.pub")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_WRONG = (ValueError, TypeError, UnsupportedAlgorithm)
"""Exceptions of `cryptography` for a file with other contents."""


def make(folder: Path, clients: int, hosts: Sequence[str] = (), days: int = 365) -> None:
    """Make the missing keys of a federation, and leave the others alone.

    Client N has keys if `client-N.pub` exists: its private key may have been moved to the client.
    The authority's key is needed only for a server's certificate, and may be kept elsewhere.

    Args:
        folder: of the keys, closed to other users.
        clients: number of clients.
        hosts: names and addresses of the server, besides `HOSTS`.
        days: validity of the server's certificate.

    Raises:
        UserError: a number, a name or an existing file is wrong.
    """
    if not 1 <= clients <= MOST_CLIENTS:
        raise UserError(f"there must be 1 to {MOST_CLIENTS} clients, not {clients}")
    if not 1 <= days <= MAX_DAYS:
        raise UserError(f"a certificate can be valid for 1 to {MAX_DAYS} days, not {days}")
    others = [_name(host) for host in hosts]
    private_folder(folder)
    # Against another process that makes keys there.
    with locked(os.open(folder, os.O_RDONLY | os.O_DIRECTORY)):
        files.remove_temporaries(folder)
        if (folder / "server.crt").exists():
            _check_names(folder / "server.crt", others)
        else:
            names = [*map(_name, HOSTS), *others]
            _make_server(folder, list(dict.fromkeys(names)), days)
        for number in range(clients):
            _make_client(folder, number)


class KeyWatch:
    """Watcher of the files that a server needs: clients' public keys, its certificate and key."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: as `make` makes it.
        """
        self._folder = folder
        self._stamp = self._read_stamp()

    def changed(self) -> bool:
        """Return True if a file has changed since the last call."""
        before, self._stamp = self._stamp, self._read_stamp()
        return before != self._stamp

    def _read_stamp(self) -> list[tuple[str, int, int]]:
        found = []
        with files.explain_os_errors("read", self._folder):
            for path in self._folder.iterdir():
                if path.name not in ("server.crt", "server.key") and path.suffix != ".pub":
                    continue
                with contextlib.suppress(FileNotFoundError):  # it was removed just now
                    stat = path.stat()
                    found.append((path.name, stat.st_mtime_ns, stat.st_ino))
        return sorted(found)


def public_keys(folder: Path, may_be_none: bool = False) -> dict[int, bytes]:
    """Return the public key of each client with a `client-N.pub` in a folder, as `normalised`.

    Args:
        folder: as `make` makes it.
        may_be_none: allow a folder without any.

    Raises:
        UserError: the folder has none, one cannot be read, or two are equal.
    """
    with files.explain_os_errors("read", folder):
        names = [name for path in folder.iterdir() if (name := _CLIENT.fullmatch(path.name))]
    result: dict[int, bytes] = {}
    for number, path in sorted((int(name[1]), folder / name[0]) for name in names):
        try:
            key = forms.load_ssh_public_key(_read(path))
        except _WRONG as error:
            raise UserError(f"{path} is not an OpenSSH public key") from error
        if not _is_p384(key):
            raise UserError(f"{path} is not a P-384 key, and Flower takes no other")
        result[number] = _pem(key)
    if not result and not may_be_none:
        raise UserError(f"there is no client-N.pub in {folder}: make them with `fedkl keys`")
    if len({*result.values()}) < len(result):
        raise UserError(f"two clients in {folder} have the same public key")
    return result


def normalised(pem: bytes) -> bytes:
    """Return a public key in a canonical form, for comparison.

    Bytes that are not a key are returned as they are: they equal no client's.
    """
    try:
        return _pem(forms.load_pem_public_key(pem))
    except _WRONG:
        return pem


def public_key_of(path: Path) -> bytes:
    """Return the public half of a client's private key file, as `normalised`.

    Raises:
        UserError: the file has no such key, or other users can read it.
    """
    data = read_private(path)
    try:
        key = forms.load_ssh_private_key(data, None)
    except _WRONG as error:
        raise UserError(f"{path} is not an OpenSSH private key without a passphrase") from error
    if not _is_p384(key.public_key()):
        raise UserError(f"{path} is not a P-384 key, and Flower takes no other")
    return _pem(key.public_key())


def server_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """Return the server's private key.

    Raises:
        UserError: it cannot be read, is open to other users, or is not a key.
    """
    return _private(folder / "server.key", may_make=False)


def certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file.

    Raises:
        UserError: it cannot be read, or is not a certificate.
    """
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except _WRONG as error:
        raise UserError(f"{path} is not a certificate") from error


def read_private(path: Path) -> bytes:
    """Read a file that only its owner may read.

    Raises:
        UserError: it cannot be read, or other users can read it.
    """
    with files.explain_os_errors("read", path):
        mode = path.stat().st_mode
    if mode & 0o077:
        raise UserError(f"{path} is open to others than its owner: close it with `chmod 600`")
    return _read(path)


def validity(data: bytes, what: str) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the first and the last moment at which a certificate is valid.

    Args:
        data: the certificate, as PEM or DER.
        what: its name in an error.

    Raises:
        UserError: it is not a certificate.
    """
    try:
        if data.lstrip().startswith(b"-----"):
            found = x509.load_pem_x509_certificate(data)
        else:
            found = x509.load_der_x509_certificate(data)
    except _WRONG as error:
        raise UserError(f"{what} is not a certificate") from error
    return found.not_valid_before_utc, found.not_valid_after_utc


def expiry(path: Path) -> float:
    """Return the time at which the certificate in a file expires (`time.time`).

    Raises:
        UserError: it cannot be read, or is not a certificate.
    """
    return certificate(path).not_valid_after_utc.timestamp()


def _make_server(folder: Path, names: Sequence[x509.GeneralName], days: int) -> None:
    """Make the authority unless it exists, and the server's certificate."""
    authority = _private(folder / "ca.key", may_make=not (folder / "ca.crt").exists())
    if not (folder / "ca.crt").exists():
        _create(folder / "ca.crt", _authority(authority).public_bytes(forms.Encoding.PEM))
    ca = certificate(folder / "ca.crt")
    if ca.public_key() != authority.public_key():
        raise UserError(f"{folder / 'ca.key'} is not the key of {folder / 'ca.crt'}")
    server = _private(folder / "server.key", may_make=True)
    end = min(_now() + datetime.timedelta(days=days), ca.not_valid_after_utc)
    shown = (
        _certificate("fedkl server", server.public_key(), ca.subject, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .sign(authority, hashes.SHA384())
    )
    _create(folder / "server.crt", shown.public_bytes(forms.Encoding.PEM))


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    # Two federations must not have authorities of the same name: a client that mixes them up
    # would be told of a bad signature and not of an unknown authority.
    name = f"fedkl federation {secrets.token_hex(4)}"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    end = _now() + datetime.timedelta(days=MAX_DAYS)
    return (
        _certificate(name, key.public_key(), subject, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA384())
    )


def _certificate(
    name: str, key: ec.EllipticCurvePublicKey, issuer: x509.Name, end: datetime.datetime
) -> x509.CertificateBuilder:
    """Return a builder with the fields that all certificates have."""
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(
    digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _make_client(folder: Path, number: int) -> None:
    public, private = (folder / f"client-{number}.{end}" for end in ("pub", "key"))
    if public.exists():
        return
    if private.exists():  # what is revoked must not come back because clients are added
        raise UserError(
            f"{private} is there without {public.name}: it was revoked, or a call was interrupted; "
            "remove it, and a new key is made"
        )
    key = ec.generate_private_key(ec.SECP384R1())
    form = (forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption())
    _create(private, key.private_bytes(*form), _PRIVATE)
    line = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    _create(public, line + f" client-{number}\n".encode())


def _private(path: Path, may_make: bool) -> ec.EllipticCurvePrivateKey:
    """Return the key in a file; make it if it is missing and `may_make`."""
    if may_make and not path.exists():
        key = ec.generate_private_key(ec.SECP384R1())
        form = (forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
        _create(path, key.private_bytes(*form), _PRIVATE)
        return key
    data = read_private(path)
    try:
        found = forms.load_pem_private_key(data, None)
    except _WRONG as error:
        raise UserError(f"{path} is not a private key without a passphrase") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path} is not a key on an elliptic curve")
    return found


def _check_names(path: Path, names: Sequence[x509.GeneralName]) -> None:
    try:
        found = certificate(path).extensions
        has = {*found.get_extension_for_class(x509.SubjectAlternativeName).value}
    except x509.ExtensionNotFound:
        has = set()
    except _WRONG as error:
        raise UserError(f"{path} is not a certificate") from error
    for name in names:
        if name not in has:
            raise UserError(
                f"{path} is there, and not for {name.value}: remove it, and run `fedkl keys` "
                "again with every --host"
            )


def _name(host: str) -> x509.GeneralName:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
        # The last label of a name is no number, so that 10.0.0.256 is not taken for one.
        if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
            raise UserError(f"'{host}' is neither a host name nor an IP address") from None
        return x509.DNSName(host.lower())
    if address.is_unspecified:
        raise UserError(f"{host} is no address that clients can know the server by")
    return x509.IPAddress(address)


def _pem(key: forms.PublicKeyTypes) -> bytes:
    return key.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)


def _is_p384(key: object) -> bool:
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP384R1)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _read(path: Path) -> bytes:
    with files.explain_os_errors("read", path):
        return path.read_bytes()


def _create(path: Path, data: bytes, mode: int = _PUBLIC) -> None:
    """Create a file atomically with this mode; fail if it exists."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.fedkl-tmp")
    with files.explain_os_errors("write", path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
            try:
                files.write_all(descriptor, data)
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            # Unlike a rename, a link never takes the place of a file.
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        files.sync_directory(path.parent)
