"""The table of what differs: read, checked against a world's parameters, drawn."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.core.errors import UserError
from fedkl.worlds import Bandit, CartPole, Differences, Pendulum, PointTarget
from fedkl.worlds.classic import CartPoleParams, PendulumParams
from fedkl.worlds.heterogeneous import key_of

KEY = jax.random.key(3)


def with_table(cls, **table):
    return cls(differences=Differences.from_table(table))


def test_words_that_a_table_does_not_name_are_nominal():
    params = with_table(CartPole, gravity=[5, 15]).clients(3, KEY)
    assert isinstance(params, CartPoleParams)
    assert params.gravity.tolist() == [5, 15, 5]
    for parameter, nominal in CartPoleParams()._asdict().items():
        if parameter != "gravity":
            np.testing.assert_array_equal(
                getattr(params, parameter), np.full(3, nominal, np.float32)
            )


def test_a_table_of_nothing_says_nothing():
    assert not Differences()
    assert Differences() == Differences.from_table({})
    assert Pendulum().differences == Differences()


def test_tables_that_say_the_same_are_the_same():
    one, two = (Differences.from_table({"gravity": {"uniform": [7, 13]}}) for _ in "ab")
    assert one == two
    assert hash(one) == hash(two)
    assert jax.tree.leaves(with_table(CartPole, gravity=3)) == []


OTHERS = [
    {"mass": {"uniform": [0.5, 2]}},
    {"length": {"loguniform": [0.5, 2]}},
    {"action_noise": {"normal": [0, 0.4]}},
    {"max_torque": {"choice": [1, 2]}},
    {"action_delay": [0, 1]},
]


@settings(max_examples=20, deadline=None)
@given(st.permutations(OTHERS), st.integers(0, len(OTHERS)), st.sampled_from([1, 5]))
def test_another_word_changes_no_other(others, number, n):
    table = {"gravity": {"uniform": [7, 13]}}
    alone = with_table(Pendulum, **table).clients(n, KEY)
    for other in others[:number]:
        table = other | table
    together = with_table(Pendulum, **table).clients(n, KEY)
    np.testing.assert_array_equal(alone.gravity, together.gravity)


def test_words_of_the_same_draw_and_other_seeds_are_drawn_apart():
    same = {"uniform": [1, 2]}
    params = with_table(Pendulum, gravity=same, mass=same).clients(50, KEY)
    assert abs(np.corrcoef(params.gravity, params.mass)[0, 1]) < 0.5
    again, other = (
        with_table(Pendulum, gravity=same).clients(50, key).gravity
        for key in (KEY, jax.random.key(4))
    )
    np.testing.assert_array_equal(params.gravity, again)
    assert (again != other).all()


def test_only_offsets_are_drawn_by_the_worlds_own_key():
    assert key_of("action_offset", KEY) is KEY
    parameters = {
        jax.random.key_data(key_of(w, KEY)).tobytes() for w in ("gravity", "mass", "length")
    }
    assert len(parameters) == 3


def test_initial_states_are_cut_into_equal_boxes():
    params = with_table(CartPole, initial_state={"boxes": 4}).clients(6, KEY)
    np.testing.assert_allclose(params.initial_low, [-0.05, -0.025, 0, 0.025, -0.05, -0.025], 1e-5)
    np.testing.assert_allclose(params.initial_high, [-0.025, 0, 0.025, 0.05, -0.025, 0], 1e-5)


def test_a_probes_word_takes_the_place_of_its_spread():
    table = Differences.from_table({"target": [3, 4]})
    params = PointTarget(spread=1.0, differences=table).clients(2, KEY)
    assert params.target.tolist() == [3, 4]
    assert params.stiffness is None
    means = Bandit(differences=Differences.from_table({"means": [[1, 2, 3]]})).clients(2, KEY)
    assert means.means.tolist() == [[1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("cls", "table", "sentence"),
    [
        (
            CartPole,
            {"gravty": 3},
            "world.clients.gravty is not a parameter of cartpole (did you mean gravity?); "
            "available: "
            "action_delay, force_mag, gravity, initial_high",
        ),
        (
            Pendulum,
            {"colour": 3},
            "world.clients.colour is not a parameter of pendulum; available: ",
        ),
        (
            CartPole,
            {"action_noise": 0.1},
            "world.clients.action_noise is not a parameter of cartpole: its actions are discrete",
        ),
        (
            CartPole,
            {"action_noise": {"normal": [0, 1]}},
            "world.clients.action_noise is not a parameter of cartpole: its actions are discrete",
        ),
        (
            CartPole,
            {"action_offset": 1},
            "world.clients.action_offset is not a parameter of cartpole",
        ),
        (
            Pendulum,
            {"initial_state": {"boxes": 3}},
            "world.clients.initial_state is not a parameter",
        ),
        (Pendulum, {"mass": 0}, "world.clients.mass must be at least 1e-06, not 0"),
        (
            Pendulum,
            {"gravity": {"normal": [9, 1], "per": "step"}},
            'world.clients.gravity cannot be { normal = [9, 1], per = "step" }: only a normal '
            "action_noise or observation_noise is drawn at every step",
        ),
        (
            Pendulum,
            {"action_noise": {"uniform": [0, 1], "per": "step"}},
            "world.clients.action_noise cannot be { uniform",
        ),
        (
            Pendulum,
            {"action_noise": {"normal": [1, 1], "per": "step"}},
            "world.clients.action_noise: noise that is drawn at every step has a mean of 0",
        ),
        (
            Pendulum,
            {"observation_noise": {"normal": [0, 1]}},
            'world.clients.observation_noise must be drawn at every step: say per = "step"',
        ),
        (
            CartPole,
            {"initial_state": {"boxes": 3}, "initial_low": 0},
            "world.clients.initial_state and world.clients.initial_low both say where episodes",
        ),
    ],
)
def test_what_a_world_does_not_have_is_told_in_one_sentence(cls, table, sentence):
    with pytest.raises(UserError) as caught:
        with_table(cls, **table)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_client_whose_range_is_turned_round_is_named():
    world = with_table(CartPole, initial_low=[-0.1, -0.1, 0.2])
    sentence = r"client 2 would have initial_low = 0\.2, above its initial_high = 0\.05"
    with pytest.raises(UserError, match=sentence):
        world.clients(3, KEY)
    world.clients(2, KEY)


def test_a_table_must_be_one():
    with pytest.raises(UserError, match=r"^world\.clients must be a table of parameters, not 3$"):
        Differences.from_table(3)


def test_raw_names_may_be_written_with_dots():
    nested = {"model": {"opt": {"timestep": 0.01}, "dof_damping": {"uniform": [1, 2]}}}
    assert Differences.from_table(nested).table() == {
        "model.opt.timestep": 0.01,
        "model.dof_damping": {"uniform": [1, 2]},
    }


def test_noise_of_every_step_is_its_deviation():
    world = with_table(Pendulum, action_noise={"normal": [0, 0.4], "per": "step"})
    assert world.differences.drawn()["action_noise"][1].table() == 0.4
    assert world.differences.table() == {"action_noise": {"normal": [0, 0.4], "per": "step"}}


def test_the_classic_worlds_words_are_the_fields_of_their_params():
    assert [parameter.name for parameter in Pendulum.parameters] == list(PendulumParams._fields)
    assert [parameter.nominal for parameter in Pendulum.parameters] == list(PendulumParams())
    assert all(parameter.help for parameter in (*Pendulum.parameters, *CartPole.parameters))
