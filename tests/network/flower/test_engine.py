"""The server's engine, with clients that answer by bytes and a transport of the test's own."""

import jax
import numpy as np
import pytest

import fedkl
from fedkl.clients.records import Trained
from fedkl.clients.work import Evaluate, Train
from fedkl.core.errors import StalledError
from fedkl.engines import Engine, Failure
from fedkl.engines.in_process import InProcess
from fedkl.network import messages, wire
from fedkl.network.client import NetworkClient
from fedkl.network.exchange import RequestStamp
from fedkl.network.flower import fleet as fleet_module
from fedkl.network.flower.engine import Flower, Screen
from fedkl.network.flower.fleet import Fleet
from fedkl.network.flower.relay_client import LostError, NodeAnswer
from fedkl.network.messages import new_federation, read_request
from fedkl.network.status import FleetStatus, read_serve_status
from fedkl.server.loop import Federation

pytestmark = pytest.mark.usefixtures("quick_compilation")
QUICK = {"evaluation__every": 100, "evaluation__clients": 1, "federation__retries": 0}


class FakeCarrier:
    """Client n is node 100 + n, and has answered as soon as it is asked."""

    def __init__(self, folder, clients):
        self.folder = folder
        self.there = set(range(clients))
        self.residents = {}
        self.waiting = []
        self.sent = 0
        self.trained = []
        """Requests to train, with the seconds that each has."""
        self.tamper = lambda client, round, answer: [answer]
        """What comes of an honest answer to train."""
        self.late = set()
        """Answers that come whether they are asked for or not."""
        self.lost = 0
        """How many more calls fail."""
        self.closed = 0

    def nodes(self):
        self._fail()
        return {100 + client: b"" for client in sorted(self.there)}

    def push(self, sent):
        self._fail()
        ids = []
        for message in sent:
            client = message.node - 100
            self.sent += 1
            ids.append(str(self.sent))
            answer = NodeAnswer(ids[-1], message.node, client, self._resident(client, message.blob))
            if wire.kind_of(message.blob) == messages.GREETING:
                self.waiting.append(answer)
                continue
            request = read_request(message.blob)
            if isinstance(request.work, Train):
                self.trained.append((request, message.seconds))
                self.waiting += self.tamper(client, request.round, answer)
            else:
                self.waiting.append(answer)
        return ids

    def pull(self, ids):
        """Also what nobody asked for any more."""
        self._fail()
        asked = {*ids, *self.late}
        came = [answer for answer in self.waiting if answer.id in asked]
        self.waiting = [answer for answer in self.waiting if answer.id not in asked]
        return came

    def close(self):
        self.closed += 1

    def _resident(self, client, data):
        if client not in self.residents:
            self.residents[client] = NetworkClient(self.folder / str(client), client)
        return self.residents[client].answer(data)

    def _fail(self):
        if self.lost:
            self.lost -= 1
            raise LostError("the relay has ended")


@pytest.fixture
def over(tmp_path):
    """Makes a federation whose engine is Flower's, and its transport; tells what was shown."""

    def make(config, patience=0.2):
        transport = FakeCarrier(tmp_path, config.federation.clients)
        lines = []
        engine = Flower(config, new_federation(), patience, Screen(lines.append, lambda _: None))
        federation = Federation(config, engine)
        engine.start(Fleet(lambda: transport, None, lines.append, engine.greet))
        return federation, transport, lines

    return make


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def without(config, absent):
    """A federation in this process, after its rounds, where some clients fail to train in some."""

    class Between(InProcess):
        def run(self, work, model, jobs, key):
            round = int(federation.state.round)
            for client, answer in super().run(work, model, jobs, key):
                gone = isinstance(answer, Trained) and absent(client, round)
                yield client, Failure("gone") if gone else answer

    federation = Federation(config)
    federation.engine.__class__ = Between
    list(federation)
    return federation


def test_it_is_an_engine(over, tiny):
    federation, transport, _ = over(tiny(**QUICK))
    assert isinstance(federation.engine, Engine)
    assert federation.engine.save() == {}
    assert federation.engine.report() == {}
    federation.engine.close()
    federation.engine.close()
    assert transport.closed == 1


@pytest.mark.parametrize("algorithm", ["fedkl", "scaffold"])
def test_it_learns_the_same_bits_as_in_this_process(over, tiny, algorithm):
    config = tiny(algorithm, **QUICK)
    federation, transport, lines = over(config)
    records = list(federation)
    assert same_bits(federation.state, without(config, lambda *_: False).state)
    assert all(record["rejected"] == [] for record in records)
    assert [request.round for request, _ in transport.trained] == [0, 0, 1, 1, 2, 2]
    turns = [request.turn for request, _ in transport.trained]
    assert sorted({*turns}) == turns
    assert {seconds for _, seconds in transport.trained} == {config.federation.deadline}
    assert sum(line.startswith("2 of 2 clients answered in ") for line in lines) == 3


def test_clients_hear_what_the_server_will_not_go_back_to(over, tiny):
    federation, transport, _ = over(tiny(**QUICK))
    for _ in range(3):
        federation.run_round()
        federation.saved(max(0, int(federation.state.round) - 1))
    assert [request.floor for request, _ in transport.trained] == [0, 0, 0, 0, 1, 1]


FAULTS = {
    "never": (lambda a: [], "it did not answer within 0.2 s"),
    "another node": (
        lambda a: [a._replace(node=a.node + 1)],
        "a node that is not its own answered for it",
    ),
    "a node that nobody knows": (
        lambda a: [a._replace(node=None)],
        "a node that is not its own answered for it",
    ),
    "damaged": (
        lambda a: [a._replace(content=a.content[:-4] + b"abcd")],
        "the reply is damaged: its checksum does not match",
    ),
    "nothing": (
        lambda a: [a._replace(content=b"")],
        "it is not a reply of fedkl, or a damaged one",
    ),
    "a sentence": (
        lambda a: [a._replace(content="it failed: \x1b[31m no\nroom " + "x" * 500)],
        "it failed: ?[31m no room " + "x" * 172 + "...",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_client_that_fails_is_left_out_as_if_it_were_not_there(over, tiny, fault):
    config = tiny("scaffold", federation__deadline=0.2, **QUICK)
    culprit = next(iter(over(config)[0]))["selected"][0]
    change, reason = FAULTS[fault]
    federation, transport, _ = over(config)
    transport.tamper = lambda client, round, a: change(a) if client == culprit else [a]
    records = list(federation)
    assert records[0]["rejected"] == [{"client": culprit, "reason": reason}]
    assert same_bits(federation.state, without(config, lambda c, _: c == culprit).state)


def test_who_answers_who_fails_and_who_is_asked_again_is_known(over, tiny, tmp_path):
    config = tiny(**(QUICK | {"federation__retries": 2}))
    culprit, other = next(iter(over(config)[0]))["selected"]
    federation, transport, lines = over(config)
    federation.engine.status = FleetStatus(tmp_path / "status.json")
    federation.engine._fleet.on_connected = federation.engine.status.connected
    lost = NodeAnswer("", None, None, "it has no answer: none within 5 s", lost=True)
    tries = []

    def hang(client, round, answer):
        if client != culprit or len(tries) == 2:
            return [answer]
        tries.append(round)
        return [lost._replace(id=answer.id, node=answer.node)]

    transport.tamper = hang
    record = federation.run_round()
    reason = "it has no answer: none within 5 s"
    assert record["retried"] == [{"client": culprit, "reason": reason}] * 2
    assert lines.count(f"client {culprit} is asked again: {reason}") == 2
    assert same_bits(federation.state, next_state_of(config))
    federation.engine.close()
    found = {one.client: one for one in read_serve_status(tmp_path / "status.json").clients}
    counts = {c: (one.answers, one.failures, one.retries) for c, one in found.items()}
    assert (counts[culprit], counts[other]) == ((1, 2, 2), (1, 0, 0))
    assert found[culprit].reason == reason
    assert found[culprit].latency > 0
    assert not any(one.connected for one in found.values())


def next_state_of(config):
    federation = Federation(config)
    federation.run_round()
    return federation.state


def test_a_client_that_is_not_connected_is_left_out_and_not_asked_again(over, tiny):
    config = tiny(**(QUICK | {"federation__retries": 3}))
    culprit = next(iter(over(config)[0]))["selected"][0]
    federation, transport, lines = over(config)
    transport.there.remove(culprit)
    records = list(federation)
    assert records[0]["rejected"] == [{"client": culprit, "reason": "it is not connected"}]
    assert culprit not in {request.client for request, _ in transport.trained}
    assert same_bits(federation.state, without(config, lambda c, _: c == culprit).state)
    assert f"client {culprit} is gone (3 connected)" in lines


def test_an_answer_that_comes_too_late_or_twice_is_not_heard(over, tiny):
    config = tiny("scaffold", federation__deadline=0.2, **QUICK)
    culprit = next(iter(over(config)[0]))["selected"][0]
    federation, transport, _ = over(config)
    late = []

    def tamper(client, round, answer):
        if round == 0 and client == culprit:
            late.append(answer)
            transport.late.add(answer.id)
            return []
        return [*(late if round else []), answer, answer]

    transport.tamper = tamper
    records = list(federation)
    assert late
    assert [len(record["rejected"]) for record in records] == [1, 0, 0]
    gone = without(config, lambda client, round: (client, round) == (culprit, 0))
    assert same_bits(federation.state, gone.state)


def test_a_round_waits_for_a_quorum_and_then_gives_up(over, tiny):
    federation, transport, lines = over(tiny(federation__quorum=2, **QUICK))
    federation.run_round()
    state = federation.state
    transport.there = set()
    sentence = r"^only 0 of 4 clients are connected after 0.2 s, and 2 are needed$"
    with pytest.raises(StalledError, match=sentence):
        federation.run_round()
    assert federation.state is state
    assert "waiting for clients: 0 of clients " in " ".join(lines)
    transport.there = {0, 1, 2, 3}
    federation.run_round()


def test_clients_that_are_gone_for_good_make_empty_rounds_and_not_the_end_of_all(over, tiny):
    """Who is selected follows from seed and round: to give up would be to give up for ever."""
    config = tiny(federation__rounds=8, federation__clients_per_round=1, **QUICK)
    selected = [record["selected"] for record in over(config)[0]]
    gone = {*selected[0]}
    federation, transport, _ = over(config, 0.05)
    transport.there -= gone
    records = list(federation)
    assert [record["selected"] for record in records] == selected
    assert [record["note"] is None for record in records] == [{*s} != gone for s in selected]
    rejected = [{"client": client, "reason": "it is not connected"} for client in gone]
    assert records[0]["rejected"] == rejected


@pytest.mark.parametrize(("quorum", "starts"), [(1, True), (2, False)])
def test_it_starts_with_a_quorum_and_without_all_whom_a_round_selects(
    tmp_path, tiny, monkeypatch, quorum, starts
):
    monkeypatch.setattr(fleet_module, "SETTLE_TIME", 0.0)
    config = tiny(federation__quorum=quorum, **QUICK)
    transport = FakeCarrier(tmp_path, 1)
    engine = Flower(config, new_federation(), 0.1, Screen(lambda _: None, lambda _: None))
    fleet = Fleet(lambda: transport, None, lambda _: None, engine.greet)
    if starts:
        engine.start(fleet)
        return
    sentence = r"only 1 of 4 clients are connected \(client 0\) after 0.1 s, and 2 are needed"
    with pytest.raises(StalledError, match=sentence):
        engine.start(fleet)


@pytest.mark.parametrize("during", ["asking", "waiting"])
def test_a_server_of_flower_that_is_lost_is_started_again(over, tiny, during):
    config = tiny(**(QUICK | {"federation__retries": 1}))
    federation, transport, lines = over(config)
    federation.run_round()

    def lose(client, round, answer):
        transport.lost = 1
        return []

    if during == "asking":
        transport.lost = 1
    else:
        transport.tamper = lose
        federation.engine.run(Train(), *_asked(federation))  # to see that it begins at once
        assert transport.lost == 1
        transport.lost = 0
    transport.tamper = lambda client, round, answer: [answer]
    records = list(federation)
    assert [record["rejected"] for record in records] == [[], []]
    if during == "asking":
        assert "the relay has ended; it is started again" in lines
        assert transport.closed == 1
    assert same_bits(federation.state, without(config, lambda *_: False).state)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_server_of_flower_that_is_lost_while_clients_are_waited_for_is_started_again(
    tmp_path, tiny, times
):
    transport, lines = FakeCarrier(tmp_path, 4), []
    transport.lost = times
    engine = Flower(tiny(**QUICK), new_federation(), 0.1, Screen(lines.append, lambda _: None))
    engine.start(Fleet(lambda: transport, None, lambda _: None, engine.greet))
    assert lines == ["the relay has ended; it is started again"] * times


@pytest.mark.parametrize("during", ["start", "asking", "waiting"])
def test_a_server_of_flower_that_is_lost_again_and_again_ends_in_one_sentence(over, tiny, during):
    federation, transport, _ = over(tiny(**QUICK))
    answers = federation.engine.run(Train(), *_asked(federation))
    transport.lost = 1000
    sentence = "^Flower's server was lost 4 times in a row: the relay has ended$"
    do = {
        "start": lambda: federation.engine.start(federation.engine._fleet),
        "asking": federation.run_round,
        "waiting": lambda: list(answers),
    }
    with pytest.raises(fedkl.UserError, match=sentence):
        do[during]()


def _asked(federation):
    from fedkl.engines import Job
    from fedkl.server.state import broadcast

    words = np.zeros(2, np.uint32)
    return broadcast(federation.state.model), [Job(0, words, round=1)], words


def test_what_was_lost_on_the_way_is_asked_again(over, tiny):
    config = tiny(**(QUICK | {"federation__retries": 1}))
    federation, transport, lines = over(config)
    model, jobs, words = _asked(federation)
    answers = federation.engine.run(Train(), model, jobs, words)
    transport.lost = 1
    assert list(answers) == [(0, Failure("what it was asked was lost", lost=True))]
    assert lines[-2] == "the relay has ended; it is started again"
    assert lines[-1].startswith("0 of 1 clients answered in 0.")
    # Nobody is busy with what was lost.
    assert federation.evaluation(Evaluate(2, False))().failures == {}


def test_whoever_has_enough_closes_it(over, tiny):
    federation, transport, _ = over(tiny(**QUICK))
    model, jobs, words = _asked(federation)
    answers = federation.engine.run(Train(), model, jobs, words)
    assert len(transport.trained) == 1
    answers.close()
    assert len(transport.waiting) == 1


def test_a_client_that_is_still_training_is_not_waited_for_to_evaluate(over, tiny):
    config = tiny(federation__extra=1, federation__deadline=600.0, federation__retries=0)
    culprit = next(iter(over(config)[0]))["selected"][0]
    federation, transport, _ = over(config)
    late = []
    transport.tamper = lambda client, round, a: [a] if client != culprit else late.append(a) or []
    record = federation.run_round()
    reason = "it is busy with what it was asked before"
    assert record["unevaluated"] == [{"client": culprit, "reason": reason}]
    assert culprit not in record["evaluated"]
    assert record["seconds"] < 60
    transport.waiting += late
    returns, failures = federation.evaluation(Evaluate(2, False))()
    assert failures == {}
    assert np.isfinite(returns).all()
    assert transport.waiting == []  # what came late was fetched, and heard by nobody


def test_an_answer_may_be_as_large_as_an_honest_one_and_not_much_larger(over, tiny, monkeypatch):
    federation, transport, _ = over(tiny(**QUICK))
    pull, seen = transport.pull, []

    def look(ids):
        came = pull(ids)
        seen.extend((ids[answer.id], len(answer.content)) for answer in came)
        return came

    monkeypatch.setattr(transport, "pull", look)
    federation.run_round()
    assert len(seen) == 2
    assert all(size <= largest < size + 2_000_000 for largest, size in seen)
    model, (job,), _ = _asked(federation)
    at = RequestStamp(1, 1, 0, "")
    huge = b"x" * (federation.engine._exchange.largest(Train(), model, job) + 1)
    reason = federation.engine._exchange.result(huge, Train(), model, job, at).reason
    assert "is over the limit of" in reason


def test_what_comes_too_late_does_not_stay_in_flowers_memory(over, tiny):
    config = tiny(federation__deadline=0.2, **QUICK)
    federation, transport, _ = over(config)
    late = []
    transport.tamper = lambda client, round, a: late.append(a) or [] if round == 0 else [a]
    federation.run_round()
    assert len(late) == 2
    transport.waiting += late
    assert federation.run_round()["rejected"] == []
    assert transport.waiting == []


def test_an_episode_cannot_be_looked_at_from_afar(over, tiny):
    federation, _, _ = over(tiny())
    with pytest.raises(fedkl.UserError, match="the client's data, and never leaves it"):
        federation.film(0, True)


def test_clients_hear_that_the_run_is_over_and_a_server_that_is_lost_is_said(over, tiny):
    federation, transport, lines = over(tiny(**QUICK))
    for client in transport.there:  # as `fedkl join` makes it
        (transport.folder / str(client)).mkdir(exist_ok=True)
    federation.engine.farewell()
    assert lines[-1] == f"the run is over, as {len(transport.there)} clients heard"
    assert all((transport.folder / str(client) / "over").exists() for client in transport.there)
    transport.lost = 1
    federation.engine.farewell()
    assert lines[-1] == "clients were not told that the run is over: the relay has ended"
