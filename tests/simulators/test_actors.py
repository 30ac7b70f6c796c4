"""Agents on the host: their noise, their exploration, and that they do not touch each other.

That they act as the JAX policy does is tested where actors are made of one.
"""

import numpy as np
import pytest

from fedkl.simulators.actors import Actor, Actors
from fedkl.simulators.base import Seed

HERE = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def actions(actors, steps, seen=HERE):
    act = Actors(actors, steps)
    return np.stack([act(seen, step) for step in range(steps)])


def test_an_agents_mean_is_its_own_networks_by_hand(linear):
    # 0.5 + 1 * 1 - 2 * 2 and -1 + 3 * 3 + 0 * 4.
    actors = [linear(0.5, [1.0, -2.0]), linear(-1.0, [3.0, 0.0])]
    assert actions(actors, 1)[0, :, 0].tolist() == [-2.5, 8.0]


def test_hidden_layers_are_tanh_and_the_last_is_linear(linear):
    actor = linear(0.0, [0.0, 0.0])._replace(
        weights=(np.array([[0.1], [0.2]], np.float32), np.array([[3.0]], np.float32)),
        biases=(np.array([0.3], np.float32), np.array([-1.0], np.float32)),
    )
    # tanh(0.1 + 0.4 + 0.3) = 0.664037, and 3 times that less 1.
    assert actions([actor], 1, HERE[:1])[0, 0, 0] == pytest.approx(0.992110, abs=1e-5)


def test_observations_are_standardised_and_clipped_by_each_agents_own_statistics(linear):
    one = linear(0.0, [1.0, 0.0])._replace(
        centre=np.array([0.5, 0.0], np.float32), scale=np.array([0.25, 1.0], np.float32), clip=5.0
    )
    other = one._replace(
        centre=np.array([-9.0, 0.0], np.float32), scale=np.array([0.5, 1.0], np.float32)
    )
    # (1 - 0.5) / 0.25 = 2, and (3 + 9) / 0.5 = 24, which is clipped to 5.
    assert actions([one, other], 1)[0, :, 0].tolist() == [2.0, 5.0]
    assert actions([other, one], 1, -100 * HERE)[0, :, 0].tolist() == [-5.0, -5.0]


def test_noise_has_the_deviation_and_is_white(linear):
    noise = actions([linear(7.0, [0.0, 0.0], 0.3)], 4000, HERE[:1])[:, 0, 0] - 7
    assert noise.mean() == pytest.approx(0, abs=0.02)
    assert noise.std() == pytest.approx(0.3, rel=0.05)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.05


def test_an_agents_noise_does_not_depend_on_who_else_takes_part(linear):
    actors = [linear(float(n), [1.0, 0.0], 1.0, Seed((n,))) for n in range(3)]
    alone = actions(actors[1:2], 50, HERE[:1])[:, 0]
    among = actions([actors[2], actors[1], actors[0]], 50, np.repeat(HERE[:1], 3, axis=0))
    assert np.array_equal(alone, among[:, 1])


def test_agents_with_different_seeds_have_nothing_in_common(linear):
    actors = [linear(0.0, [0.0, 0.0], 1.0, Seed((1,), (n,))) for n in range(2)]
    first, second = actions(actors, 3000)[..., 0].T
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.06


def test_without_deviation_there_is_no_noise(linear):
    assert np.ptp(actions([linear(1.0, [0.0, 0.0])], 50, HERE[:1])) == 0


def test_an_agent_that_explores_sometimes_acts_uniformly_instead(linear):
    actor = linear(7.0, [0.0, 0.0], 0.1)._replace(exploration=0.25)
    acted = actions([actor], 4000, HERE[:1])[:, 0, 0]
    uniform = acted < 3
    assert uniform.mean() == pytest.approx(0.25, abs=0.03)
    assert acted[uniform].min() >= 0
    assert acted[uniform].max() <= 1
    assert acted[uniform].mean() == pytest.approx(0.5, abs=0.04)
    assert acted[uniform].std() == pytest.approx(1 / np.sqrt(12), rel=0.06)
    assert acted[~uniform].mean() == pytest.approx(7, abs=0.02)


def test_exploration_and_seed_can_be_filled_in_later(linear):
    whole = linear(1.0, [0.0, 0.0], 0.5, Seed((3,)))._replace(exploration=0.25)
    bare = Actor(*whole[:6])
    assert (bare.exploration, bare.seed) == (0.0, Seed(()))
    later = bare._replace(exploration=0.25, seed=Seed((3,)))
    assert np.array_equal(actions([later], 20, HERE[:1]), actions([whole], 20, HERE[:1]))


def test_every_agent_has_its_own_clip_a_number_or_an_array(linear):
    actors = [linear(0.0, [1.0, 0.0])._replace(clip=clip) for clip in (0.5, np.float32(2.0))]
    actors.append(actors[0]._replace(clip=np.array(2.5, np.float32)))
    assert actions(actors, 1, np.full((3, 2), 9.0, np.float32))[0, :, 0].tolist() == [0.5, 2.0, 2.5]
