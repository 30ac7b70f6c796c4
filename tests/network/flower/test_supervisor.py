"""A client stays connected: what has died is started again; what is hopeless is given up."""

import os
from pathlib import Path

import pytest

from fedkl.core.errors import UserError
from fedkl.network.client_process import ClientPlace
from fedkl.network.flower import supervisor
from fedkl.network.flower.supernode import SuperNode, Trouble
from fedkl.network.flower.supervisor import Supervisor
from fedkl.network.status import read_join_status

REFUSED = Trouble("the key is refused", passing=True)
OTHER = Trouble("the certificate is another's", passing=False)
KILLED = Trouble("it was killed", passing=True)
SILENT = Trouble("the server does not answer", passing=True)


class Node(SuperNode):
    """One whose state is set by the test."""

    def __init__(self):
        super().__init__("host:1", ClientPlace(Path("/none"), 0), Path("/none"), None, None)
        self.starts = 0
        self.runs = self.has_server = False
        self.why = self.refused = None
        self.has_answered = True
        self.is_over = False

    def start(self):
        self.starts += 1
        self.become(runs=True)

    def become(self, runs=True, has_server=False, why=None):
        self.runs, self.has_server, self.why = runs, has_server, why

    def alive(self):
        return self.runs

    def connected(self):
        return self.runs and self.has_server

    def trouble(self):
        return self.why

    def refusal(self):
        return self.refused

    def over(self):
        return self.is_over

    def answered(self):
        return self.has_answered


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when the test says so."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

        def time(self):
            return 1e9 + self.now

    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    return clock


@pytest.fixture
def watched(clock):
    node, said = Node(), []
    made = Supervisor(node, said.append)
    made.start()
    return made, node, said


def test_it_says_once_that_it_is_connected(watched):
    made, node, said = watched
    assert not made.poll()
    node.become(has_server=True)
    assert made.poll()
    assert made.poll()
    assert said == ["connected to host:1"]
    assert node.starts == 1


def test_a_server_that_goes_and_comes_is_said_and_nothing_is_started(watched, clock):
    made, node, said = watched
    node.become(has_server=True)
    made.poll()
    node.become(why=SILENT)
    for _ in range(3):
        clock.now += 1000
        assert not made.poll()
    node.become(has_server=True)
    assert made.poll()
    assert said == [
        "connected to host:1",
        "lost the connection to host:1: the server does not answer; trying again",
        "connected again to host:1",
    ]
    assert node.starts == 1


def test_one_that_died_is_started_again_after_a_pause(watched, clock):
    made, node, said = watched
    node.become(has_server=True)
    made.poll()
    node.become(runs=False, why=KILLED)
    made.poll()
    clock.now += 2.9
    made.poll()
    assert node.starts == 1
    clock.now += 0.2
    made.poll()
    assert node.starts == 2
    node.become(has_server=True)
    made.poll()
    assert said == [
        "connected to host:1",
        "lost the connection to host:1: it was killed; trying again",
        "connected again to host:1",
    ]


def until_started(made, node, clock):
    """Seconds until it is started again."""
    start, before = clock.now, node.starts
    while node.starts == before:
        made.poll()
        clock.now += 0.5
    return clock.now - start


def test_once_connected_it_tries_for_ever_but_not_so_often(watched, clock):
    made, node, said = watched
    node.become(has_server=True)
    made.poll()
    pauses = []
    for _ in range(40):
        node.become(runs=False, why=REFUSED)
        pauses.append(until_started(made, node, clock))
    assert pauses[0] < 5
    assert pauses[-1] > 29
    assert len(said) == 2


def test_a_key_that_stays_refused_is_given_up_after_a_while(watched, clock):
    made, node, said = watched
    start = clock.now

    def refuse():
        while True:
            node.become(runs=False, why=REFUSED)
            until_started(made, node, clock)
            made.poll()  # while it starts nobody knows what is wrong

    with pytest.raises(UserError, match=r"cannot join host:1: the key is refused, for 70 s \(see"):
        refuse()
    assert 70 < clock.now - start < 80
    assert node.starts > 10
    assert said == ["the key is refused; trying again"]


def test_a_server_that_never_answers_is_given_up_after_a_while(watched, clock):
    made, node, _ = watched
    node.become(why=SILENT)
    made.poll()
    clock.now += 71
    with pytest.raises(UserError, match="the server does not answer, for 70 s"):
        made.poll()


def test_one_that_is_slow_to_start_is_not_given_up(watched, clock):
    made, node, said = watched
    clock.now += 1000
    assert not made.poll()
    node.become(has_server=True)
    assert made.poll()
    assert said == ["connected to host:1"]


def test_what_is_hopeless_is_given_up_at_once(watched):
    made, node, said = watched
    node.become(runs=False, why=OTHER)
    with pytest.raises(UserError, match="cannot join host:1: the certificate is another's"):
        made.poll()
    assert said == []


def test_what_is_hopeless_may_change_once_it_was_connected(watched, clock):
    made, node, said = watched
    node.become(has_server=True)
    made.poll()
    node.become(runs=False, why=OTHER)
    until_started(made, node, clock)
    assert said[-1] == "lost the connection to host:1: the certificate is another's; trying again"


def test_a_client_that_cannot_take_part_is_given_up_also_when_it_is_connected(clock):
    node, said = Node(), []
    watched = Supervisor(node, said.append)
    watched.start()
    node.become(has_server=True)
    assert watched.poll()
    node.refused = "client 9 is not one of 0 to 3"
    sentence = "^cannot take part in what host:1 trains: client 9 is not one of 0 to 3$"
    with pytest.raises(UserError, match=sentence):
        watched.poll()


@pytest.mark.parametrize("heard", [True, False])
def test_a_client_that_cannot_take_part_stays_until_the_server_has_heard_why(clock, heard):
    node = Node()
    watched = Supervisor(node, lambda line: None)
    watched.start()
    node.become(has_server=True)
    node.refused, node.has_answered = "its world is another", False
    assert watched.poll()
    clock.now += supervisor.NOTIFY_TIMEOUT / 2
    assert watched.poll()
    if heard:
        node.has_answered = True
    else:
        clock.now += supervisor.NOTIFY_TIMEOUT
    with pytest.raises(UserError, match="its world is another"):
        watched.poll()


def test_that_the_run_is_over_is_said_once_and_known_when_the_server_has_heard(watched, clock):
    made, node, said = watched
    node.become(has_server=True)
    made.poll()
    assert not made.over()
    node.is_over, node.has_answered = True, False
    assert not made.over()
    node.has_answered = True
    assert made.over()
    assert made.over()
    node.is_over = False  # another run is served
    assert not made.over()
    node.is_over, node.has_answered = True, False
    assert not made.over()
    clock.now += 1.1 * supervisor.NOTIFY_TIMEOUT
    assert made.over()
    assert said == ["connected to host:1", "the run is over", "the run is over"]


def test_how_it_is_doing_is_written_down_for_others(watched, clock, tmp_path):
    made, node, _ = watched
    path = tmp_path / "status.json"

    def written():
        clock.now += 5
        made.poll()
        made.over()
        made.write(path)
        return read_join_status(path)

    found = written()
    assert (found.connected, found.address, found.over) == (False, "host:1", False)
    assert found.process == os.getpid()
    node.become(has_server=True)
    found = written()
    assert (found.connected, found.time - found.since) == (True, 0)
    assert written().since == found.since
    node.is_over = True
    assert written().over
    before = path.read_bytes()
    made.write(path)  # it was written just now
    assert path.read_bytes() == before
