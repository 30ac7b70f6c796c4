"""The client's chain: what is sent is what the links made of it, and nothing else changes."""

from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkl
from fedkl.clients.records import Start
from fedkl.clients.round import finish, iteration_keys
from fedkl.clients.upload import UPLOADS, Clip, Upload, UploadChain, build_upload
from fedkl.core.errors import UserError
from fedkl.server.loop import Federation

KEY = jax.random.key(5)


class Noise(Upload):
    name: ClassVar[str] = "noise"
    summary: ClassVar[str] = "draws the whole move anew"

    def __call__(self, move, key):
        return jax.random.normal(key, move.shape)


class More(Noise):
    name: ClassVar[str] = "more"
    summary: ClassVar[str] = "adds as much again"

    def __call__(self, move, key):
        return move + jax.random.normal(key, move.shape)


class Half(Upload):
    name: ClassVar[str] = "half"
    summary: ClassVar[str] = "forgets every other number"

    def __call__(self, move, key):
        return move * (jnp.arange(move.size) % 2)


def same_bits(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


@pytest.fixture
def over(point, start):
    """What a client sends and keeps after a round that moved its networks by 0.1 and more."""

    def after(*links, key=KEY, **places):
        task = replace(point(), upload=UploadChain(links))
        begun = Start(*start(task, **places), key)
        carry = task.learner.begin(task, begun)
        end = carry._replace(
            policy=jax.tree.map(lambda x: x * 1.25 + 0.1, carry.policy),
            critic=jax.tree.map(lambda x: x * 0.7 - 0.1, carry.critic),
            step_size_sum=jnp.array(1.0),
        )
        metrics = {"guarded": jnp.zeros(3, bool), "distance_global": jnp.ones(3)}
        trained, kept = finish(task, begun, end, metrics | {"steps": jnp.full(3, 64.0)})
        return begun.model, trained, kept

    return after


def moves(over, *links, **options):
    model, trained, _ = over(*links, **options)
    sent = trained.update.model.networks()
    return {name: flat(part) - flat(getattr(model, name)) for name, part in sent.items()}


def test_a_long_move_is_shortened():
    """(30, -40) is 50 long."""
    assert Clip(max_norm=5.0)(jnp.array([30.0, -40.0]), KEY).tolist() == [3.0, -4.0]


@pytest.mark.parametrize("move", [[0.0, 0.0], [3.0, -4.0], [0.1, 1e-12]])
def test_a_move_within_the_norm_keeps_its_bits(move):
    assert np.array_equal(Clip(max_norm=5.0)(jnp.array(move), KEY), np.array(move, np.float32))


def test_numbers_that_are_not_finite_are_left_for_the_server_to_refuse():
    for bad in (jnp.nan, jnp.inf):
        assert not np.all(np.isfinite(Clip()(jnp.array([1.0, bad]), KEY)))


def test_each_network_is_clipped_by_itself(over):
    plain, clipped = moves(over), moves(over, Clip(0.25))
    assert clipped.keys() == {"policy", "critic"}
    for name, move in clipped.items():
        length = np.linalg.norm(plain[name])
        assert length > 0.25
        np.testing.assert_allclose(move, plain[name] * 0.25 / length, rtol=1e-4, atol=1e-6)


def test_a_link_changes_neither_what_is_kept_nor_what_else_is_sent(over):
    (_, plain, before), (_, clipped, after) = over(), over(Clip(0.25))
    assert same_bits(before, after)
    assert same_bits(plain.metrics, clipped.metrics)
    nets = clipped.update.model.networks()
    assert not same_bits(plain.update.model.networks(), nets)
    rest = replace(plain.update, model=replace(plain.update.model, **nets))
    assert same_bits(rest, clipped.update)


def test_what_no_link_changes_is_sent_to_the_bit(over):
    (_, plain, _), (_, clipped, _) = over(), over(Clip(1e6))
    assert same_bits(plain, clipped)


def test_a_number_without_a_move_is_sent_as_it_was_broadcast(over):
    (model, plain, _), (_, halved, _) = over(), over(Half())
    for name, part in halved.update.model.networks().items():
        sent, whole = flat(part), flat(getattr(plain.update.model, name))
        assert np.array_equal(sent[::2], flat(getattr(model, name))[::2])
        assert np.array_equal(sent[1::2], whole[1::2])


def test_links_follow_each_other_in_their_order(over):
    drawn = moves(over, Noise())
    last, first = moves(over, Noise(), Clip(0.25)), moves(over, Clip(0.25), Noise())
    for name in drawn:
        assert np.linalg.norm(last[name]) == pytest.approx(0.25, rel=1e-4)
        assert np.linalg.norm(first[name]) > 0.25


def test_every_network_link_and_key_has_a_draw_of_its_own(over):
    one, other, two = (
        moves(over, Noise()), moves(over, Noise(), key=jax.random.key(6)),
        moves(over, Noise(), More()),
    )  # fmt: skip
    draws = [one["policy"], one["critic"], other["policy"], two["policy"] - one["policy"]]
    size = min(map(len, draws))
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert not np.allclose(a[:size], b[:size], atol=1e-2)
    assert same_bits(one, moves(over, Noise()))


def test_no_iteration_has_the_chains_key(over):
    seen = []

    class Spy(Noise):
        def __call__(self, move, key):
            seen.append(np.asarray(jax.random.key_data(key)).tolist())
            return move

    over(Spy())
    keys = [key for i in range(4) for key in iteration_keys(KEY, i)]
    used = [np.asarray(jax.random.key_data(key)).tolist() for key in keys]
    assert len(seen) == 2
    assert not [words for words in seen if words in used]


def test_what_stays_on_the_client_does_not_go_through_the_chain(over):
    assert moves(over, Clip(0.25), critic="local").keys() == {"policy"}
    _, plain, before = over(critic="local", personal="action-bias")
    _, clipped, after = over(Clip(0.25), critic="local", personal="action-bias")
    assert same_bits(before, after)
    assert jax.tree.structure(plain) == jax.tree.structure(clipped)


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (lambda move: move[:3], "float32 of shape (3,)"),
        (lambda move: move.astype("int8"), "int8 of shape"),
        (lambda move: 0.0, "float32 of shape ()"),
    ],
)
def test_a_link_that_makes_something_else_is_refused_before_the_first_round(tiny, made, what):
    class Wrong(Noise):
        name: ClassVar[str] = "wrong"

        def __call__(self, move, key):
            return made(move)

    with pytest.raises(UserError) as error:
        Federation(replace(tiny(), upload=UploadChain((Wrong(),))))
    said = str(error.value)
    assert said.startswith("upload.each: wrong must make float32 of shape (")
    assert what in said


def test_the_settings_of_links_stand_beside_their_names():
    chain = build_upload({"each": ["clip"], "max_norm": 3})
    assert chain == UploadChain((Clip(3.0),))
    assert chain.mapping() == {"each": ["clip"], "max_norm": 3.0}
    assert UPLOADS["clip"] is Clip


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"each": ["melt"]}, "upload.each: there is no upload link 'melt'; available: clip"),
        ({"each": ["clip", "clip"]}, "upload.each must name a link only once"),
        ({"each": "clip"}, "upload.each must be a list, not 'clip'"),
        ({"max_norm": 1.0}, "upload.max_norm is not a setting; with these links upload has: each"),
        ({"each": ["clip"], "max_norm": 0}, "upload.max_norm must be above 0, not 0.0"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_field(table, sentence):
    with pytest.raises(UserError) as error:
        build_upload(table)
    assert str(error.value) == sentence


def test_a_run_without_links_has_the_config_that_it_always_had(tiny):
    assert "upload" not in tiny().mapping()
    assert "upload" not in tiny(upload__each=[]).mapping()
    mapping = tiny(upload__each=["clip"], upload__max_norm=0.5).mapping()
    assert mapping["upload"] == {"each": ["clip"], "max_norm": 0.5}
    assert fedkl.config.config.from_mapping(mapping).mapping() == mapping


def test_a_table_that_is_none_is_refused():
    with pytest.raises(UserError, match=r"^upload must be a table of settings, not 3$"):
        fedkl.preset("probe-point", set={"upload": 3})


def test_clients_that_send_no_network_have_no_chain(tiny):
    local = dict.fromkeys(("critic", "observation_statistics", "reward_statistics"), "local")
    settings = {f"federation__{name}": place for name, place in local.items()}
    message = r"^upload\.each must be empty where federation\.personal is all: no network is sent$"
    with pytest.raises(UserError, match=message):
        tiny("fedavg", federation__personal="all", upload__each=["clip"], **settings)
