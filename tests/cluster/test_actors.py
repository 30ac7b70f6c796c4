"""Parts of work and the actors that they are handed to: what waits, what is lost, who is there."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

import fedkl
from fedkl.clients.work import Evaluate
from fedkl.cluster import actors as module
from fedkl.cluster.actor import Opening, Part, Surroundings
from fedkl.cluster.actors import Actors, Batch
from fedkl.cluster.engine import Ray
from fedkl.engines import Job
from fedkl.errors import UserError
from fedkl.server.loop import Federation

PLUGIN = str(Path(__file__).parent / "plugins" / "counting.py")


class Start(NamedTuple):
    """Stands for a model: a batch only sends it on."""

    number: int


def batch_of(*models):
    """A part for each of the models, by client."""
    starts = {number: Start(number) for number in models}
    jobs = [Job(client, None) for client in range(len(models))]
    parts = [Part([job], [None], 1) for job in jobs]
    return Batch(Evaluate(1, False), [(starts[m], p) for m, p in zip(models, parts, strict=True)])


def test_a_call_has_as_many_parts_as_are_worth_it_and_no_more_than_a_fair_share(cluster):
    batch = batch_of(*[0] * 10)
    assert batch.take(most=3, actors=2) == [0, 1, 2]
    assert batch.take(most=100, actors=2) == [3, 4, 5, 6]
    assert batch.take(most=0, actors=2) == [7]
    assert batch.take(most=100, actors=1) == [8, 9]
    assert batch.take(most=100, actors=1) == []


def test_a_call_has_one_model(cluster):
    batch = batch_of(0, 0, 1, 1, 0)
    assert [batch.take(100, 1) for _ in range(3)] == [[0, 1], [2, 3], [4]]


def test_what_was_lost_goes_first_and_alone(cluster):
    batch = batch_of(0, 0, 0, 0)
    assert batch.take(2, 2) == [0, 1]
    batch.lose([0, 1], "it died", seen=0.0, now=1.0)
    assert [batch.take(100, 1) for _ in range(3)] == [[0], [1], [2, 3]]


def test_clients_are_given_up_after_three_losses(cluster):
    batch = batch_of(0, 0)
    for now in (1.0, 2.0, 3.0):
        assert batch.take(1, 2) == [0]
        batch.lose([0], "it died", seen=now, now=now)
    ((client, failure, after),) = batch.done[0]
    assert (client, after) == (0, None)
    assert failure.reason == "3 actors were lost with its work, the last: it died"
    assert not failure.again
    assert batch.take(100, 1) == [1]


def test_actors_that_were_lost_with_their_machine_while_they_were_idle_do_not_count(cluster):
    batch = batch_of(0)
    for now in (5.0, 6.0, 7.0, 8.0):
        batch.take(1, 1)
        batch.lose([0], "the node died", seen=4.0, now=now)
    assert batch.take(1, 1) == [0]
    assert batch.losses[0] == 1


def test_nobody_is_handed_what_nobody_wants(cluster):
    batch = batch_of(0, 0)
    batch.forget()
    assert batch.take(100, 1) == []


def test_a_plugin_that_does_not_import_on_a_worker_is_one_sentence(cluster, tiny, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import not_installed_there\n")
    config = replace(tiny(), plugins=(str(path),))
    with pytest.raises(UserError, match=r"^the plugin mine\.py fails on the worker .*not_inst"):
        Ray(config, 1)


def test_when_nobody_is_there_to_work_a_sentence_says_so(cluster, tiny, monkeypatch):
    """An actor of so many CPUs is never placed."""
    monkeypatch.setattr(module, "_LOOK", 0.01)
    times = iter(range(0, 10_000, 50))
    opening = Opening(tiny().mapping(), (), Surroundings.here(), at_once=1, cpus=10_000)
    with pytest.raises(UserError, match="no actor of the cluster was there to work for 180 s"):
        Actors(opening, 1, None, lambda: float(next(times)))


@pytest.fixture
def troubled(tiny):
    """Makes configs whose clients' work comes to a bad end."""

    def make(trouble):
        return fedkl.preset(
            "probe-point",
            "counting",
            set={"algorithm.trouble": trouble, "federation.clients_per_round": 2},
            plugins=[PLUGIN],
        )

    return make


@pytest.mark.slow
def test_an_error_of_the_work_is_the_users_or_a_defect_as_in_one_process(cluster, troubled):
    for trouble, kind, words in (
        ("mistake", UserError, "^somebody can mend it$"),
        ("defect", ZeroDivisionError, "nobody can"),
    ):
        config = troubled(trouble)
        with Federation(config, Ray(config, 1)) as federation, pytest.raises(kind, match=words):
            federation.run_round()


@pytest.mark.slow
def test_clients_whose_work_ends_actors_are_given_up(cluster, troubled):
    config = troubled("death")
    with Federation(config, Ray(config, 2)) as federation:
        record = federation.run_round()
        assert [entry["client"] for entry in record["rejected"]] == record["selected"]
        reasons = {entry["reason"] for entry in record["rejected"]}
        assert all(r.startswith("3 actors were lost with its work, the last: ") for r in reasons)
