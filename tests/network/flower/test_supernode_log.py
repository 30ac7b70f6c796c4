"""What Flower writes into its log, in a sentence."""

import pytest

from fedkl.network.flower.supernode import NodeLog, Trouble

STARTED = "\x1b[92mINFO \x1b[0m:      Starting Flower SuperNode\n"
CONNECTED = "\x1b[92mINFO \x1b[0m:      SuperNode ID: 720968228677643397\n"
LOST = "\x1b[93mWARNING \x1b[0m:   Connection attempt failed, retrying in 0.27 seconds\n"
FOUND = "\x1b[92mINFO \x1b[0m:      Connection successful after 7.31 seconds and 4 tries.\n"
EXIT = """\x1b[91mERROR \x1b[0m:     Exit Code: 305
Failed to initialize the connection to the SuperLink.
%s
The SuperNode could not establish a connection to the SuperLink.

For more information, visit: <https://flower.ai/docs/framework/1.41/en/ref-exit-codes/305.html>
"""
NOT_VERIFIED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: %s (_ssl.c:1016)"


@pytest.fixture
def logged(tmp_path):
    """A log that has something in it."""

    def write(text, start=0):
        (tmp_path / "log").write_text(text)
        return NodeLog(tmp_path / "log", start)

    return write


@pytest.mark.parametrize(
    ("log", "connected"),
    [
        ("", None),
        (STARTED, None),
        (STARTED + LOST, False),
        (STARTED + CONNECTED, True),
        (STARTED + LOST + FOUND + CONNECTED, True),
        (STARTED + CONNECTED + LOST + LOST, False),
        (STARTED + CONNECTED + LOST + FOUND, True),
        (STARTED + CONNECTED + LOST + FOUND + LOST, False),
    ],
)
def test_the_last_word_says_whether_the_server_is_there(logged, log, connected):
    assert logged(log).connected() is connected


def test_it_is_remembered_however_much_is_written_afterwards(logged, tmp_path):
    log = logged("")
    told = []
    with (tmp_path / "log").open("a") as file:
        for text in (CONNECTED, "x" * 200_000, LOST[:30], LOST[30:], "y" * 200_000, FOUND):
            file.write(text)
            file.flush()
            told.append(log.connected())
    assert told == [True, True, True, False, False, True]


def test_what_an_earlier_one_wrote_does_not_count(logged):
    log = logged(CONNECTED, start=len(CONNECTED))
    assert log.connected() is None


def test_nothing_is_wrong_while_it_starts_or_is_connected(logged):
    assert logged("").trouble(None) is None
    assert logged(STARTED).trouble(None) is None
    assert logged(STARTED + LOST + FOUND + CONNECTED).trouble(None) is None


def test_a_server_that_does_not_answer_may_come_back(logged):
    assert logged(STARTED + LOST).trouble(None) == Trouble("the server does not answer", True)
    assert logged(STARTED + CONNECTED + LOST).trouble(None).passing


@pytest.mark.parametrize(
    ("said", "sentence", "passing"),
    [
        ("[code: 2004] Failed to activate", "does not know the key of this client, or", True),
        ("[code: 2001] Registration", "wants a key of each client", False),
        (NOT_VERIFIED % "certificate has expired", "has expired", False),
        (NOT_VERIFIED % "certificate is not yet valid", "is not valid yet", False),
        (NOT_VERIFIED % "unable to get local issuer certificate", "another authority", False),
        (
            NOT_VERIFIED % "IP address mismatch, certificate is not valid for '10.0.0.1'",
            "not for this address",
            False,
        ),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS", False),
    ],
)
def test_why_it_could_not_join_is_one_sentence(logged, said, sentence, passing):
    trouble = logged(STARTED + EXIT % said).trouble(1)
    assert sentence in trouble.sentence
    assert "\n" not in trouble.sentence
    assert trouble.passing == passing


def test_what_went_wrong_before_it_was_connected_is_no_reason_for_its_end(logged):
    log = STARTED + EXIT % "[code: 2004] Failed to activate" + CONNECTED + "INFO: all over\n"
    assert logged(log).trouble(1) == Trouble("Flower's SuperNode ended: all over", True)


def test_what_nobody_knows_is_said_in_flowers_last_words(logged):
    assert logged("").trouble(1) == Trouble("Flower's SuperNode ended: it said nothing", True)
    log = STARTED + EXIT % "something new"
    assert (
        logged(log).trouble(1).sentence.startswith("Flower's SuperNode ended: The SuperNode could")
    )


def test_a_signal_is_a_reason(logged):
    trouble = logged(STARTED + CONNECTED).trouble(-9)
    assert trouble == Trouble("Flower's SuperNode was ended by signal 9", True)


@pytest.mark.parametrize("how", ["removed", "cut off", "replaced"])
def test_a_log_that_is_rotated_is_read_on(logged, tmp_path, how):
    path, log = tmp_path / "log", logged("x" * 500 + CONNECTED)
    assert log.connected()
    if how == "cut off":
        path.write_text("")
    else:
        path.rename(tmp_path / "old")
        if how == "replaced":
            path.write_text("")
    assert log.connected()
    path.write_text(LOST)
    assert not log.connected()


def test_it_is_known_whether_all_was_answered(tmp_path):
    path = tmp_path / "log"
    path.write_text("INFO: Receiving: query message (ID: 1)\n")  # of another SuperNode
    log = NodeLog(path, path.stat().st_size)
    assert log.answered()
    with path.open("a") as file:
        file.write("INFO: Receiving: query message (ID: 2)\nINFO: Sending: query message (ID: 3)\n")
    assert not log.answered()
    with path.open("a") as file:
        file.write("INFO: Sent successfully\n")
    assert log.answered()
