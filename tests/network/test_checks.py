"""What would keep a federation from starting is said before, in one sentence."""

import contextlib
import datetime
import socket
import ssl
import threading

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fedkl.core.errors import UserError
from fedkl.network import checks, keys

HERE = "127.0.0.1"
OPENSSH = (forms.Encoding.PEM, forms.PrivateFormat.OpenSSH)


@pytest.fixture
def folder(tmp_path):
    keys.make(tmp_path / "keys", 2)
    return tmp_path / "keys"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Makes keys as if it were some days later, or earlier."""

    def make(days=0, hosts=(), valid=1):
        folder = tmp_path / f"keys{days}{hosts}"
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        with monkeypatch.context() as patch:
            patch.setattr(keys, "_now", lambda: now)
            keys.make(folder, 1, hosts, valid)
        return folder

    return make


def free_port():
    with socket.create_server((HERE, 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def listening(answer):
    """A port of this machine on which every connection is given to a function."""

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                answer(connection)

    with socket.create_server((HERE, 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


@contextlib.contextmanager
def serving(folder):
    """A TLS server with a folder's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.set_alpn_protocols(["h2"])

    def answer(connection):
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)

    with listening(answer) as port:
        yield port


def day(days):
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    return f"{when:%Y-%m-%d}"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("fl.example.org:1", ("fl.example.org", 1)),
        ("[2001:db8::1]:65535", ("2001:db8::1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert checks.parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":9092", "host:0", "host:65536", "host:x", "::1:9092",
             "http://host:9092", "a b:9092", "[::1]", "[host]:80", "host:9092 ", "host:-1"]
)  # fmt: skip
def test_what_is_no_address_is_answered_with_one(text):
    with pytest.raises(UserError, match=r"is not an address such as 192\.0\.2\.7:9092"):
        checks.parse_address(text)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_is_this_machine(host):
    assert checks.is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "127.0.0.1.nip.io", "", "::2"]
)
def test_everything_else_may_be_reached_by_others(host):
    assert not checks.is_loopback(host)


@pytest.mark.parametrize("host", [HERE, "localhost", "0.0.0.0"])
def test_a_server_may_start(folder, host):
    checks.check_server(folder, host, free_port())


def test_a_server_by_its_other_name_may_start(made):
    # Nothing but loopback can be listened on here; its name is what counts.
    checks.check_server(made(hosts=("127.0.0.2",)), "127.0.0.2", free_port())


@pytest.mark.parametrize("host", [HERE, "localhost"])
def test_a_client_may_join(folder, host):
    with serving(folder) as port:
        assert checks.check_client(folder, 1, host, port) == []


def test_a_client_needs_only_the_authority_and_its_own_key(folder, tmp_path):
    own = tmp_path / "own"
    own.mkdir(0o700)
    for name in ("ca.crt", "client-1.key"):
        (folder / name).rename(own / name)
    with serving(folder) as port:
        assert checks.check_client(own, 1, HERE, port) == []


def test_a_client_is_warned_of_the_servers_certificate(made):
    with serving(folder := made(valid=20)) as port:
        (folder / "server.crt").unlink()  # a client has none
        (warning,) = checks.check_client(folder, 0, HERE, port)
    assert warning.startswith(f"the certificate of the server at {HERE}:{port} expires on ")


@pytest.mark.parametrize("name", ["ca.crt", "server.crt", "server.key"])
def test_a_file_that_the_server_misses_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"cannot read .*/{name}: "):
        checks.check_server(folder, HERE, free_port())


@pytest.mark.parametrize("name", ["ca.crt", "client-0.key"])
def test_a_file_that_a_client_misses_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"cannot read .*/{name}: "):
        checks.check_client(folder, 0, HERE, free_port())


@pytest.mark.parametrize("contents", [b"", b"rubbish", b"\x00\xff" * 99])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ca.crt", "is not a certificate"),
        ("server.crt", "is not a certificate"),
        ("server.key", r"is not the key of .*server\.crt"),
    ],
)
def test_rubbish_in_a_servers_file_is_named(folder, name, contents, reason):
    (folder / name).write_bytes(contents)
    with pytest.raises(UserError, match=f"/{name} {reason}"):
        checks.check_server(folder, HERE, free_port())


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o604, 0o601])
def test_a_private_key_that_is_open_to_others_is_not_used(folder, mode):
    for name in ("server.key", "client-0.key"):
        (folder / name).chmod(mode)
    with pytest.raises(UserError, match=r"server\.key is open to others than its owner"):
        checks.check_server(folder, HERE, free_port())
    with pytest.raises(UserError, match=r"client-0\.key is open to others.* `chmod 600`"):
        checks.check_client(folder, 0, HERE, free_port())


def rsa_key():
    return rsa.generate_private_key(65537, 2048).private_bytes(*OPENSSH, forms.NoEncryption())


def p256_key():
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(*OPENSSH, forms.NoEncryption())


def pkcs8_key():
    key = ec.generate_private_key(ec.SECP384R1())
    form = (forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return key.private_bytes(*form)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (rsa_key, "not a P-384 key"),
        (p256_key, "not a P-384 key"),
        (pkcs8_key, "not an OpenSSH private key"),
        (lambda: b"", "not an OpenSSH private key"),
        (lambda: b"\x00\xff" * 50, "not an OpenSSH private key"),
    ],
)
def test_a_clients_key_that_flower_would_not_take_is_named(folder, contents, reason):
    (folder / "client-0.key").write_bytes(contents())
    with pytest.raises(UserError, match=rf"client-0\.key is {reason}"):
        checks.check_client(folder, 0, HERE, free_port())


def test_a_server_with_the_key_of_another_does_not_start(folder, made):
    (folder / "server.key").write_bytes((made() / "server.key").read_bytes())
    with pytest.raises(UserError, match=r"server\.key is not the key of .*server\.crt"):
        checks.check_server(folder, HERE, free_port())


def test_a_server_of_another_authority_does_not_start(folder, made):
    (folder / "ca.crt").write_bytes((made() / "ca.crt").read_bytes())
    with pytest.raises(UserError, match=r"server\.crt is not by the authority of .*ca\.crt"):
        checks.check_server(folder, HERE, free_port())


def test_an_expired_certificate_is_named_with_its_date(made):
    folder = made(days=-10)
    with pytest.raises(UserError, match=rf"server\.crt expired on {day(-9)}: remove it"):
        checks.check_server(folder, HERE, free_port())
    expected = rf"the certificate of the server at {HERE}:\d+ expired on {day(-9)}"
    with serving(folder) as port, pytest.raises(UserError, match=expected):
        checks.check_client(folder, 0, HERE, port)


def test_an_expired_authority_is_named_with_its_date(made):
    folder = made(days=-keys.MAX_DAYS - 1)
    for check in (checks.check_server, lambda *a: checks.check_client(folder, 0, *a[1:])):
        with pytest.raises(UserError, match=rf"ca\.crt expired on {day(-1)}: .* new keys"):
            check(folder, HERE, free_port())


def test_a_certificate_of_the_future_is_named_with_its_date(folder, made):
    future = made(days=3)
    with pytest.raises(UserError, match=r"ca\.crt is not valid before \d{4}"):
        checks.check_server(future, HERE, free_port())


def test_a_server_of_the_future_is_named_with_its_date(folder, monkeypatch):
    (folder / "server.crt").unlink()
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    with monkeypatch.context() as patch:
        patch.setattr(keys, "_now", lambda: now)
        keys.make(folder, 1)
    when = f"{now - datetime.timedelta(hours=1):%Y-%m-%d %H:%M}"
    with pytest.raises(UserError, match=rf"server\.crt is not valid before {when} UTC"):
        checks.check_server(folder, HERE, free_port())
    expected = rf"at {HERE}:\d+ is not valid before {when} UTC; or the clock of this machine"
    with serving(folder) as port, pytest.raises(UserError, match=expected):
        checks.check_client(folder, 0, HERE, port)


@pytest.mark.parametrize("host", ["127.0.0.2", "learn.example.org"])
def test_a_certificate_for_other_names_is_refused(folder, host):
    with pytest.raises(UserError, match=rf"server\.crt is not for {host}: .* --host {host}"):
        checks.check_server(folder, host, free_port())


@pytest.mark.parametrize("host", [HERE, "localhost"])
def test_a_client_that_knows_the_server_by_another_name_is_told(made, monkeypatch, host):
    monkeypatch.setattr(keys, "HOSTS", ())
    folder = made(hosts=("learn.example.org", "192.0.2.7"))
    expected = f"at {host}:\\d+ is not for {host}: the server needs `fedkl keys ... --host {host}`"
    with serving(folder) as port, pytest.raises(UserError, match=expected):
        checks.check_client(folder, 0, host, port)


def test_a_server_of_another_federation_is_not_trusted(folder, made):
    expected = r"is not by the authority of .*ca\.crt .*: the file is that of another federation"
    with serving(made()) as port, pytest.raises(UserError, match=expected):
        checks.check_client(folder, 0, HERE, port)


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_what_does_not_speak_tls_is_named(folder, says):
    def answer(connection):
        connection.recv(10)
        connection.sendall(says)

    with listening(answer) as port, pytest.raises(UserError, match="does not speak TLS"):
        checks.check_client(folder, 0, HERE, port)


def test_a_server_that_says_nothing_is_not_waited_for(folder, monkeypatch):
    monkeypatch.setattr(checks, "TIMEOUT", 0.2)
    over = threading.Event()
    with listening(lambda _: over.wait(5)) as port:
        with pytest.raises(UserError, match="does not speak TLS"):
            checks.check_client(folder, 0, HERE, port)
        over.set()


def test_nobody_listens(folder):
    port = free_port()
    with pytest.raises(UserError, match=f"no server listens on {HERE}:{port}"):
        checks.check_client(folder, 0, HERE, port)
    with pytest.raises(UserError, match=f"no server listens on {HERE}:{port}"):
        checks.check_listens(HERE, port)


def test_somebody_listens():
    with listening(lambda _: None) as port:
        checks.check_listens(HERE, port)


@pytest.mark.parametrize("host", ["nowhere.invalid", "x" * 70])
def test_a_host_that_nobody_knows_is_named(host):
    for check in (checks.check_listens, checks.check_port):
        with pytest.raises(UserError, match=f"the host '{host}' is not known here"):
            check(host, 9092)


def test_a_port_in_use_is_named(folder):
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
        for host in (HERE, "0.0.0.0"):
            with pytest.raises(UserError, match=f"cannot listen on {host}:{port}: it is in use"):
                checks.check_server(folder, host, port)


def test_a_port_that_was_just_left_is_free():
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((HERE, port)):
            connection, _ = listener.accept()
            connection.close()  # first, so that this side waits for stray packets
    checks.check_port(HERE, port)


def test_an_address_of_another_machine_cannot_be_listened_on():
    with pytest.raises(UserError, match=r"192\.0\.2\.7:9092: that is not an address of this"):
        checks.check_port("192.0.2.7", 9092)


def test_a_certificate_is_warned_of_before_it_expires(made):
    folder = made(valid=20)
    (warning,) = checks.expiring(folder)
    assert warning.startswith(f"{folder / 'server.crt'} expires on ")
    assert warning.endswith(", in 19 days: make a new one in time")
    assert checks.expiring(folder, days=10) == []
    assert checks.expiring(made(valid=90, hosts=("a",))) == []
    old = made(days=-3640, hosts=("b",), valid=3650)
    assert {warning.split(" ")[0] for warning in checks.expiring(old)} == {
        str(old / "ca.crt"),
        str(old / "server.crt"),
    }
