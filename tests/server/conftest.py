"""What the tests of the server share: an engine of their own between the loop and the clients."""

import pytest

from fedkl.clients.work import Evaluate
from fedkl.server.loop import Federation
from fedkl.server.setup import local_engine


class Between:
    """An engine between the loop and the clients: it counts, and tampers with what they answer.

    Args:
        config: what to train; the clients are where they would be without it.
        tamper: from client, attempt (from 1) and answer to what the server gets to see.
    """

    def __init__(self, config, tamper=lambda client, attempt, answer: answer):
        self._clients = local_engine(config)
        self._tamper = tamper
        self.asked = []
        """The jobs of each call that trains."""
        self.kept = []
        """What the server accepted: round and clients."""
        self._attempts = {}

    def run(self, work, model, jobs, key):
        answers = self._clients.run(work, model, jobs, key)
        if isinstance(work, Evaluate):
            yield from answers
            return
        self.asked.append(list(jobs))
        for client, answer in answers:
            attempt = self._attempts[client] = self._attempts.get(client, 0) + 1
            yield client, self._tamper(client, attempt, answer)

    def keep(self, round, clients):
        self.kept.append((round, list(clients)))
        self._clients.keep(round, clients)

    def saved(self, oldest):
        self._clients.saved(oldest)

    def save(self):
        return self._clients.save()

    def restore(self, saved):
        self._clients.restore(saved)

    def report(self):
        return self._clients.report()

    def close(self):
        self._clients.close()


@pytest.fixture
def between():
    """Makes a federation whose clients' answers go through `tamper`, and its engine."""

    def make(config, tamper=lambda client, attempt, answer: answer):
        engine = Between(config, tamper)
        return Federation(config, engine), engine

    return make
