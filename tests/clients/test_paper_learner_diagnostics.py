"""Diagnostics beside a round: it has the same bits without them."""

import jax
import numpy as np
import pytest

from fedkl.clients import paper_learner
from fedkl.clients.records import Start
from fedkl.clients.round import local_round
from fedkl.clients.sources import Traced
from fedkl.learning.diagnostics import DIAGNOSTICS
from fedkl.worlds import PointTarget

KEY = jax.random.key(5)


@pytest.fixture(scope="module", autouse=True)
def _always_quick():
    """Here they are not: other programs are compared as users have them."""


def test_a_round_has_the_same_bits_without_diagnostics(monkeypatch, point, start):
    task = point()
    begun = Start(*start(task), KEY)
    params = jax.tree.map(lambda x: x[0], PointTarget().clients(1, KEY))
    source = Traced(task.world, params)

    def outcome():
        # A function of its own, which nothing compiled before is taken for.
        return jax.jit(lambda *given: local_round(*given))(task, begun, source)

    told, kept = outcome()
    monkeypatch.setattr(paper_learner, "diagnose", lambda *_: {})
    silent, alike = outcome()
    assert set(told.metrics) - set(silent.metrics) == set(DIAGNOSTICS)
    rest = {name: told.metrics[name] for name in silent.metrics}
    pairs = ((told.update, silent.update), (kept, alike), (rest, silent.metrics))
    for one, other in pairs:
        jax.tree.map(np.testing.assert_array_equal, one, other)
