"""Keys of a federation: made whole or not at all, closed to others, and never overwritten."""

import datetime
import os
import subprocess
import sys
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from fedkl.core.errors import UserError
from fedkl.io import files
from fedkl.network import keys

AUTHORITY = {"ca.crt", "ca.key"}
SERVER = {"server.crt", "server.key"}


def clients(number):
    return {f"client-{n}.{end}" for n in range(number) for end in ("key", "pub")}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path):
    keys.make(tmp_path / "keys", 2)
    return tmp_path / "keys"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_private_files_are_private_and_public_ones_are_not(tmp_path, umask):
    before = os.umask(umask)
    try:
        keys.make(tmp_path / "keys", 2)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "keys").iterdir()}
    assert modes.keys() == AUTHORITY | SERVER | clients(2)
    for name, mode in modes.items():
        assert mode == (0o600 if name.endswith(".key") else 0o644), name
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_open_to_others_is_refused(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match=r"closed to all others \(0700\)"):
        keys.make(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_run_again_nothing_changes_and_more_clients_are_added(folder):
    before = contents(folder)
    keys.make(folder, 2)
    assert contents(folder) == before
    keys.make(folder, 4)
    after = contents(folder)
    assert after.keys() == AUTHORITY | SERVER | clients(4)
    assert {name: after[name] for name in before} == before
    keys.make(folder, 1)
    assert contents(folder) == after


def test_a_key_that_was_moved_to_its_client_is_not_made_again(folder):
    (folder / "client-0.key").unlink()
    (folder / "ca.key").unlink()  # kept in a safe: clients' keys do not need it
    keys.make(folder, 3)
    assert {p.name for p in folder.iterdir()} == {"ca.crt"} | SERVER | clients(3) - {"client-0.key"}


@pytest.mark.parametrize("keep", [["ca.key"], ["ca.key", "ca.crt"], ["ca.key", "server.key"], []])
def test_what_an_interrupted_call_left_is_resumed(folder, keep):
    before = contents(folder)
    for name in before:
        if name not in keep:
            (folder / name).unlink()
    (folder / ".ca.crt.0123abcd.fedkl-tmp").write_text("half of")
    keys.make(folder, 2)
    after = contents(folder)
    assert after.keys() == before.keys()
    assert {name: after[name] for name in keep} == {name: before[name] for name in keep}
    ca, server = (x509.load_pem_x509_certificate(after[f"{n}.crt"]) for n in ("ca", "server"))
    server.verify_directly_issued_by(ca)


def test_a_revoked_key_does_not_come_back_when_clients_are_added(folder):
    (folder / "client-1.pub").unlink()
    revoked = (folder / "client-1.key").read_bytes()
    with pytest.raises(UserError, match=r"client-1\.key is there without client-1\.pub"):
        keys.make(folder, 3)
    assert 1 not in keys.public_keys(folder)
    (folder / "client-1.key").unlink()
    keys.make(folder, 3)
    assert sorted(keys.public_keys(folder)) == [0, 1, 2]
    assert (folder / "client-1.key").read_bytes() != revoked


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path, monkeypatch):
    write_all = files.write_all

    def full(descriptor, data):
        if b"CERTIFICATE" in data:
            write_all(descriptor, data[:20])
            raise OSError(28, "No space left on device")
        write_all(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", full)
        with pytest.raises(UserError, match=r"cannot write .*ca\.crt: the disk is full"):
            keys.make(tmp_path / "keys", 1)
    assert {path.name for path in (tmp_path / "keys").iterdir()} == {"ca.key"}
    keys.make(tmp_path / "keys", 1)
    assert {p.name for p in (tmp_path / "keys").iterdir()} == AUTHORITY | SERVER | clients(1)


def test_several_at_once_make_one_set(tmp_path):
    results = []

    def make():
        keys.make(tmp_path / "keys", 3)
        results.append(contents(tmp_path / "keys"))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result == results[0] for result in results)


def test_the_certificate_is_for_loopback_and_every_host(tmp_path):
    keys.make(tmp_path / "keys", 1, ["Learn.Example.org", "192.0.2.7", "2001:db8::1"], days=10)
    certificate = x509.load_pem_x509_certificate((tmp_path / "keys/server.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "learn.example.org"]
    addresses = [str(a) for a in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "192.0.2.7", "2001:db8::1"]
    days = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=9.99) < days < datetime.timedelta(days=10)


def test_a_new_certificate_by_the_same_authority_takes_the_removal_of_the_old(folder):
    authority = (folder / "ca.crt").read_bytes()
    with pytest.raises(UserError, match=r"server\.crt is there, and not for 192\.0\.2\.7"):
        keys.make(folder, 3, ["192.0.2.7"])
    assert not (folder / "client-2.key").exists()
    (folder / "server.crt").unlink()
    keys.make(folder, 3, ["192.0.2.7"])
    keys.make(folder, 3, ["192.0.2.7"])
    assert (folder / "ca.crt").read_bytes() == authority


def test_a_new_certificate_takes_the_authoritys_own_key(folder, tmp_path):
    keys.make(tmp_path / "other", 1)
    (folder / "server.crt").unlink()
    (folder / "ca.key").write_bytes((tmp_path / "other/ca.key").read_bytes())
    with pytest.raises(UserError, match=r"ca\.key is not the key of .*ca\.crt"):
        keys.make(folder, 2)
    (folder / "ca.key").unlink()
    with pytest.raises(UserError, match=r"cannot read .*ca\.key: it does not exist"):
        keys.make(folder, 2)
    assert not (folder / "server.crt").exists()


@pytest.mark.parametrize(
    ("name", "contents", "reason"),
    [
        ("ca.key", b"rubbish", "ca.key is not a private key without a passphrase"),
        ("ca.crt", b"rubbish", "ca.crt is not a certificate"),
        ("server.key", b"\xff\x00", "server.key is not a private key without a passphrase"),
    ],
)
def test_rubbish_is_named_and_stays(folder, name, contents, reason):
    (folder / "server.crt").unlink()
    (folder / name).write_bytes(contents)
    with pytest.raises(UserError, match=reason):
        keys.make(folder, 2)
    assert (folder / name).read_bytes() == contents


def test_an_authority_whose_key_others_can_read_signs_nothing(folder):
    (folder / "server.crt").unlink()
    (folder / "ca.key").chmod(0o640)
    with pytest.raises(UserError, match=r"ca\.key is open to others than its owner"):
        keys.make(folder, 2)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"clients": 0}, "1 to 100000 clients, not 0"),
        ({"clients": -3}, "1 to 100000 clients, not -3"),
        ({"days": 0}, "1 to 3650 days, not 0"),
        ({"days": 3651}, "1 to 3650 days, not 3651"),
        ({"hosts": [""]}, "'' is neither a host name nor an IP address"),
        ({"hosts": ["a b"]}, "'a b' is neither"),
        ({"hosts": ["10.0.0.256"]}, "'10.0.0.256' is neither"),
        ({"hosts": ["http://x"]}, "'http://x' is neither"),
        ({"hosts": ["*.example.org"]}, "is neither"),
        ({"hosts": ["x" * 64]}, "is neither"),
        ({"hosts": ["0.0.0.0"]}, r"0\.0\.0\.0 is no address that clients can know"),
    ],
)
def test_wrong_wishes_are_answered_before_anything_is_made(tmp_path, arguments, reason):
    with pytest.raises(UserError, match=reason):
        keys.make(tmp_path / "keys", **{"clients": 1} | arguments)
    assert not (tmp_path / "keys").exists()


def test_a_clients_public_key_is_that_of_its_private_key(folder):
    found = keys.public_keys(folder)
    assert list(found) == [0, 1]
    for number, pem in found.items():
        private = forms.load_ssh_private_key((folder / f"client-{number}.key").read_bytes(), None)
        assert isinstance(private.public_key().curve, ec.SECP384R1)
        assert forms.load_pem_public_key(pem) == private.public_key()
        keys.public_key_of(folder / f"client-{number}.key")


def test_clients_are_numbers_and_not_in_the_order_of_their_names(tmp_path):
    keys.make(tmp_path / "keys", 12)
    (tmp_path / "keys/client-07.pub").write_text("not a client's name")
    assert list(keys.public_keys(tmp_path / "keys")) == list(range(12))


def test_the_same_key_in_another_form_is_the_same(folder):
    pem = keys.public_keys(folder)[0]
    assert keys.normalised(pem) == pem
    assert keys.normalised(b"\n" + pem.replace(b"\n", b"\r\n") + b"\n") == pem
    assert keys.normalised(keys.public_keys(folder)[1]) != pem


@pytest.mark.parametrize("rubbish", [b"", b"rubbish", b"-----BEGIN PUBLIC KEY-----\n"])
def test_what_is_no_key_is_the_same_as_nobodys(rubbish):
    assert keys.normalised(rubbish) == rubbish


def openssh(key):
    return key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (b"", r"client-0\.pub is not an OpenSSH public key"),
        (b"\xff\xfe", r"client-0\.pub is not an OpenSSH public key"),
        (b"ssh-rsa AAAA", r"client-0\.pub is not an OpenSSH public key"),
        (openssh(rsa.generate_private_key(65537, 2048)), "not a P-384 key"),
        (openssh(ed25519.Ed25519PrivateKey.generate()), "not a P-384 key"),
        (openssh(ec.generate_private_key(ec.SECP256R1())), "not a P-384 key"),
    ],
    ids=["empty", "bytes", "cut", "rsa", "ed25519", "p256"],
)
def test_a_public_key_that_flower_would_not_take_is_named(folder, contents, reason):
    (folder / "client-0.pub").write_bytes(contents)
    with pytest.raises(UserError, match=reason):
        keys.public_keys(folder)


def test_two_clients_cannot_have_the_same_key(folder):
    (folder / "client-1.pub").write_bytes((folder / "client-0.pub").read_bytes())
    with pytest.raises(UserError, match=r"two clients in .* have the same public key"):
        keys.public_keys(folder)


def test_a_folder_without_clients_is_answered_with_how_to_make_them(tmp_path):
    with pytest.raises(UserError, match="make them with `fedkl keys`"):
        keys.public_keys(tmp_path)
    with pytest.raises(UserError, match="it does not exist"):
        keys.public_keys(tmp_path / "nowhere")


def test_without_cryptography_one_sentence_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from fedkl.cli import main; main(['keys', 'keys', '--clients', '2'])"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == (
        "fedkl: a federation over a network needs Flower and cryptography; install it with "
        "`pip install -e '.[flower]'`\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_change_of_what_a_server_needs_is_noticed_once(tmp_path):
    folder = tmp_path / "keys"
    keys.make(folder, 2)
    watch = keys.KeyWatch(folder)
    assert not watch.changed()
    (folder / "client-1.key").unlink()  # it was moved to the client
    (folder / "ca.key").unlink()
    assert not watch.changed()
    (folder / "client-1.pub").unlink()
    assert watch.changed()
    assert not watch.changed()
    data = (folder / "server.crt").read_bytes()
    (folder / "server.crt").unlink()
    assert watch.changed()
    (folder / "server.crt").write_bytes(data)
    assert watch.changed()
    assert not watch.changed()


def test_that_no_client_has_a_key_any_more_is_a_mistake_unless_one_says_so(tmp_path):
    keys.make(tmp_path / "keys", 1)
    (tmp_path / "keys" / "client-0.pub").unlink()
    assert keys.public_keys(tmp_path / "keys", may_be_none=True) == {}
    with pytest.raises(UserError, match=r"there is no client-N\.pub"):
        keys.public_keys(tmp_path / "keys")
