"""Agents on the host: their noise, their exploration, and that they do not touch each other.

That they act as the JAX policy does is tested where actors are made of one.
"""

import numpy as np
import pytest

from fedkl.simulators.actors import ACTIVATIONS, Actor, Actors
from fedkl.simulators.base import Seed

HERE = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def actions(actors, steps, seen=HERE):
    """Of agents who always see the same, in one column."""
    act = Actors(actors, [steps])
    return np.stack([act(seen[:, None], step)[:, 0] for step in range(steps)])


@pytest.fixture
def wide():
    """Makes actors with hidden layers and noise, for so many columns."""

    def make(n, columns, outputs=3, discrete=False):
        random = np.random.default_rng(n)
        sizes = [(5, 64), (64, 25), (25, outputs)]
        return Actor(
            weights=tuple(random.normal(size=s).astype(np.float32) / 5 for s in sizes),
            biases=tuple(random.normal(size=s[1]).astype(np.float32) / 5 for s in sizes),
            deviation=None if discrete else np.full(outputs, 0.5, np.float32),
            centre=random.normal(size=5).astype(np.float32),
            scale=random.uniform(0.5, 2, size=5).astype(np.float32),
            clip=2.0,
            exploration=0.2,
            seeds=tuple(Seed((n,), (c,)) for c in columns),
        )

    return make


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


def test_hidden_layers_may_be_rectified(linear):
    actor = linear(0.0, [0.0, 0.0])._replace(
        weights=(np.array([[0.1, 1], [0.2, -1]], np.float32), np.array([[3.0], [5.0]], np.float32)),
        biases=(np.array([0.3, 0.5], np.float32), np.array([-1.0], np.float32)),
        activation=ACTIVATIONS.index("relu"),
    )
    # 0.1 + 0.4 + 0.3 = 0.8, and 1 - 2 + 0.5 is below 0: 3 times 0.8 less 1.
    assert actions([actor], 1, HERE[:1])[0, 0, 0] == pytest.approx(1.4, abs=1e-6)


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


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("columns", [2, 3, 4, 8])
def test_a_column_has_the_same_bits_whatever_is_beside_it(wide, agents, columns, discrete):
    seen = np.random.default_rng(0).normal(size=(20, agents, columns, 5)).astype(np.float32)
    together = Actors(
        [wide(n, range(columns), discrete=discrete) for n in range(agents)], [20] * columns
    )
    among = np.stack([together(seen[row], row) for row in range(20)])
    for c in range(columns):
        alone = Actors([wide(n, [c], discrete=discrete) for n in range(agents)], [20])
        by_itself = [alone(seen[row][:, c : c + 1], row)[:, 0] for row in range(20)]
        assert np.array_equal(among[:, :, c], by_itself)


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("left", [1, 2, 3])
def test_columns_that_are_left_have_the_same_bits(wide, agents, left, discrete):
    seen = np.random.default_rng(0).normal(size=(20, agents, 4, 5)).astype(np.float32)
    whole, narrowed = (
        Actors([wide(n, range(4), discrete=discrete) for n in range(agents)], [20] * 4)
        for _ in range(2)
    )
    narrowed.narrow(left)
    for row in range(20):
        expected = whole(seen[row], row)[:, :left]
        assert np.array_equal(narrowed(seen[row][:, :left], row), expected)


def test_an_action_is_rounded_as_its_formula_is(wide):
    """What saves time must not change a bit: runs that are known would come out otherwise."""
    actors = [wide(n, range(3))._replace(exploration=0.0) for n in range(2)]
    seen = 3 * np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    acted = Actors(actors, [1] * 3)(seen, 0)
    for n, actor in enumerate(actors):
        reach = np.float32(actor.clip) * actor.scale
        for c, seed in enumerate(actor.seeds):
            x = np.clip(seen[n, c] - actor.centre, -reach, reach)[None]
            first, *others = actor.weights
            for weight, bias in zip(
                [first / actor.scale[:, None], *others], actor.biases, strict=True
            ):
                before = np.matmul(x, weight) + bias
                x = np.tanh(before)
            noise = seed.generator().standard_normal((1, 3), np.float32) * actor.deviation
            assert np.array_equal(acted[n, c], (before + noise)[0])


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


def test_exploration_and_seeds_can_be_filled_in_later(linear):
    whole = linear(1.0, [0.0, 0.0], 0.5, Seed((3,)))._replace(exploration=0.25)
    bare = Actor(*whole[:6])
    assert (bare.exploration, bare.seeds) == (0.0, ())
    later = bare._replace(exploration=0.25, seeds=(Seed((3,)),))
    assert np.array_equal(actions([later], 20, HERE[:1]), actions([whole], 20, HERE[:1]))


def test_every_agent_has_its_own_clip_a_number_or_an_array(linear):
    actors = [linear(0.0, [1.0, 0.0])._replace(clip=clip) for clip in (0.5, np.float32(2.0))]
    actors.append(actors[0]._replace(clip=np.array(2.5, np.float32)))
    assert actions(actors, 1, np.full((3, 2), 9.0, np.float32))[0, :, 0].tolist() == [0.5, 2.0, 2.5]


# Discrete actions.


@pytest.fixture
def chooses():
    """Makes actors that choose by these logits, whatever they see."""

    def make(logits, temperature=1.0):
        return Actor(
            weights=(np.zeros((2, len(logits)), np.float32),),
            biases=(np.array(logits, np.float32),),
            deviation=None,
            centre=np.zeros(2, np.float32),
            scale=np.ones(2, np.float32),
            clip=np.inf,
            seeds=(Seed((0,)),),
            temperature=temperature,
        )

    return make


def test_discrete_actions_come_as_often_as_their_logits_say(chooses):
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    chosen = actions([chooses(np.log(probabilities) + 7)], 20_000, HERE[:1])[:, 0]
    assert np.issubdtype(chosen.dtype, np.integer)
    # Three standard deviations of the share of the first are 0.011.
    assert np.bincount(chosen, minlength=4) / 20_000 == pytest.approx(probabilities, abs=0.011)


def test_a_higher_temperature_evens_out_and_none_takes_the_most_probable(chooses):
    # Logits halved: 1 / (1 + e^-1) = 0.731.
    warm = actions([chooses([0.0, 2.0], 2.0)], 20_000, HERE[:1])
    assert warm.mean() == pytest.approx(0.731, abs=0.011)
    assert (actions([chooses([0.0, 1e-3, -1.0], 0.0)], 50, HERE[:1]) == 1).all()
