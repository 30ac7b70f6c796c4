"""What the tests of the network share: an engine whose clients answer bytes with bytes."""

import pytest

from fedkl.engines import Failure
from fedkl.network.client import NetworkClient
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.messages import new_federation, new_nonce, new_turn
from fedkl.network.wire import MessageError
from fedkl.server.loop import Federation


class Loopback:
    """Clients as they are in a network, but for the network.

    Args:
        config: what to train.
        folder: in which each client has its own.
        federation: its name; None: a new one.
        worlds: the tables of those clients' worlds that have one of their own.
    """

    def __init__(self, config, folder, federation=None, worlds=None):
        self.exchange = Exchange(config, federation or new_federation())
        self.federation = None
        """Set afterwards: an engine is there before the loop."""
        self.folder = folder
        self.residents = {}
        self.floor = self.turn = 0
        self.sent = []
        """All requests and replies."""
        self.lost = set()
        """Clients whose process is made anew for every message."""
        self.tamper = lambda client, round, answer: answer
        self._worlds = worlds or {}

    def resident(self, client):
        if client in self.lost:
            self.residents.pop(client, None)
        if client not in self.residents:
            folder, world = self.folder / str(client), self._worlds.get(client)
            self.residents[client] = NetworkClient(folder, client, world)
        return self.residents[client]

    def run(self, work, model, jobs, key):
        round = int(self.federation.state.round)
        for job in jobs:
            self.turn = new_turn(self.turn)
            at = RequestStamp(round, self.turn, self.floor, new_nonce())
            try:
                request = self.exchange.request(work, model, job, key, at)
            except MessageError as error:
                yield job.client, Failure(str(error))
                continue
            reply = self.resident(job.client).answer(request)
            self.sent.append((request, reply))
            answer = self.exchange.result(reply, work, model, job, at)
            yield job.client, self.tamper(job.client, round, answer)

    def keep(self, round, clients):
        """Clients hear of it by the `since` of what they are asked next."""

    def saved(self, oldest):
        self.floor = oldest

    def save(self):
        return {}

    def restore(self, saved):
        assert not saved

    def report(self):
        return {}

    def close(self):
        for resident in self.residents.values():
            resident.close()


@pytest.fixture
def over(tmp_path):
    """Makes a federation whose clients are asked by bytes, and its engine."""
    made = []

    def make(config, federation=None, worlds=None, folder="clients"):
        engine = Loopback(config, tmp_path / folder, federation, worlds)
        loop = engine.federation = Federation(config, engine)
        made.append(engine)
        return loop, engine

    yield make
    for engine in made:
        engine.close()
