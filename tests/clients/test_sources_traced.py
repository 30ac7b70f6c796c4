"""Episodes side by side: what each step sees, and what counts after an end."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.clients.sources import Traced
from fedkl.worlds import Bandit, Continuous, Transition, World

KEY = jax.random.key(0)


class Countdown(World):
    """Starts at a random whole number up to 6 and ends at 0; the action is paid as reward.

    Past the end it answers with nonsense, as a world may.
    """

    name: ClassVar[str] = "countdown"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[Continuous] = Continuous(1)
    horizon: ClassVar[int] = 5

    def clients(self, n, key):
        return jnp.zeros(n)

    def reset(self, params, key):
        left = jax.random.randint(key, (), 1, 7)
        return left, left[None].astype(float)

    def step(self, params, state, action, key):
        left = state - 1
        seen = jnp.where(left < 0, jnp.nan, left.astype(float))
        return Transition(left, seen[None], seen * 0 + action[0], left <= 0)


COUNTDOWN = Traced(Countdown(), jnp.zeros(()))


def act(observation, key):
    return 10 * observation


@pytest.fixture(scope="module")
def data():
    run = jax.jit(lambda key: COUNTDOWN.collect(act, 40, key))
    return jax.device_get(run(KEY))


def test_an_episode_ends_where_its_world_ends_or_at_the_horizon(data):
    starts = data.observation[0, :, 0]
    assert set(starts.tolist()) == {1, 2, 3, 4, 5, 6}
    np.testing.assert_array_equal(data.mask.sum(axis=0), np.minimum(starts, 5))
    # A start of 6 is cut off by the time limit, all others end truly, once.
    np.testing.assert_array_equal(data.terminated.sum(axis=0), starts < 6)
    assert not (data.terminated & ~data.mask).any()


def test_an_entry_is_a_state_with_the_action_taken_there_and_its_reward(data):
    np.testing.assert_array_equal((data.action == 10 * data.observation)[data.mask], True)
    np.testing.assert_array_equal(data.reward[data.mask], data.action[..., 0][data.mask])


def test_the_last_observation_follows_the_last_step(data):
    cut = data.observation[0, :, 0] == 6
    np.testing.assert_array_equal(data.last_observation[cut], 1)


def test_returns_sum_what_came_before_the_end(data):
    left = data.observation[0, :, 0]
    expected = 10 * np.where(left < 6, left * (left + 1) / 2, 6 + 5 + 4 + 3 + 2)
    np.testing.assert_array_equal(data.returns(), expected)


def test_nothing_recorded_after_an_end_can_poison_an_average(data):
    for leaf in (data.observation, data.action, data.reward):
        assert np.isfinite(leaf).all()


def test_episodes_differ_and_a_key_repeats_them():
    world = Bandit(noise=1.0)
    source = Traced(world, jax.tree.map(lambda x: x[0], world.clients(1, KEY)))
    run = jax.jit(
        lambda key: source.collect(lambda o, k: jnp.zeros(len(o), int), 20, key).reward[0]
    )
    assert len(set(run(KEY).tolist())) == 20
    np.testing.assert_array_equal(run(KEY), run(KEY))
    assert set(run(KEY).tolist()).isdisjoint(run(jax.random.key(1)).tolist())


@pytest.mark.parametrize("seed", range(6))
def test_a_recording_goes_to_the_horizon_and_says_where_its_episode_ended(seed):
    made = jax.device_get(jax.jit(lambda key: COUNTDOWN.record(act, key))(jax.random.key(seed)))
    start = int(made.states[0])
    assert 1 <= start <= 6
    # The states from the first to the last: one more than there are steps.
    assert made.states.tolist() == [start - t for t in range(6)]
    assert made.mask.tolist() == [t < start for t in range(5)]
    assert made.reward[made.mask].tolist() == [10 * (start - t) for t in range(min(start, 5))]
    assert made.params == 0


# Exactly so many steps.


def filled(steps, source=COUNTDOWN):
    return jax.device_get(jax.jit(lambda key: source.fill(act, steps, key))(KEY))


@pytest.mark.parametrize("steps", [1, 4, 5, 8, 200])
def test_exactly_the_steps_that_were_asked_for_count(steps):
    data = filled(steps)
    assert data.mask.sum() == steps
    # Column by column: all before the last one are full.
    assert data.mask.T.reshape(-1)[:steps].all()


def test_after_an_end_the_next_episode_begins_in_the_same_column():
    data = filled(200)
    seen = data.observation[..., 0]
    assert data.terminated.sum() > 40
    # Where the number does not go down by one, the episode before has ended.
    np.testing.assert_array_equal(
        data.terminated[:-1], (seen[1:] != seen[:-1] - 1) | (seen[:-1] == 1)
    )
    assert set(seen[1:][data.terminated[:-1]].tolist()) == {1, 2, 3, 4, 5, 6}
    np.testing.assert_array_equal(data.action, 10 * data.observation)
    np.testing.assert_array_equal(data.reward, data.action[..., 0])


def test_what_is_seen_last_follows_each_columns_last_step():
    """The last column has three of five rows."""
    data = filled(198)
    seen, last = data.observation[..., 0], data.last_observation[:, 0]
    whole = ~data.terminated[-1, :-1]
    np.testing.assert_array_equal(last[:-1][whole], seen[-1, :-1][whole] - 1)
    assert data.mask[:, -1].tolist() == [True] * 3 + [False] * 2
    assert last[-1] == seen[3, -1]


def test_a_world_that_never_ends_is_run_as_whole_episodes_are():
    class Endless(Countdown):
        name: ClassVar[str] = "endless"
        terminates: ClassVar[bool] = False

        def step(self, params, state, action, key):
            moved = super().step(params, state, action, key)
            return moved._replace(observation=moved.state[None] * 1.0, terminated=jnp.array(False))

    source = Traced(Endless(), jnp.zeros(()))
    whole = jax.device_get(jax.jit(lambda key: source.collect(act, 3, key))(KEY))
    part = filled(13, source)
    np.testing.assert_array_equal(part.observation, whole.observation)
    assert part.mask.sum(axis=0).tolist() == [5, 5, 3]
    assert part.last_observation[-1] == whole.observation[3, -1]
