"""Signatures by which a client knows that a message is its server's, and for this client.

The server signs with `server.key` and sends `server.crt` along. A client has `ca.crt`, so it can
see that the authority of its federation vouches for the key, and a new certificate of the server's
changes nothing for it. Flower forwards messages from any app on its server, so a client verifies
the signature before all else.

Signed bytes are `MAGIC`, three lengths, the certificate, the recipient, the signature, and the
content. All of it is signed: the recipient, and all of a request or a greeting, with its
federation, round, turn and nonce.
"""

from __future__ import annotations

import datetime
import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.network import keys

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ImportError as error:
    raise MissingPackageError(*keys.NEEDS) from error

MAGIC = b"fedkl signed message 1\n"
_LENGTHS = struct.Struct(">III")
_PURPOSE = (
    b"What the server of a federation of fedkl asks of one of its clients, and nothing else.\0"
)
"""Prefix of all signed bytes. TLS signs with the same key: no handshake begins with this, and the
32 bytes of one that a peer may choose are shorter."""
_HASH = ec.ECDSA(hashes.SHA384())
_WRONG = (
    ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion,
    x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType,
)  # fmt: skip
"""Exceptions of `cryptography` for invalid bytes."""


class ForgedError(Exception):
    """A message without a valid signature of the server; one sentence."""


def fingerprint(public: bytes) -> bytes:
    """Return the digest by which a signature names a client.

    Args:
        public: its public key, as `keys.normalised` has it.
    """
    return hashlib.sha256(public).digest()


class Signer:
    """Signer of the messages of a federation's server."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: of the keys, as `fedkl keys` makes it.

        Raises:
            UserError: a file is missing or invalid.
        """
        self._folder = folder
        self._key = keys.server_key(folder)
        self._certificate = keys.certificate(folder / "server.crt").public_bytes(forms.Encoding.DER)
        self._clients: Mapping[int, bytes] = keys.public_keys(folder)

    def reload(self) -> None:
        """Read the keys again; all or nothing.

        Raises:
            UserError: as the constructor; the old keys stay.
        """
        folder = self._folder
        key, certificate = keys.server_key(folder), keys.certificate(folder / "server.crt")
        if certificate.public_key() != key.public_key():
            raise UserError(f"{folder / 'server.key'} is not the key of {folder / 'server.crt'}")
        clients = keys.public_keys(folder, may_be_none=True)
        self._key, self._clients = key, clients
        self._certificate = certificate.public_bytes(forms.Encoding.DER)

    def sign(self, client: int, content: bytes) -> bytes:
        """Sign a message for one client.

        Args:
            client: its number.
            content: the message.
        """
        recipient = fingerprint(self._clients[client])
        signature = self._key.sign(_signed(self._certificate, recipient, content), _HASH)
        parts = (self._certificate, recipient, signature)
        return b"".join([MAGIC, _LENGTHS.pack(*map(len, parts)), *parts, content])


class Verifier(NamedTuple):
    """Verifier of messages from the server to one client."""

    ca: Path
    """Certificate of the federation's authority."""
    recipient: bytes
    """The client's `fingerprint`."""

    @classmethod
    def of(cls, ca: Path, key: Path) -> Verifier:
        """Return the verifier of the client with this private key.

        Raises:
            UserError: the file is not a private key.
        """
        return cls(ca, fingerprint(keys.public_key_of(key)))

    def content(self, data: bytes) -> bytes:
        """Verify a signed message and return its content.

        Raises:
            ForgedError: it is not from this client's server, or not for this client.
            UserError: the authority's certificate cannot be read.
        """
        certificate, recipient, signature, content = _parts(data)
        authority = keys.certificate(self.ca)
        try:
            shown = x509.load_der_x509_certificate(certificate)
            shown.verify_directly_issued_by(authority)
            key = shown.public_key()
            usage = shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise ForgedError("it is signed by a key of another kind than a server's")
            if ExtendedKeyUsageOID.SERVER_AUTH not in usage:
                raise ForgedError("it is signed by a key that is not a server's")
            key.verify(signature, _signed(certificate, recipient, content), _HASH)
        except _WRONG as error:
            raise ForgedError("it is not signed by the server of this federation") from error
        now = datetime.datetime.now(datetime.UTC)
        if not shown.not_valid_before_utc <= now <= shown.not_valid_after_utc:
            raise ForgedError("it is signed by a certificate that is not valid now")
        if recipient != self.recipient:
            raise ForgedError("it is for another client")
        return content


def _signed(certificate: bytes, recipient: bytes, content: bytes) -> bytes:
    """Return the bytes that are signed.

    The certificate is among them, because the last bits of its own signature can be written in two
    ways.
    """
    return b"".join([_PURPOSE, hashlib.sha256(certificate).digest(), recipient, content])


def _parts(data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Split signed bytes into certificate, recipient, signature and content.

    Raises:
        ForgedError: they cannot be split.
    """
    start = len(MAGIC) + _LENGTHS.size
    if not data.startswith(MAGIC) or len(data) < start:
        raise ForgedError("it is not signed; use the same version of fedkl on both sides")
    found = []
    for length in _LENGTHS.unpack(data[len(MAGIC) : start]):
        found.append(data[start : start + length])
        start += length
    if start > len(data):
        raise ForgedError("it is cut off")
    certificate, recipient, signature = found
    return certificate, recipient, signature, data[start:]
