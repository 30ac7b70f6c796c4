"""The secret goes to Flower's API, and to nobody else."""

import httpx
import pytest

from fedkl.network.flower import secret


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "[::1]:9092", "learn.example.org:443"])
def test_it_is_sent_to_that_address_alone(tmp_path, monkeypatch, address):
    for name, value in secret.make(tmp_path / "secret", address).items():
        monkeypatch.setenv(name, value)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(httpx.Client, "send", httpx.Client.send)
    secret.attach()
    sent = []

    def answer(request):
        sent.append(request.headers.get(secret.HEADER))
        return httpx.Response(200)

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        client.get(f"https://{address}/v1")
        for other in ("127.0.0.1:9093", "localhost:9092", "example.org", "learn.example.org:80"):
            client.get(f"https://{other}/v1")
    assert sent == [secret.read(), None, None, None, None]
    assert len(sent[0]) == 64


def test_without_one_nothing_is_changed(monkeypatch):
    monkeypatch.delenv(secret.FILE, raising=False)
    before = httpx.Client.send
    secret.attach()
    assert httpx.Client.send is before


def test_each_is_another(tmp_path):
    made = [secret.read(secret.make(tmp_path / name, "h:1")) for name in ("a", "b", "a")]
    assert len({*made}) == 3
