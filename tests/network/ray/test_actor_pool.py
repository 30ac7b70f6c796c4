"""Parts of work and the actors that they are handed to: what waits, what is lost, who is there."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

import fedkl
from fedkl.clients.work import Evaluate
from fedkl.core.errors import UserError
from fedkl.core.own_code import OwnCodeError
from fedkl.core.processes import cores
from fedkl.engines import Job
from fedkl.network.ray import actor_pool as module
from fedkl.network.ray.actor import ActorSetup, CallResult, ClientsActor, JaxSettings, Part
from fedkl.network.ray.actor_pool import FIRST_CALL_TIMEOUT, MIN_TIMEOUT, ActorPool, Batch, PoolSize
from fedkl.network.ray.engine import Ray
from fedkl.server.loop import Federation
from fedkl.training.provenance import versions

PLUGIN = str(Path(__file__).parent / "plugins" / "counting.py")


class Start(NamedTuple):
    """Stands for a model: a batch only sends it on."""

    number: int


def batch_of(*models, deterministic=False, width=1):
    """A part for each of the models, by client."""
    starts = {number: Start(number) for number in models}
    jobs = [Job(client, None) for client in range(len(models))]
    parts = [Part([job], [None], width) for job in jobs]
    work = Evaluate(1, deterministic)
    return Batch(work, [(starts[m], p) for m, p in zip(models, parts, strict=True)])


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


def test_a_model_is_sent_once_however_many_parts_want_it(cluster, monkeypatch):
    import ray

    sent, put = [], ray.put
    monkeypatch.setattr(ray, "put", lambda x: [sent.append(x), put(x)][1])
    batch_of(0, 0, 1, 1, 0)
    assert sent == [Start(0), Start(1)]


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
    batch.cancel()
    assert batch.take(100, 1) == []


def test_a_plugin_that_does_not_import_on_a_worker_is_one_sentence(cluster, tiny, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import not_installed_there\n")
    config = replace(tiny(), plugins=(str(path),))
    with pytest.raises(UserError, match=r"^the plugin mine\.py fails on the worker .*not_inst"):
        Ray(config, 1)


def test_when_nobody_is_there_to_work_a_sentence_says_so(cluster, tiny, monkeypatch):
    """An actor of so many CPUs is never placed."""
    monkeypatch.setattr(module, "_POLL_INTERVAL", 0.01)
    monkeypatch.setattr(module, "placeable_cpus", lambda cpus: cpus)
    times = iter(range(0, 10_000, 10))
    with pytest.raises(UserError, match="no actor of the cluster was there to work for 180 s"):
        ActorPool(opening_of(tiny()), PoolSize(1, 10_000), None, lambda: float(next(times)))


def opening_of(config, **others):
    """What actors are told of a config."""
    return ActorSetup(config.mapping(), (), JaxSettings.current(), 1, versions() | others)


@pytest.fixture
def light(cluster, monkeypatch):
    """Makes actors that do nothing, at once; a second goes by with every look at the clock."""

    class Light:
        def open(self, setup, cpus):
            self.cpus = cpus

        def has(self):
            return self.cpus

        def run(self, work, model, parts):
            return CallResult([[] for _ in parts], 0.01, 0)

    monkeypatch.setattr(module, "ClientsActor", Light)
    made = []

    def make(cpus=1):
        made.append(ActorPool(None, PoolSize(1, cpus), None, itertools.count(0.0).__next__))
        return made[-1]

    yield make
    for actors in made:
        actors.close()


def test_an_actor_asks_for_no_more_cpus_than_the_largest_node_has_that_is_left(light, monkeypatch):
    """The first look is from before a large node was lost."""
    import ray

    looks, left = [], module.placeable_cpus

    def placeable_cpus(cpus):
        looks.append(cpus)
        return cpus if len(looks) == 1 else left(cpus)

    monkeypatch.setattr(module, "placeable_cpus", placeable_cpus)
    actors = light(cpus=10_000)
    (actor,) = actors._idle
    assert ray.get(actor.has.remote()) == len(cores())
    assert actors.replaced == 0


def test_what_an_actor_must_still_compile_has_the_time_for_that(light):
    actors = light()
    done = batch_of(0)
    while not done.done:
        actors.advance(done)
    (actor,) = actors._idle
    assert actors._timeout_for(actor, batch_of(0), [0]) == pytest.approx(MIN_TIMEOUT, rel=0.01)
    for other in (batch_of(0, deterministic=True), batch_of(0, width=2)):
        assert actors._timeout_for(actor, other, [0]) == FIRST_CALL_TIMEOUT


def test_actors_that_were_lost_with_one_machine_while_they_opened_count_once(light, monkeypatch):
    actors = light()
    monkeypatch.setattr("ray.kill", lambda actor: None)

    def lose(begun, now):
        actors._clock = lambda: now
        actors._lose_opening(module._OpeningActor(None, 1, begun), "it died")

    for _ in range(5):
        lose(begun=0.0, now=1.0)
    lose(begun=2.0, now=3.0)
    with pytest.raises(UserError, match=r"^3 actors in a row were lost before they opened: it die"):
        lose(begun=3.0, now=4.0)


def test_an_actor_on_a_node_with_other_versions_does_not_open(tiny):
    with pytest.raises(UserError, match=r"^the node \S+ has jax \S+, and this machine 0\.0\.1$"):
        ClientsActor().open(opening_of(tiny(), jax="0.0.1"), 1)


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
def test_an_error_of_the_work_is_a_sentence_with_its_place_in_the_file_of_the_driver(
    cluster, troubled
):
    for trouble, kind, words in (
        ("mistake", UserError, "^somebody can mend it$"),
        (
            "defect",
            OwnCodeError,
            rf"^{PLUGIN}, line \d+, in penalty: ZeroDivisionError: nobody can",
        ),
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
