"""Only what a client's own server says to this client counts; all else is said to be forged."""

import datetime
import struct

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedkl.core.errors import UserError
from fedkl.network import keys, signatures
from fedkl.network.signatures import ForgedError, Signer, Verifier

CONTENT = b"a request" * 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signatures") / "keys"
    keys.make(folder, 2)
    return folder


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    """The keys of another federation."""
    folder = tmp_path_factory.mktemp("another") / "keys"
    keys.make(folder, 2)
    return folder


def verifier(folder, client=0):
    return Verifier.of(folder / "ca.crt", folder / f"client-{client}.key")


@pytest.mark.parametrize("content", [b"", CONTENT])
def test_what_the_server_signs_its_client_takes(folder, content):
    signed = Signer(folder).sign(1, content)
    assert verifier(folder, 1).content(signed) == content
    assert len(signed) < len(content) + 1500


def test_a_new_certificate_of_the_server_changes_nothing_for_clients(folder, tmp_path):
    knows = verifier(folder)
    for name in ("ca.crt", "ca.key", "client-0.pub"):
        (tmp_path / "keys").mkdir(mode=0o700, exist_ok=True)
        (tmp_path / "keys" / name).write_bytes((folder / name).read_bytes())
        (tmp_path / "keys" / name).chmod(0o600)
    keys.make(tmp_path / "keys", 1)
    assert (tmp_path / "keys" / "server.key").read_bytes() != (folder / "server.key").read_bytes()
    assert knows.content(Signer(tmp_path / "keys").sign(0, CONTENT)) == CONTENT


def test_what_is_for_another_client_is_refused(folder):
    signed = Signer(folder).sign(1, CONTENT)
    with pytest.raises(ForgedError, match="it is for another client"):
        verifier(folder, 0).content(signed)
    # To write another name on it spoils the signature.
    theirs, ours = verifier(folder, 1).recipient, verifier(folder, 0).recipient
    with pytest.raises(ForgedError, match="not signed by the server"):
        verifier(folder, 0).content(signed.replace(theirs, ours))


def test_another_federation_is_refused(folder, another):
    signed = (
        Signer(another)
        .sign(0, CONTENT)
        .replace(verifier(another).recipient, verifier(folder).recipient)
    )
    with pytest.raises(ForgedError, match="not signed by the server of this federation"):
        verifier(folder).content(signed)


def test_every_change_is_found(folder):
    signed = Signer(folder).sign(0, b"a short request")
    knows = verifier(folder)
    for place in range(len(signed)):
        changed = bytearray(signed)
        changed[place] ^= 1
        with pytest.raises(ForgedError):
            knows.content(bytes(changed))
    for length in range(len(signed)):
        with pytest.raises(ForgedError):
            knows.content(signed[:length])
    with pytest.raises(ForgedError):
        knows.content(signed + b"x")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 100,
        signatures.MAGIC,
        signatures.MAGIC + struct.pack(">III", 0, 0, 0),
        signatures.MAGIC + struct.pack(">III", 2**32 - 1, 2**32 - 1, 2**32 - 1) + b"x",
        signatures.MAGIC + struct.pack(">III", 1, 32, 1) + b"x" * 40,
    ],
)
def test_noise_is_refused(folder, data):
    with pytest.raises(ForgedError):
        verifier(folder).content(data)


def certified(folder, subject_key, *, usage=True, start=-1, end=1):
    """A certificate by a folder's authority, as DER."""
    now = datetime.datetime.now(datetime.UTC)
    ca = keys.certificate(folder / "ca.crt")
    authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")]))
        .issuer_name(ca.subject)
        .public_key(subject_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=start))
        .not_valid_after(now + datetime.timedelta(days=end))
    )
    if usage:
        server = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(server, critical=False)
    return builder.sign(authority, hashes.SHA384()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({}, None),
        ({"usage": False}, "not signed by the server"),
        ({"start": -3, "end": -1}, "not valid now"),
        ({"start": 1, "end": 3}, "not valid now"),
    ],
)
def test_the_authority_must_vouch_for_a_server_that_is_one_now(folder, how, reason):
    key = ec.generate_private_key(ec.SECP384R1())
    signer = Signer(folder)
    signer._key, signer._certificate = key, certified(folder, key, **how)
    signed = signer.sign(0, CONTENT)
    if reason is None:
        assert verifier(folder).content(signed) == CONTENT
        return
    with pytest.raises(ForgedError, match=reason):
        verifier(folder).content(signed)


@pytest.mark.parametrize("who", ["client-1.key", "own"])
def test_no_other_key_of_the_federation_signs(folder, who):
    """Neither a client's key nor one that somebody has certified for himself."""
    if who == "own":
        key = ec.generate_private_key(ec.SECP384R1())
    else:
        key = serialization.load_ssh_private_key((folder / who).read_bytes(), None)
    signer = Signer(folder)
    signer._key = key
    with pytest.raises(ForgedError, match="not signed by the server"):
        verifier(folder).content(signer.sign(0, CONTENT))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedkl server")])
    now = datetime.datetime.now(datetime.UTC)
    signer._certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(keys.certificate(folder / "ca.crt").subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA384())
        .public_bytes(serialization.Encoding.DER)
    )
    with pytest.raises(ForgedError, match="not signed by the server"):
        verifier(folder).content(signer.sign(0, CONTENT))


def test_without_the_files_it_is_one_sentence(folder, tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        Signer(tmp_path)
    knows = verifier(folder)._replace(ca=tmp_path / "gone")
    with pytest.raises(UserError, match="cannot read"):
        knows.content(Signer(folder).sign(0, b""))


def test_keys_are_taken_as_they_are_now_all_or_none(tmp_path):
    folder = tmp_path / "keys"
    keys.make(folder, 2)
    signer, knows = Signer(folder), verifier(folder, 1)
    before = signer.sign(1, CONTENT)
    (folder / "server.crt").unlink()
    with pytest.raises(UserError, match=r"server\.crt"):
        signer.reload()
    assert knows.content(signer.sign(1, CONTENT)) == CONTENT
    (folder / "client-0.pub").unlink()
    (folder / "client-0.key").unlink()
    keys.make(folder, 2)
    signer.reload()
    after = signer.sign(1, CONTENT)
    assert knows.content(after) == CONTENT
    assert before[: len(before) // 2] != after[: len(after) // 2]  # another certificate
    assert verifier(folder, 0).content(signer.sign(0, CONTENT)) == CONTENT
    other = tmp_path / "other"
    keys.make(other, 1)
    (folder / "server.key").write_bytes((other / "server.key").read_bytes())
    with pytest.raises(UserError, match=r"server\.key is not the key of .*server\.crt"):
        signer.reload()
    assert knows.content(signer.sign(1, CONTENT)) == CONTENT
