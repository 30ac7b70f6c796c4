"""A SuperLink of somebody else's, with somebody else in the place of Flower's commands."""

import socket

from fedkl.network import keys
from fedkl.network.flower.relay_client import RelayClient
from fedkl.network.flower.superlink import SuperLinkConnection


def test_a_superlink_that_was_started_again_is_told_the_keys_again(tmp_path, monkeypatch):
    keys.make(tmp_path / "keys", 2)
    (tmp_path / "flower").mkdir(mode=0o700)
    link = SuperLinkConnection(tmp_path / "flower", "127.0.0.1:9", tmp_path / "keys")
    registered = []

    def flower(command, seconds):
        registered.append([argument.partition("=")[0] for argument in command[5:]])
        return ""

    monkeypatch.setattr(link, "_flower", flower)
    transport = RelayClient(socket.socket(), lambda: None)
    monkeypatch.setattr(link, "_relay", lambda: transport)
    link.connect()
    link.connect()
    transport.close()
    link.stop()
    assert registered == [["client-0", "client-1"]] * 2
