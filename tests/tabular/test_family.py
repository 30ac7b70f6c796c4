"""What is a family of MDPs, what is none, and what is said about it."""

import numpy as np
import pytest
from hypothesis import given, settings

from fedkl.core.errors import UserError
from fedkl.tabular import Exact, Family, InvalidFamily, families, load, save
from fedkl.tabular.family import check_policy

# Two agents, three states, two actions; agent 1 starts in state 2 and earns nothing.
INITIAL = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
TRANSITIONS = np.full((2, 3, 2, 3), 1 / 3)
REWARDS = np.stack([np.arange(6.0).reshape(3, 2), np.zeros((3, 2))])
FIELDS = ("initial", "transitions", "rewards", "gamma", "weights")


def with_entry(array, where, value):
    """A copy with one other entry."""
    changed = np.array(array, dtype=float)
    changed[where] = value
    return changed


def family(**changes):
    valid = {"initial": INITIAL, "transitions": TRANSITIONS, "rewards": REWARDS, "gamma": 0.5}
    return Family(**(valid | changes))


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS)


def test_sizes_are_read_off_the_transitions():
    assert (family().agents, family().states, family().actions, family().batch) == (2, 3, 2, ())


def test_weights_are_equal_by_default():
    assert family().weights.tolist() == [0.5, 0.5]


def test_lists_of_integers_are_numbers_too():
    made = Family([[1]], [[[[1], [1]]]], [[[1, -1]]], 0.5, [1])
    assert all(getattr(made, name).dtype == np.float64 for name in FIELDS)


def test_the_users_own_arrays_are_copied():
    rewards, weights = REWARDS.copy(), np.array([0.25, 0.75])
    made = family(rewards=rewards, weights=weights)
    rewards[:], weights[:] = 7, 7
    assert np.array_equal(made.rewards, REWARDS)
    assert made.weights.tolist() == [0.25, 0.75]
    assert rewards.flags.writeable


@pytest.mark.parametrize("name", FIELDS)
def test_the_arrays_of_a_family_cannot_be_written(name):
    many = Family.stack([family(), family()])
    for made in (family(), many, many[0], many[..., None], many.alone()):
        with pytest.raises(ValueError, match="read-only"):
            getattr(made, name)[...] = 0.5


TRANSITIONS_SHORT = with_entry(TRANSITIONS, (1, 2, 0, 0), 0.0)
NEGATIVE = TRANSITIONS_SHORT.copy()
NEGATIVE[1, 2, 0] = [-0.5, 1.0, 0.5]
INITIAL_NAN = with_entry(INITIAL, (1, 1), np.nan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"transitions": TRANSITIONS_SHORT},
            r"agent 1, state 2, action 0: transitions must sum to 1 over next states, not to 0\.66",
        ),
        (
            {"transitions": NEGATIVE},
            r"agent 1, state 2, action 0, next state 0: transitions must not be negative: -0\.5",
        ),
        (
            {"initial": with_entry(INITIAL, (1, 1), 0.5)},
            r"agent 1: initial must sum to 1 over states, not to 1\.5",
        ),
        ({"initial": INITIAL_NAN}, r"agent 1, state 1: initial must be finite, not nan"),
        ({"initial": [[2, -1, 0]] * 2}, r"agent 0, state 1: initial must not be negative: -1"),
        (
            {"rewards": with_entry(REWARDS, (0, 1, 1), np.nan)},
            r"agent 0, state 1, action 1: rewards must be finite, not nan",
        ),
        (
            {"rewards": with_entry(REWARDS, (1, 2, 0), -np.inf)},
            r"agent 1, state 2, action 0: rewards must be finite, not -inf",
        ),
        ({"weights": [0.5, 0.6]}, r"weights must sum to 1 over agents, not to 1\.1"),
        ({"weights": [1.5, -0.5]}, r"agent 1: weights must not be negative: -0\.5"),
        ({"weights": [0.5, np.nan]}, r"agent 1: weights must be finite, not nan"),
    ],
)
def test_what_is_no_family_is_refused_with_the_place_and_the_rule(changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        family(**changes)


@pytest.mark.parametrize("gamma", [0, 0.0, 1, 1.0, 1.5, -0.5, np.nan, np.inf, True])
def test_gamma_lies_strictly_between_0_and_1(gamma):
    with pytest.raises(ValueError, match="gamma must be a number strictly between 0 and 1, not"):
        family(gamma=gamma)


@pytest.mark.parametrize("gamma", ["0.5", None, 0.5j, [0.5, [0.5]]])
def test_what_is_no_number_is_no_gamma(gamma):
    with pytest.raises(
        ValueError, match=r"gamma (does not consist of numbers|must have the shape)"
    ):
        family(gamma=gamma)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": [[1.0, 0.0]] * 2}, r"initial must have the shape \(2, 3\) for 2 agents, 3 st"),
        ({"initial": [INITIAL[0]]}, r"initial must have the shape \(2, 3\) .* not \(1, 3\)"),
        ({"rewards": REWARDS[0]}, r"rewards needs 3 axes that are not empty, not the shape \(3, 2"),
        ({"rewards": REWARDS[:, :, :1]}, r"rewards must have the shape \(2, 3, 2\) .*\(2, 3, 1\)"),
        ({"transitions": TRANSITIONS[..., :2]}, r"transitions must have the shape \(2, 3, 2, 3\)"),
        ({"transitions": TRANSITIONS[:0]}, r"transitions needs 4 axes that are not empty"),
        ({"weights": [1.0]}, r"weights must have the shape \(2,\)"),
        ({"gamma": [0.5, 0.5]}, r"gamma must be one number or have the shape \(\) of the batch"),
        ({"rewards": "many"}, r"rewards does not consist of numbers"),
        (
            {"rewards": [REWARDS[0], REWARDS[1][:2]]},
            r"agent 1: rewards must have the shape \(3, 2\) of agent 0, not \(2, 2\)",
        ),
        (
            {"transitions": [TRANSITIONS[0], TRANSITIONS[1][:, :1]]},
            r"agent 1: transitions must have the shape \(3, 2, 3\) of agent 0, not \(3, 1, 3\)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        family(**changes)


def test_in_a_batch_the_family_is_named_too():
    many = np.stack([TRANSITIONS, TRANSITIONS_SHORT])
    with pytest.raises(ValueError, match="family 1, agent 1, state 2, action 0: transitions must"):
        Family([INITIAL] * 2, many, [REWARDS] * 2, 0.5)


def test_a_mistake_in_a_family_is_the_users():
    """So the command line says one sentence instead of a traceback."""
    with pytest.raises(UserError):
        family(gamma=2)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([[0.5, 0.5]] * 2 + [[0.5, 0.4]], r"state 2: the policy must sum to 1 over actions, not"),
        (
            [[0.5, 0.5], [1.5, -0.5], [1, 0]],
            r"state 1, action 1: the policy must not be negative: -0\.5",
        ),
        (
            [[0.5, 0.5], [np.nan, 1], [1, 0]],
            r"state 1, action 0: the policy must be finite, not nan",
        ),
        ([[0.5, 0.5]] * 2, r"for 3 states and 2 actions must end in the shape \(3, 2\), not"),
        ([0.5, 0.5], r"the policy needs 2 axes that are not empty, not the shape \(2,\)"),
        (
            [[0.5, 0.5], [1], [1, 0]],
            r"state 1: the policy must have the shape \(2,\) of state 0, not \(1,\)",
        ),
    ],
)
def test_what_is_no_policy_is_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        Exact(family(), policy)


def test_a_policy_for_a_batch_is_named_by_its_place_in_the_batch():
    policies = np.full((2, 3, 2), 0.5)
    policies[1, 2] = 0.4
    with pytest.raises(InvalidFamily, match="family 1, state 2: the policy must sum to 1"):
        check_policy(family(), policies)


def test_the_uniform_policy_takes_every_action_equally():
    many = Family.stack([family(), family()])
    assert np.array_equal(many.uniform_policy(), np.full((2, 3, 2), 0.5))


@settings(max_examples=20, deadline=None)
@given(...)
def test_a_part_of_a_stack_is_what_was_stacked(one: Family):
    other = Family(one.initial, one.transitions, -one.rewards, 0.75, one.weights)
    many = Family.stack([one, other])
    assert many.batch == (2,)
    assert same(many[0], one)
    assert same(many[1], other)
    assert same(many[-1:], Family.stack([other]))
    assert many[..., None].batch == (2, 1)
    assert same(many[..., None][1, 0], other)
    assert same(Family.stack([many, many])[1, 0], one)


@settings(max_examples=20, deadline=None)
@given(...)
def test_alone_every_agent_is_a_family(one: Family):
    alone = Family.stack([one, one]).alone()
    assert alone.batch == (2, one.agents)
    for n in range(one.agents):
        own = (one.initial[n], one.transitions[n], one.rewards[n])
        assert same(alone[1, n], Family(*(array[None] for array in own), one.gamma))


def test_a_batch_may_have_one_gamma_or_one_for_each():
    arrays = {"initial": [INITIAL] * 2, "transitions": [TRANSITIONS] * 2, "rewards": [REWARDS] * 2}
    assert Family(**arrays, gamma=0.5).gamma.tolist() == [0.5, 0.5]
    assert Family(**arrays, gamma=[0.5, 0.9])[1].gamma == 0.9


@pytest.mark.parametrize("batched", [False, True])
def test_what_is_saved_is_loaded_again(tmp_path, batched):
    made = families.random(agents=2, states=3, actions=2, gamma=0.9, seed=0)
    made = Family.stack([made, family(weights=[0.25, 0.75])]) if batched else made
    save(made, tmp_path / "family.npz")
    assert same(load(tmp_path / "family.npz"), made)


def saved(path, **changes):
    arrays = {"initial": INITIAL, "transitions": TRANSITIONS, "rewards": REWARDS, "gamma": 0.5}
    arrays = {name: array for name, array in (arrays | changes).items() if array is not None}
    np.savez(path, **arrays)
    return path


def test_a_file_without_weights_gives_equal_ones(tmp_path):
    assert load(saved(tmp_path / "family.npz")).weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": None}, r"family\.npz lacks the array rewards"),
        ({"gamma": None}, r"family\.npz lacks the array gamma"),
        ({"values": [1.0]}, r"family\.npz has an array values; a family has initial, transitions"),
        ({"gamma": 1.5}, r"gamma must be a number strictly between 0 and 1, not 1\.5"),
        ({"initial": [[1, 1, 0]] * 2}, r"agent 0: initial must sum to 1 over states, not to 2"),
        ({"rewards": ["a", "b"]}, r"rewards does not consist of numbers"),
    ],
)
def test_a_file_that_holds_no_family_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        load(saved(tmp_path / "family.npz", **changes))


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "family.npz")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY"])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "family.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"family\.npz is not an \.npz file"):
        load(tmp_path / "family.npz")


def test_a_file_of_pickled_objects_is_refused_and_not_run(tmp_path):
    np.savez(tmp_path / "family.npz", initial=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"is not an \.npz file of arrays"):
        load(tmp_path / "family.npz")


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "family.npy", np.ones(3))
    with pytest.raises(ValueError, match=r"is not an \.npz file of arrays"):
        load(tmp_path / "family.npy")


def test_half_of_a_file_is_refused(tmp_path):
    path = saved(tmp_path / "family.npz")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"is not an \.npz file of arrays"):
        load(path)


def test_a_name_without_npz_is_kept(tmp_path):
    save(family(), tmp_path / "my.family")
    assert same(load(tmp_path / "my.family"), family())
