"""What proves to a client that its server asks: a signature over what is asked, and for whom.

The server signs with `server.key` and sends `server.crt` along. A client has `ca.crt`, so it can
see that the authority of its federation vouches for the key, and a new certificate of the server's
changes nothing for it. Flower hands on what anybody on its server says in the server's name, so
this comes before all else that a client does with a message.

Signed bytes are `MAGIC`, three lengths, the certificate, the recipient, the signature, and the
content. All of it is signed: of whom it is asked, and all that a request or a greeting
says, with its federation, round, turn and nonce.
"""

from __future__ import annotations

import datetime
import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedkl.core.errors import UserError
from fedkl.network import keys

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ImportError as error:
    raise UserError(keys.MISSING) from error

MAGIC = b"fedkl signed message 1\n"
_LENGTHS = struct.Struct(">III")
_PURPOSE = (
    b"What the server of a federation of fedkl asks of one of its clients, and nothing else.\0"
)
"""Before all that is signed. TLS signs with the same key: no handshake begins with this, and what a
peer may choose of one (32 bytes) is shorter."""
_HASH = ec.ECDSA(hashes.SHA384())
_WRONG = (
    ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion,
    x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType,
)  # fmt: skip
"""What `cryptography` raises for bytes that are not what they should be."""


class ForgedError(Exception):
    """Why a message does not count, in one sentence."""


def fingerprint(public: bytes) -> bytes:
    """By which a client is known in what is signed.

    Args:
        public: its public key, as `keys.normalised` has it.
    """
    return hashlib.sha256(public).digest()


class Signer:
    """Signs what the server of a federation sends."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: of the keys, as `fedkl keys` makes it.

        Raises:
            UserError: something is missing there, or is not what it should be.
        """
        self._folder = folder
        self._key = keys.server_key(folder)
        self._certificate = keys.certificate(folder / "server.crt").public_bytes(forms.Encoding.DER)
        self._clients: Mapping[int, bytes] = keys.public_keys(folder)

    def reload(self) -> None:
        """Takes the keys as they are in the folder now; all or nothing.

        Raises:
            UserError: as the constructor; those of before stay.
        """
        folder = self._folder
        key, certificate = keys.server_key(folder), keys.certificate(folder / "server.crt")
        if certificate.public_key() != key.public_key():
            raise UserError(f"{folder / 'server.key'} is not the key of {folder / 'server.crt'}")
        clients = keys.public_keys(folder, may_be_none=True)
        self._key, self._clients = key, clients
        self._certificate = certificate.public_bytes(forms.Encoding.DER)

    def sign(self, client: int, content: bytes) -> bytes:
        """The content as only this client takes it.

        Args:
            client: its number.
            content: what it is sent.
        """
        recipient = fingerprint(self._clients[client])
        signature = self._key.sign(_signed(self._certificate, recipient, content), _HASH)
        parts = (self._certificate, recipient, signature)
        return b"".join([MAGIC, _LENGTHS.pack(*map(len, parts)), *parts, content])


class Verifier(NamedTuple):
    """Knows what is for one client, and from its server."""

    ca: Path
    """The certificate of the federation's authority."""
    recipient: bytes
    """The client's `fingerprint`."""

    @classmethod
    def of(cls, ca: Path, key: Path) -> Verifier:
        """That of the client with this private key.

        Raises:
            UserError: it is none.
        """
        return cls(ca, fingerprint(keys.public_key_of(key)))

    def content(self, data: bytes) -> bytes:
        """What a server says in bytes that somebody sent.

        Raises:
            ForgedError: it is not this client's server who says it, or not to this client.
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
                raise ForgedError("it is signed by somebody who is not the server")
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
    """What a signature is over. The certificate is part of it, because the last bits of its own
    signature can be written in two ways."""
    return b"".join([_PURPOSE, hashlib.sha256(certificate).digest(), recipient, content])


def _parts(data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Certificate, recipient, signature and content.

    Raises:
        ForgedError: there are no such parts.
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
