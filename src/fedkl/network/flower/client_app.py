"""The app that Flower runs on a client, anew for every message: it hands bytes to the client's
resident process, and what that answers back. Bytes that its server has not signed for it are not
looked at.

A message has a record `work` with the entry `blob`; so has a reply, with the client's number beside
it. Content that is empty asks for nothing else than that number.
"""

from __future__ import annotations

import threading

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkl.core.errors import UserError
from fedkl.core.text import redact_paths
from fedkl.network import client_process
from fedkl.network.client_process import Place
from fedkl.network.flower import NO_ANSWER
from fedkl.network.flower.place_file import read_place
from fedkl.network.signatures import ForgedError
from fedkl.network.sockets import NoAnswerError

RECORD, BLOB, CLIENT = "work", "blob", "client"
FAILED = 2
"""Flower's own code for an app that raised."""
MAX_MARGIN = 5.0
"""Seconds of a message's time that are left for the way back; at most a quarter of it."""
WAKE_INTERVAL = 0.5
app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Flower's door."""
    return answer(message)


def answer(message: Message) -> Message:
    """What a client says to a message: bytes, or in one sentence why there are none."""
    try:
        place, verifier = read_place()
        blob = _blob_of(message)
        # Before all else: who is not the server could end the process that trains, by a message
        # that has no time.
        content = blob if verifier is None else verifier.content(blob)
        answered = _deliver(place, content, _seconds(message)) if content else b""
    except (ForgedError, NoAnswerError, UserError) as error:
        # All of it is in the client's own log.
        print(f"fedkl: {error}", flush=True)
        code = NO_ANSWER if isinstance(error, NoAnswerError) else FAILED
        return Message(Error(code, redact_paths(str(error))), reply_to=message)
    record = ConfigRecord({BLOB: answered, CLIENT: place.client})
    return Message(RecordDict({RECORD: record}), reply_to=message)


def _blob_of(message: Message) -> bytes:
    record = message.content.get(RECORD)
    blob = record.get(BLOB) if isinstance(record, ConfigRecord) else None
    if not isinstance(blob, bytes):
        raise UserError("the message is not one of fedkl's")
    return blob


def _seconds(message: Message) -> float:
    """How long the process may take, so that what it says is there before nobody waits for it."""
    ttl = message.metadata.ttl
    return ttl - min(MAX_MARGIN, ttl / 4)


def _deliver(place: Place, blob: bytes, seconds: float) -> bytes:
    """Deliver a message; end a process that gave no answer, so that the next one starts another."""
    try:
        return _deliver_in_thread(place, blob, seconds)
    except NoAnswerError:
        client_process.stop(place, seconds=0.5)
        raise


def _deliver_in_thread(place: Place, blob: bytes, seconds: float) -> bytes:
    """Waits in a thread of its own: when the SuperNode is gone, Flower raises a signal in a thread,
    and Python hears of it only here, and only between two calls to the system."""
    answers: list[bytes | Exception] = []

    def wait() -> None:
        try:
            answers.append(client_process.deliver(place, blob, seconds))
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(WAKE_INTERVAL)
    (answered,) = answers
    if isinstance(answered, Exception):
        raise answered
    return answered
