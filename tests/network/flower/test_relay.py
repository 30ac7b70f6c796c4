"""The relay and the transport, over a socket, with a Grid that is none of Flower's."""

import socket
import threading
import time
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata, ObjectTree
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from waiting import PATIENCE

from fedkl.network.flower import NO_ANSWER, relay, relay_client
from fedkl.network.flower.relay_client import LostError, NodeAnswer, NodeMessage, RelayClient


class FakeGrid(Grid):
    """Answers each message by what it says, backwards."""

    def __init__(self):
        self.sent = {}
        self.given = set()
        self.gone = False
        self.whole = True
        self.over = threading.Event()

    def get_nodes(self):
        self._check()
        on, off = (SimpleNamespace(node_id=n, public_key=b"key", status=s)
                   for n, s in ((5, "online"), (6, "offline")))  # fmt: skip
        return [on, off]

    def push_messages(self, messages):
        self._check()
        if len(messages) > 1 and not self.whole:
            return []
        ids = []
        for message in messages:
            i = str(len(self.sent))
            self.sent[i] = message
            message.metadata.__dict__["_message_id"] = i
            message.metadata.__dict__["_src_node_id"] = 1
            ids.append(i)
        return [i if self.sent[i].metadata.dst_node_id != 66 else None for i in ids]

    @property
    def _runtime_client(self):
        """As Flower's own grid has one."""
        return SimpleNamespace(PullMessages=self._announced)

    def _announced(self, request):
        self._check()
        there = [i for i in request.message_ids if self.sent[i].content["work"]["blob"] != b"later"]
        there = [i for i in there if i not in self.given]
        self.given |= {*there}
        return PullAppMessagesResponse(
            messages_list=[ProtoMessage(metadata=Metadata(reply_to_message_id=i)) for i in there],
            message_object_trees=[ObjectTree() for _ in there],
        )

    def pull_messages(self, ids):
        """As Flower does: it gives what its client has been given."""
        self._check()
        given = self._client.PullMessages(None).messages_list
        assert [message.metadata.reply_to_message_id for message in given] == list(ids)
        return [reply for i in ids for reply in self._reply(self.sent[i])]

    def _reply(self, message):
        blob = message.content["work"]["blob"]
        if blob == b"never":  # as Flower waits for what was announced
            self.over.wait(2 * PATIENCE)
            return []
        if blob == b"poison":
            raise ValueError("what is that")
        if blob == b"fails":
            return [Message(Error(8, "it was killed"), reply_to=message)]
        if blob == b"hangs":
            return [Message(Error(NO_ANSWER, "no answer within 5 s"), reply_to=message)]
        if blob == b"raises":
            return [Message(Error(2, "no"), reply_to=message)]
        if blob == b"strange":
            return [Message(RecordDict({"else": ConfigRecord()}), reply_to=message)]
        content = ConfigRecord({"blob": blob[::-1], "client": 3})
        return [Message(RecordDict({"work": content}), reply_to=message)]

    def _check(self):
        if self.gone:
            raise ConnectionError("refused")


FakeGrid.__abstractmethods__ = frozenset()  # what the relay does not use


@pytest.fixture
def over(monkeypatch):
    """A transport and the grid at the other end."""
    for name in ("task_id", "run_id", "node_id"):  # what Flower sets before it runs an app
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    grid, ended = FakeGrid(), []
    ours, theirs = socket.socketpair()

    def serve():
        with theirs:
            try:
                relay.serve(grid, theirs)
            except ConnectionError as error:
                ended.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    transport = RelayClient(ours, lambda: None)
    yield transport, grid
    transport.close()
    grid.over.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert bool(ended) == grid.gone


def pulled(transport, ids, number):
    """So many answers, in the order of what was asked."""
    found, end = [], time.monotonic() + PATIENCE
    while len(found) < number:
        assert time.monotonic() < end, found
        found += transport.pull(ids)
        time.sleep(0.01)
    return sorted(found, key=lambda answer: answer.id)


def test_only_nodes_that_are_online_are_there(over):
    transport, _ = over
    assert transport.nodes() == {5: b"key"}


@pytest.mark.parametrize("whole", [True, False])
def test_messages_go_out_and_answers_come_back_in_whatever_order(over, whole):
    transport, grid = over
    grid.whole = whole
    ids = transport.push(
        [NodeMessage(5, b"abc", 60.0), NodeMessage(66, b"no", 1.0), NodeMessage(7, b"later", 2.0)]
    )
    assert ids == ["0", "", "2"]
    assert [m.metadata.ttl for m in grid.sent.values()] == [60.0, 1.0, 2.0]
    assert {m.metadata.message_type for m in grid.sent.values()} == {"query"}
    assert pulled(transport, {"2": 3, "0": 3}, 1) == [NodeAnswer("0", 5, 3, b"cba")]
    assert transport.pull({"2": 3, "0": 3}) == []


def test_what_fails_is_a_sentence(over):
    transport, _ = over
    ids = transport.push([NodeMessage(5, blob, 60.0) for blob in (b"fails", b"strange", b"ab")])
    assert pulled(transport, dict.fromkeys(ids, 100), 3) == [
        NodeAnswer("0", 5, None, "its app ended before it answered", lost=True),
        NodeAnswer("1", 5, None, "its answer is not one of fedkl's"),
        NodeAnswer("2", 5, 3, b"ba"),
    ]


def test_a_client_that_hangs_is_lost_and_one_that_raises_is_not(over):
    """What is lost is asked again as it was, so it changes no bit."""
    transport, _ = over
    ids = transport.push([NodeMessage(5, blob, 60.0) for blob in (b"hangs", b"raises")])
    assert pulled(transport, dict.fromkeys(ids, 100), 2) == [
        NodeAnswer("0", 5, None, "it has no answer: no answer within 5 s", lost=True),
        NodeAnswer("1", 5, None, "it failed: no"),
    ]


def test_an_answer_that_cannot_be_read_spoils_no_other(over):
    transport, _ = over
    ids = transport.push([NodeMessage(5, b"poison", 60.0), NodeMessage(6, b"ab", 60.0)])
    sentence = "its answer cannot be read: ValueError: what is that"
    assert pulled(transport, dict.fromkeys(ids, 100), 2) == [
        NodeAnswer("0", None, None, sentence),
        NodeAnswer("1", 6, 3, b"ba"),
    ]


def test_an_answer_that_is_too_large_is_a_sentence_and_not_handed_over(over):
    transport, _ = over
    ids = transport.push([NodeMessage(5, blob, 60.0) for blob in (b"x" * 1000, b"ab")])
    assert pulled(transport, dict(zip(ids, (999, 2), strict=True)), 2) == [
        NodeAnswer("0", 5, 3, "its answer of 1000 bytes is over the limit of 999"),
        NodeAnswer("1", 5, 3, b"ba"),
    ]


def test_an_answer_that_is_announced_and_never_comes_holds_up_nobody(over):
    transport, _ = over
    begins = time.monotonic()
    for blob in (b"never", b"ab"):
        ids = transport.push(
            [
                NodeMessage(5, b"never", 60.0),
                NodeMessage(6, blob, 60.0),
                NodeMessage(7, b"cd", 60.0),
            ]
        )
        found = pulled(transport, dict.fromkeys(ids, 100), 1 + (blob == b"ab"))
        assert [answer.node for answer in found] == ([6, 7] if blob == b"ab" else [7])
        assert transport.nodes() == {5: b"key"}
    assert time.monotonic() - begins < PATIENCE


def test_what_nobody_asks_for_is_not_kept_for_ever(over, monkeypatch):
    transport, _ = over
    monkeypatch.setattr(relay, "LATE_WINDOW", 0.2)
    (old,) = transport.push([NodeMessage(5, b"ab", 0.1)])
    time.sleep(0.5)
    (new,) = transport.push([NodeMessage(5, b"ab", 60.0)])
    assert [answer.id for answer in pulled(transport, {new: 9}, 1)] == [new]
    assert transport.pull({old: 9}) == []


def test_without_the_superlink_the_transport_is_lost(over):
    transport, grid = over
    ids = transport.push([NodeMessage(5, b"later", 60.0)])
    grid.gone = True
    with pytest.raises(LostError, match=r"lost the SuperLink \(ConnectionError: refused\)"):
        pulled(transport, dict.fromkeys(ids, 100), 1)
    with pytest.raises(LostError, match=r"the relay (has ended|cannot be reached)"):
        transport.nodes()


def test_a_relay_that_is_silent_is_left_when_the_superlink_has_ended():
    ours, theirs = socket.socketpair()
    with theirs:
        transport = RelayClient(ours, lambda: "Flower's superlink has ended")
        with pytest.raises(LostError, match="Flower's superlink has ended"):
            transport.nodes()
        transport.close()


def test_large_and_empty_bytes_arrive_as_they_were():
    ours, theirs = socket.socketpair()
    blobs = [b"", bytes(range(256)) * 20_000, b"x"]
    thread = threading.Thread(target=relay_client.send_frame, args=(ours, {"a": [1, "ü"]}, blobs))
    with ours, theirs:
        thread.start()
        assert relay_client.receive_frame(theirs) == relay_client.Frame({"a": [1, "ü"]}, blobs)
        thread.join()
        ours.close()
        assert relay_client.receive_frame(theirs) is None
