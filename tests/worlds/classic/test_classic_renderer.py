"""What can be told of the classic worlds' pictures without looking at them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.worlds import WORLDS
from fedkl.worlds.classic import classic_renderer as renderer

BLUE, ORANGE = (0, 114, 178), (213, 94, 0)
NAMES = ("cartpole", "pendulum", "mountain-car-continuous", "acrobot")


def coloured(frame, colour=BLUE):
    """Where the pixels of a colour are from the picture's middle: how far up, how far right."""
    rows, columns = np.nonzero(np.all(frame == colour, axis=-1))
    return frame.shape[0] / 2 - rows, columns - frame.shape[1] / 2


def ahead(frame, colour=BLUE):
    """The direction from the picture's middle to where the colour is, from upright, clockwise."""
    up, right = (np.mean(x) for x in coloured(frame, colour))
    return np.arctan2(right, up)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_of_each_world_is_drawn_from_its_first_state(name):
    world = WORLDS[name]()
    params = jax.tree.map(lambda x: x[0], world.clients(1, jax.random.key(0)))
    state, _ = world.reset(params, jax.random.key(1))
    frame = world.renderer(params)(jax.device_get(state), 0, 0.0)
    assert frame.dtype == np.uint8
    assert frame.shape[2] == 3
    assert len(coloured(frame)[0]) > 50
    assert world.frames_per_second <= 50
    for _, colour in world.legend:
        assert len(coloured(frame, colour)[0]) > 50


@pytest.mark.parametrize("angle", [0.0, 0.7, -2.0, 3.0])
def test_a_pendulum_turns_against_the_clock(angle):
    assert ahead(renderer.draw_pendulum(angle, 1.0)) == pytest.approx(-angle, abs=0.02)


def test_a_pole_leans_to_the_right_and_moves_with_the_cart():
    upright, leaning, away = (
        coloured(renderer.draw_cartpole(x, angle, 0.5, 2.4))[1].mean()
        for x, angle in ((0.0, 0.0), (0.0, 0.2), (1.2, 0.0))
    )
    assert upright == pytest.approx(0, abs=1)
    assert leaning > 5
    assert away == pytest.approx(480 / (2 * 1.15 * 2.4) * 1.2, abs=2)


@pytest.mark.parametrize("half_length", [0.5, 1.5, 4.0])
def test_a_pole_is_seen_to_its_end(half_length):
    frame = renderer.draw_cartpole(0.0, 0.0, half_length, 2.4)
    assert not np.any(np.all(frame[0] == BLUE, axis=-1))


def test_a_car_is_where_it_is_and_its_goal_to_the_right():
    left, right = (renderer.draw_mountain_car(x, 0.45, -1.2, 0.6) for x in (-1.0, 0.2))
    assert coloured(left)[1].mean() < coloured(right)[1].mean()
    flag = coloured(right, ORANGE)[1].mean()
    assert flag > coloured(right)[1].mean()


@pytest.mark.parametrize(("angles", "above"), [((0.0, 0.0), False), ((np.pi, 0.0), True)])
def test_the_tip_of_an_acrobot_is_above_its_goal_when_it_stands(angles, above):
    frame = renderer.draw_acrobot(angles, (1.0, 1.0), 1.0)
    tip = np.max(coloured(frame)[0]) if above else np.min(coloured(frame)[0])
    goal = np.mean(coloured(frame, ORANGE)[0])
    assert bool(tip > goal) is above


def test_the_second_link_turns_from_the_first():
    straight, bent = (renderer.draw_acrobot((0.0, x), (1.0, 1.0), 1.9) for x in (0.0, np.pi / 2))
    assert coloured(straight)[1].mean() == pytest.approx(0, abs=1)
    assert coloured(bent)[1].mean() > 20


def test_arrays_of_jax_are_drawn_like_numbers():
    world = WORLDS["acrobot"]()
    params = world.params()
    state, _ = world.reset(params, jax.random.key(1))
    there = world.renderer(params)(jax.tree.map(jnp.asarray, state), 0, 0.0)
    assert np.array_equal(there, world.renderer(params)(jax.device_get(state), 0, 0.0))
