"""Keys that change while a federation is served."""

import pytest

pytest.importorskip("flwr")

from fedkl.core.errors import UserError
from fedkl.network import keys
from fedkl.network.flower import key_rotation
from fedkl.network.flower.fleet import Fleet
from fedkl.network.flower.key_rotation import KeyRotation
from fedkl.network.flower.superlink import SuperLinkConnection
from fedkl.network.signatures import Signer
from fedkl.network.status import FleetStatus


class Known(Fleet):
    """A fleet that nobody is in."""

    def __init__(self, known):
        super().__init__(lambda: None, known, lambda _: None, lambda *_, **__: None)


class Registry(SuperLinkConnection):
    """Counts how often keys are registered."""

    def __init__(self):
        self.times, self.refuses = 0, False

    def register(self):
        if self.refuses:
            raise UserError("Flower did not register the key")
        self.times += 1


@pytest.fixture
def followed(tmp_path):
    folder = tmp_path / "keys"
    keys.make(folder, 2)
    link, said, status = Registry(), [], FleetStatus()
    fleet = Known(keys.public_keys(folder))
    made = KeyRotation(folder, link, fleet, Signer(folder), status, said.append)
    return folder, made, link, said, status


def test_nothing_is_done_while_nothing_changes(followed):
    folder, made, link, said, status = followed
    made.poll()
    assert (said, link.times) == ([], 0)
    assert status.expires == keys.expiry(folder / "server.crt")


def test_a_key_that_is_gone_and_one_that_is_new_are_named_once(followed):
    folder, made, link, said, _ = followed
    (folder / "client-1.pub").unlink()
    (folder / "client-1.key").unlink()
    made.poll()
    made.poll()
    keys.make(folder, 3)
    made.poll()
    assert said == [
        "the keys of clients 1 have changed",
        "the keys of clients 1, 2 have changed",
    ]
    assert link.times == 2


def test_a_key_that_is_gone_is_nobodys_whatever_else_is_wrong(followed):
    folder, made, link, said, _ = followed
    (folder / "client-0.pub").unlink()
    (folder / "server.crt").unlink()
    made.poll()
    assert "the keys have changed and cannot be used as they are: cannot read " in said[0]
    assert made._fleet.rekey({}) == [1]  # 0 is not known any more
    (folder / "client-0.key").unlink()
    keys.make(folder, 1, days=3)
    link.refuses = True
    made.poll()
    assert said[1].endswith("Flower did not register the key")


def test_a_new_certificate_is_signed_with_and_its_end_is_known(followed):
    folder, made, _, said, status = followed
    before = status.expires
    (folder / "server.crt").unlink()
    keys.make(folder, 2, days=3)
    made.poll()
    assert said == ["the keys of the server have changed"]
    assert status.expires < before


def test_a_certificate_that_expires_soon_is_warned_of_once_a_day(followed, monkeypatch):
    folder, made, _, said, _ = followed
    (folder / "server.crt").unlink()
    keys.make(folder, 2, days=3)
    made.poll()
    said.clear()
    now = key_rotation.time.monotonic()
    for later in (0, 1, key_rotation.WARNING, 10, 2 * key_rotation.WARNING + 1):
        monkeypatch.setattr(key_rotation.time, "monotonic", lambda later=later: now + later + 5)
        made.poll()
    assert len(said) == 2
    assert "warning: " in said[0]
    assert "server.crt expires on " in said[0]
    assert "in 2 days: make a new one in time" in said[0]
