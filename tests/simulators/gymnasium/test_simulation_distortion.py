"""Between policy and environment: delay, offset, noise."""

import numpy as np
import pytest

from fedkl.simulators.base import Seed
from fedkl.simulators.gymnasium.simulation import Distortion, Environment


def begun(seed=0, **params):
    made = Distortion(params)
    made.begin(np.random.default_rng(seed))
    return made


def test_actions_come_late_and_zeros_act_until_then():
    made = begun(action_delay=np.int32(2))
    acted = [made.acted(np.array([float(k)], np.float32))[0] for k in range(1, 6)]
    assert acted == [0, 0, 1, 2, 3]
    made.begin(np.random.default_rng(0))
    assert made.acted(np.array([9.0], np.float32))[0] == 0


def test_discrete_actions_may_be_late_too():
    made = begun(action_delay=1)
    assert [int(made.acted(a)) for a in np.array([2, 1, 2])] == [0, 2, 1]


def test_an_offset_is_added_after_the_delay():
    made = begun(action_delay=1, action_offset=np.array([0.5, -1.0]))
    first, second = (made.acted(np.ones(2, np.float32)) for _ in range(2))
    assert first.tolist() == [0.5, -1.0]
    assert second.tolist() == [1.5, 0.0]


@pytest.mark.parametrize(
    ("parameter", "name"), [("action_noise", "acted"), ("observation_noise", "seen")]
)
def test_noise_has_the_deviation_it_is_given_and_is_fresh_in_every_step(parameter, name):
    made = begun(**{parameter: np.float64(0.3)})
    noise = np.stack([getattr(made, name)(np.full(2, 7.0, np.float32)) for _ in range(4000)]) - 7
    assert noise.std(axis=0) == pytest.approx([0.3, 0.3], rel=0.05)
    assert noise.mean(axis=0) == pytest.approx([0, 0], abs=0.02)
    assert abs(np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]) < 0.05


PARAMS = {
    "action_delay": np.int32(1),
    "action_offset": np.array([0.3]),
    "action_noise": np.float64(0.2),
    "observation_noise": np.float64(0.2),
}


@pytest.mark.parametrize("parameter", PARAMS)
def test_every_word_changes_a_trajectory_and_repeats_itself(parameter):
    env = Environment("Pendulum-v1")

    def driven(params, seed=3):
        seen = [env.reset(Seed((seed,)), params)]
        for k in range(20):
            seen.append(env.step(np.full((1, 1), (-1) ** k * 0.5, np.float32)).observation)
        return np.stack(seen)

    plain, distorted = driven({}), driven({parameter: PARAMS[parameter]})
    assert not np.array_equal(plain, distorted)
    assert np.array_equal(distorted, driven({parameter: PARAMS[parameter]}))
    assert np.array_equal(plain, driven({}))
    assert not np.array_equal(distorted, driven({parameter: PARAMS[parameter]}, seed=4))


def test_what_is_added_is_clipped_with_the_action():
    """At its speed limit the pendulum cannot tell: it is the torque that is compared."""
    env = Environment("Pendulum-v1")
    env.reset(Seed((1,)), {"action_offset": np.array([5.0])})
    env.step(np.zeros((1, 1), np.float32))
    assert env._bare.last_u == 2.0
