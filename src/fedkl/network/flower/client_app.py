"""The app that Flower runs on a client, a new process for every message.

It forwards a message to the client's resident process, and returns the answer. Bytes that the
client's server has not signed are dropped. A message has a record `work` with the entry `blob`; a
reply has the client's number beside it. An empty message asks only for that number.
"""

from __future__ import annotations

import threading

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkl.core.errors import UserError
from fedkl.core.text import redact_paths
from fedkl.network import client_process
from fedkl.network.client_process import ClientPlace
from fedkl.network.flower import BLOB, CLIENT, NO_ANSWER, RECORD
from fedkl.network.flower.place_file import read_place
from fedkl.network.signatures import ForgedError
from fedkl.network.sockets import NoAnswerError

FAILED = 2
"""Flower's error code of an app that raised."""
MAX_MARGIN = 5.0
"""Seconds of a message's time to live that are kept for the way back; at most a quarter of it."""
WAKE_INTERVAL = 0.5
app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Answer a query of Flower's."""
    return answer(message)


def answer(message: Message) -> Message:
    """Return the reply to a message: the client's answer, or an error in one sentence."""
    try:
        place, verifier = read_place()
        blob = _blob_of(message)
        # Before all else: a forged message with no time left would stop the process that trains.
        content = blob if verifier is None else verifier.content(blob)
        answered = _deliver(place, content, _seconds(message)) if content else b""
    except (ForgedError, NoAnswerError, UserError) as error:
        # The client's own log has the whole error.
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
    """Return the seconds for the process, so that its answer arrives in time."""
    ttl = message.metadata.ttl
    return ttl - min(MAX_MARGIN, ttl / 4)


def _deliver(place: ClientPlace, blob: bytes, seconds: float) -> bytes:
    """Deliver a message; end a process that gave no answer, so that the next one starts another.

    One that compiles is left to it: a new one would begin again, and might never come to an end.
    """
    try:
        return _deliver_in_thread(place, blob, seconds)
    except NoAnswerError:
        if client_process.is_compiling(place.folder):
            raise NoAnswerError(f"it still compiles after {seconds:g} s, and goes on") from None
        client_process.stop(place, seconds=0.5)
        raise


def _deliver_in_thread(place: ClientPlace, blob: bytes, seconds: float) -> bytes:
    """Deliver a message from another thread, and wake up often meanwhile.

    When the SuperNode is gone, Flower raises a signal in a thread; Python handles it only in the
    main thread, between two system calls.
    """
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
