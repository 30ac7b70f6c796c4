"""What the server asks, as bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.clients.work import Evaluate, RecordEpisode, Train
from fedkl.heterogeneity import Measure
from fedkl.network import messages, wire
from fedkl.network.messages import (
    WORKS,
    Request,
    SpaceSizes,
    check_federation,
    new_federation,
    new_turn,
    read_request,
    spaces_of,
    write_request,
)
from fedkl.network.wire import MessageError
from fedkl.worlds import Bandit, PointTarget, Reacher

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(0, 2**63 - 1)
WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4).map(
    lambda words: np.asarray(words, np.uint32)
)
POSITIVE = st.floats(0, 1e6)
WORKS_OF = st.one_of(
    st.just(Train()),
    st.builds(Evaluate, st.integers(0, 10**6), st.booleans()),
    st.builds(
        Measure, st.integers(0, 100), st.sampled_from(["a", "b"]), NUMBERS, POSITIVE, POSITIVE
    ),
)
SIMPLE = Request(
    federation="0" * 32,
    client=2,
    round=5,
    turn=7,
    nonce="ab" * 16,
    since=4,
    floor=1,
    config="seed = 1\n",
    spaces=SpaceSizes(3, False, 2),
    work=Evaluate(3, True),
    key=np.asarray([1, 2], np.uint32),
    shared=np.asarray([3, 4], np.uint32),
    model={"policy": np.ones(2, np.float32)},
)


def same(a, b):
    def plain(request):
        words = {"key": request.key.tolist(), "shared": request.shared.tolist()}
        model = {name: (x.dtype, x.tolist()) for name, x in request.model.items()}
        return request._asdict() | words | {"model": model}

    return plain(a) == plain(b)


def forged(**changes):
    """A request whose header says something else."""
    header, arrays = wire.unpack("request", write_request(SIMPLE))
    return wire.pack("request", header | changes, arrays)


@settings(deadline=None)
@given(
    client=NUMBERS,
    round=NUMBERS,
    turn=NUMBERS,
    since=NUMBERS,
    work=WORKS_OF,
    key=WORDS,
    text=TEXT,
)
def test_a_request_comes_back_as_it_was(client, round, turn, since, work, key, text):
    asked = SIMPLE._replace(
        client=client, round=round, turn=turn, since=since, work=work, key=key, config=text
    )
    assert same(read_request(write_request(asked)), asked)


def test_works_come_back_with_the_types_of_their_fields():
    work = Measure(4, "fourier", 8, 1, 1e-3)
    found = read_request(write_request(SIMPLE._replace(work=work))).work
    assert found == work
    assert type(found.length_scale) is float


def test_an_episode_is_never_asked_for():
    assert sorted(WORKS) == ["evaluate", "measure", "train"]
    with pytest.raises(MessageError, match="never leaves it"):
        write_request(SIMPLE._replace(work=RecordEpisode(True)))
    with pytest.raises(MessageError, match="never leaves it"):
        read_request(forged(work={"name": "record", "deterministic": True}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"client": -1}, "client is -1"),
        ({"round": 1.5}, "round is 1.5"),
        ({"turn": None}, "turn is None"),
        ({"since": 2**63}, "since is"),
        ({"floor": True}, "floor is True"),
        ({"config": 3}, "config is 3, not a string"),
        ({"federation": "../../etc"}, "not 32 hexadecimal digits"),
        ({"federation": "0" * 33}, "not 32 hexadecimal digits"),
        ({"extra": 1}, "extra is not expected"),
        ({"spaces": [3, 0, 2]}, "spaces"),
        ({"spaces": [3, False]}, "spaces"),
        ({"spaces": None}, "spaces"),
        ({"key": []}, "key is not a key"),
        ({"key": [-1]}, "key is not a key"),
        ({"key": [2**32]}, "key is not a key"),
        ({"shared": [0] * 100}, "shared is not a key"),
        ({"shared": "ab"}, "shared is not a key"),
        ({"work": "train"}, "work is not a table"),
        ({"work": {"name": 3}}, "work is not a table"),
        ({"work": {"name": "sell"}}, "cannot be asked to 'sell'"),
        ({"work": {"name": "train", "more": 1}}, "more is not expected"),
        ({"work": {"name": "evaluate", "episodes": 1}}, "deterministic is missing"),
        ({"work": {"name": "evaluate", "episodes": 1, "deterministic": 1}}, "deterministic is 1"),
        ({"work": {"name": "evaluate", "episodes": "1", "deterministic": True}}, "episodes is '1'"),
    ],
)
def test_what_a_header_may_not_say(changes, reason):
    with pytest.raises(MessageError, match=reason):
        read_request(forged(**changes))


def test_a_header_must_have_all_its_entries():
    header, arrays = wire.unpack("request", write_request(SIMPLE))
    for name in header:
        rest = {n: x for n, x in header.items() if n != name}
        with pytest.raises(MessageError, match=f"{name} is missing"):
            read_request(wire.pack("request", rest, arrays))


def test_sizes_are_limited():
    data = write_request(SIMPLE)
    with pytest.raises(MessageError, match="over the limit"):
        read_request(data, limit=len(data) - 1)
    with pytest.raises(MessageError, match="over the limit"):
        write_request(SIMPLE, limit=len(data) - 1)


def test_federations_have_different_names():
    names = {new_federation() for _ in range(10)}
    assert len(names) == 10
    assert {check_federation(name) for name in names} == names


def test_turns_only_grow_also_if_the_clock_goes_back(monkeypatch):
    monkeypatch.setattr(messages.time, "time_ns", lambda: 100)
    assert new_turn(3) == 100
    assert new_turn(100) == 101


@pytest.mark.parametrize(
    ("world", "spaces", "words"),
    [
        (
            PointTarget(),
            SpaceSizes(1, False, 1),
            "observations of size 1 and actions of size 1",
        ),
        (Bandit(), SpaceSizes(1, True, 3), "observations of size 1 and 3 discrete actions"),
        (
            Reacher(),
            SpaceSizes(11, False, 2),
            "observations of size 11 and actions of size 2",
        ),
    ],
)
def test_spaces_are_those_of_the_world(world, spaces, words):
    assert spaces_of(world) == spaces
    assert str(spaces) == words
