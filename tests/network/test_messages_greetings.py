"""What a server says first, as bytes."""

import pytest

from fedkl.network import messages, wire
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.messages import (
    GREETING,
    new_federation,
    new_nonce,
    read_greeting,
    sources_of,
    write_greeting,
)
from fedkl.network.wire import MessageError


@pytest.fixture
def greeting(tiny):
    exchange = Exchange(tiny(), new_federation())
    return read_greeting(exchange.greeting(1, RequestStamp(0, 7, 0, new_nonce()), "no"))


def test_what_is_written_is_read(greeting):
    data = write_greeting(greeting)
    assert wire.kind_of(data) == GREETING
    assert read_greeting(data) == greeting
    assert greeting.versions == messages.result_versions()
    assert {"fedkl", "jax", "jaxlib", "numpy"} <= greeting.versions.keys()
    assert not greeting.over
    assert (greeting.client, greeting.turn, greeting.refusal) == (1, 7, "no")


@pytest.mark.parametrize(
    "changes",
    [
        {"federation": "../x"}, {"client": -1}, {"turn": None}, {"nonce": "x"},
        {"versions": 1}, {"versions": {"jax": 1}}, {"config": None}, {"spaces": [1, 2]},
        {"over": 0}, {"sources": []}, {"sources": {"algorithm": ""}}, {"refusal": 0}, {"more": 1},
    ],
)  # fmt: skip
def test_anything_else_is_refused(greeting, changes):
    header = greeting._asdict() | {"spaces": list(greeting.spaces)} | changes
    with pytest.raises(MessageError):
        read_greeting(wire.pack(GREETING, header, {}))


def test_sources_are_those_of_both_sides_and_tell_algorithms_apart(tiny):
    fedkl, fedavg = sources_of(tiny("fedkl")), sources_of(tiny("fedavg"))
    assert fedkl["world"] == fedavg["world"] != ""
    assert fedkl["algorithm"] != fedavg["algorithm"]


def test_sources_are_also_those_of_distances_schedules_and_links_of_the_client(tiny, tmp_path):
    def of(text, **settings):
        plugin.write_text(text)
        return sources_of(tiny(plugins=[str(plugin)], **settings))

    plugin = tmp_path / "mine.py"
    distance = "import fedkl\n@fedkl.register_distance\ndef mine(p, q): return p.kl(q)\n"
    link = (
        "from typing import ClassVar\nimport fedkl\n@fedkl.register_upload\n"
        "class Nothing(fedkl.Upload):\n    name: ClassVar[str] = 'nothing'\n"
        "    def __call__(self, move, key): return move\n"
    )
    plain = sources_of(tiny())
    one, two = (of(distance + more, algorithm__distance="mine") for more in ("", "# edited\n"))
    assert len({one["algorithm"], two["algorithm"], plain["algorithm"]}) == 3
    assert one["upload"] == plain["upload"]
    one, two = (of(link + more, upload__each=["nothing"]) for more in ("", "# edited\n"))
    assert len({one["upload"], two["upload"], plain["upload"]}) == 3
    assert one["algorithm"] == plain["algorithm"]


@pytest.mark.parametrize("data", [b"", b"x" * 20, b"\xff" * 40, wire.pack("state", {}, {})[:-1]])
def test_bytes_that_say_nothing_are_no_greeting(data):
    assert wire.kind_of(data) != GREETING
