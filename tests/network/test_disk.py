"""A client finds the state that the server goes on from, or says why it cannot."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.clients.records import ClientState
from fedkl.core.errors import UserError
from fedkl.io import files
from fedkl.io.arrays import to_arrays
from fedkl.network import wire
from fedkl.network.disk import StateError, States
from fedkl.network.wire import MessageError

NAME = "ab" * 16


def state(number):
    """A state whose only penalty coefficient is the number."""
    return ClientState(
        coefficients={"c2": np.asarray(number, np.float32)},
        step_scale=np.ones((), np.float32),
        iterations=np.asarray(number, np.int32),
        critic=None,
        observations=None,
        rewards=None,
        personal=None,
        own=(),
    )


@pytest.fixture
def states(tmp_path):
    return States(tmp_path, NAME, state(0))


def c2(found):
    return float(found.coefficients["c2"])


def there(tmp_path):
    return sorted(int(path.name[:6]) for path in (tmp_path / NAME).glob("*.safetensors"))


def test_the_first_state_is_fresh(states, tmp_path):
    assert c2(states.read(0)) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_resumed_from_by_its_round(states, tmp_path):
    states.write(1, 0, 10, state(11))
    states.write(3, 1, 11, state(13))
    again = States(tmp_path, NAME, state(0))
    assert [c2(again.read(round)) for round in (0, 1, 3)] == [0, 11, 13]
    assert [again.turn(round) for round in (1, 2, 3)] == [10, 0, 11]


def test_what_is_kept_is_of_the_same_types(states):
    states.write(1, 0, 10, state(5))
    before, after = to_arrays(state(5)), to_arrays(states.read(1))
    assert {n: (x.dtype, x.shape) for n, x in before.items()} == {
        n: (x.dtype, x.shape) for n, x in after.items()
    }


def test_arrays_of_jax_are_kept_too(states):
    on_device = state(3)
    on_device.coefficients["c2"] = jnp.asarray(3.0)
    states.write(1, 0, 10, on_device)
    assert c2(states.read(1)) == 3


def test_a_round_that_is_done_again_replaces_its_state(states, tmp_path):
    states.write(1, 0, 10, state(1))
    states.write(1, 0, 11, state(2))
    assert c2(states.read(1)) == 2
    assert there(tmp_path) == [1]


def test_federations_and_clients_do_not_see_each_other(tmp_path):
    States(tmp_path / "0", NAME, state(0)).write(1, 0, 10, state(1))
    for folder, name in ((tmp_path / "1", NAME), (tmp_path / "0", "cd" * 16)):
        with pytest.raises(StateError):
            States(folder, name, state(0)).read(1)


def test_a_federation_cannot_name_a_path(tmp_path):
    with pytest.raises(MessageError, match="not 32 hexadecimal digits"):
        States(tmp_path, "../" + "a" * 29, state(0))


def test_a_missing_state_is_said_and_not_begun_again(states):
    with pytest.raises(StateError, match="state after round 4 is not on its disk"):
        states.read(4)


@pytest.mark.parametrize("where", [0, 20, -1])
def test_a_damaged_state_is_said(states, tmp_path, where):
    states.write(1, 0, 10, state(1))
    path = tmp_path / NAME / "000001.safetensors"
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
    with pytest.raises(StateError, match="state after round 1 is damaged"):
        states.read(1)
    path.write_bytes(b"")
    with pytest.raises(StateError, match="state after round 1 is damaged"):
        states.read(1)


def test_a_state_under_the_name_of_another_round_is_damaged(states, tmp_path):
    states.write(1, 0, 10, state(1))
    folder = tmp_path / NAME
    (folder / "000001.safetensors").rename(folder / "000002.safetensors")
    with pytest.raises(StateError, match="it is that of round 1"):
        states.read(2)


def test_a_state_of_another_config_is_said(states):
    states.write(1, 0, 10, state(1))
    other = state(0)
    other.coefficients["c1"] = np.zeros((), np.float32)
    with pytest.raises(StateError, match=r"of another config: coefficients\.c1 is missing"):
        States(states._folder.parent, NAME, other).read(1)


def test_only_the_owner_may_look(states, tmp_path):
    states.write(1, 0, 10, state(1))
    folder = tmp_path / NAME
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "000001.safetensors").stat().st_mode & 0o777 == 0o600


def test_what_a_crash_left_half_written_is_removed(states, tmp_path, monkeypatch):
    states.write(1, 0, 10, state(1))
    (tmp_path / NAME / ".000002.safetensors.1.ab.fedkl-tmp").write_bytes(b"half")

    def power_failure(*_):
        raise OSError(28, "")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", power_failure)
        with pytest.raises(UserError, match="the disk is full"):
            states.write(2, 1, 11, state(2))
    assert [path.name for path in (tmp_path / NAME).iterdir()] == ["000001.safetensors"]


def write_all(states, *rounds):
    """States that each came of the one before."""
    before = 0
    for round in rounds:
        states.write(round, before, 10 + round, state(round))
        before = round


@pytest.mark.parametrize(
    ("since", "floor", "left"),
    [
        (9, 0, [2, 4, 7, 9]),
        (9, 1, [2, 4, 7, 9]),
        # At round 5 the client was what round 4 had left.
        (9, 5, [4, 7, 9]),
        (9, 4, [4, 7, 9]),
        (9, 8, [7, 9]),
        (9, 9, [9]),
        # The server has heard nothing of it since round 4, and goes on from there.
        (4, 20, [4]),
        (0, 8, [9]),
    ],
)
def test_what_the_server_can_no_longer_ask_for_is_forgotten(states, tmp_path, since, floor, left):
    write_all(states, 2, 4, 7, 9)
    states.prune(since, floor)
    assert there(tmp_path) == left


def test_a_state_that_was_never_accepted_is_not_taken_for_the_one_at_the_floor(states, tmp_path):
    """Round 4 was rejected, so round 7 came of round 2."""
    states.write(2, 0, 10, state(2))
    states.write(4, 2, 11, state(4))
    states.write(7, 2, 12, state(7))
    states.prune(7, 5)
    assert there(tmp_path) == [2, 7]


def test_nothing_is_forgotten_where_nobody_knows_what_led_to_the_present(states, tmp_path):
    write_all(states, 2, 4, 7, 9)
    (tmp_path / NAME / "000007.safetensors").write_bytes(b"damaged")
    states.prune(9, 5)
    assert there(tmp_path) == [2, 4, 7, 9]


def test_a_client_without_states_has_nothing_to_forget(states, tmp_path):
    states.prune(0, 10)
    assert list(tmp_path.iterdir()) == []


def test_a_state_may_be_larger_than_a_message(states, monkeypatch):
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 10)
    states.write(1, 0, 10, state(1))
    assert c2(states.read(1)) == 1
