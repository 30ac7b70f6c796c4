"""Parameters of environments: every one changes a trajectory, and nothing of it stays behind."""

import itertools

import mujoco
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.base import Seed
from fedkl.simulators.gymnasium.simulation import Environment, examine
from fedkl.simulators.spaces import Numbers

FACTORS = {"initial_low": 0.9, "initial_high": 1.2, "max_speed": 0.2}
"""What nominal values are multiplied by, if not by 0.8."""
VALUES = {"goal_position": 0.5, "goal_velocity": 0.06, "wind": 15.0}
"""What is set where nominal values are 0, or 0.8 of them would do."""
IDS = [
    "CartPole-v1",
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Acrobot-v1",
    "LunarLander-v3",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Reacher-v5",
    "InvertedPendulum-v5",
]
PARAMETERS = {id: examine(id, {}).parameters for id in IDS}
EACH = [(id, parameter) for id, parameters in PARAMETERS.items() for parameter in parameters]


def other(id, parameter):
    """A value of a parameter that is not its nominal one."""
    nominal = np.asarray(PARAMETERS[id][parameter].nominal)
    if parameter in VALUES:
        return np.float64(VALUES[parameter])
    return nominal * FACTORS.get(parameter, 0.8)


def driven(env, params, steps=80, seed=3):
    """All that is seen and paid in an episode with actions that do not depend on it."""
    random = np.random.default_rng(0)
    facts = examine(env._spec.id, {})
    seen = [env.reset(Seed((seed,)), params).ravel()]
    paid, ended = [], False
    for _ in range(steps):
        if isinstance(facts.actions, Numbers):
            action = random.integers(facts.actions.size, size=1)
        else:
            # To and fro, in swings that are long enough to get anywhere.
            action = random.uniform(0.2, 1.2, (1, facts.actions.size)).astype(np.float32)
            action *= 1 if len(paid) % 40 < 20 else -1
        step = env.step(action)
        seen.append(step.observation.ravel())
        paid.append(step.reward)
        ended = step.terminated
        if ended:
            break
    return np.stack(seen), np.array(paid), ended


def same(a, b):
    return a[0].shape == b[0].shape and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("id", "parameter"), EACH, ids=[f"{id}-{parameter}" for id, parameter in EACH]
)
def test_every_word_changes_a_trajectory_and_goes_with_its_client(id, parameter):
    env = Environment(id)
    before = driven(env, {})
    # A goal that the car is at from the start, or that it is not.
    reached = {"goal_position": np.float64(-0.7), "goal_velocity": np.float64(-0.07)}
    params = reached if parameter in reached else {}
    assert not same(driven(env, params), driven(env, params | {parameter: other(id, parameter)}))
    assert same(driven(env, {}), before)
    nominal = {w: np.asarray(q.nominal) for w, q in PARAMETERS[id].items() if "initial" not in w}
    assert same(driven(env, nominal), before)


@pytest.mark.parametrize("id", IDS)
def test_clients_take_turns_with_an_environment_without_a_trace(id):
    clients = [{}, *[{parameter: other(id, parameter)} for parameter in PARAMETERS[id]], {}]
    together = {w: other(id, w) for w in PARAMETERS[id] if "goal" not in w}
    alone = [driven(Environment(id), params, 30) for params in (*clients, together)]
    shared = Environment(id)
    for params, expected in itertools.chain(*[zip((*clients, together), alone, strict=True)] * 2):
        assert same(driven(shared, params, 30), expected)


def test_words_that_would_do_nothing_are_not_offered():
    assert "gravity" not in PARAMETERS["Acrobot-v1"]
    assert "link_length_2" not in PARAMETERS["Acrobot-v1"]
    assert "gravity" not in PARAMETERS["MountainCarContinuous-v0"]
    assert not {"gravity", "friction"} & PARAMETERS["Reacher-v5"].keys()
    assert "gravity" in PARAMETERS["InvertedPendulum-v5"]  # which stands upright as it is made


def test_masses_of_the_cart_act_on_what_gymnasium_keeps_of_them():
    """(force + 0) / total mass, and so on, by hand: the first step from a known state."""
    env = Environment("CartPole-v1")
    params = {"masscart": np.float64(2.0), "masspole": np.float64(0.5), "length": np.float64(1.0)}
    env.reset(Seed((1,)), params)
    env._bare.state = np.zeros(4)
    _, velocity, _, angular = env.step(np.array([1])).observation[0]
    # temp = 10 / 2.5 = 4; angular acceleration = -4 / (1 * (4/3 - 0.5/2.5)); the cart's is
    # 4 - 0.5 * that / 2.5; both for 0.02 s.
    turning = -4 / (4 / 3 - 0.2)
    assert angular == pytest.approx(0.02 * turning, rel=1e-5)
    assert velocity == pytest.approx(0.02 * (4 - 0.2 * turning), rel=1e-5)


def test_a_stronger_motor_of_the_pendulum_is_what_action_one_is():
    """From rest upright the speed after a step is 3 / (m l^2) u dt = 0.15 u."""
    env = Environment("Pendulum-v1")
    for torque in (2.0, 5.0):
        env.reset(Seed((1,)), {"max_torque": np.float64(torque)})
        env._bare.state = np.zeros(2)
        speed = env.step(np.full((1, 1), 3.0, np.float32)).observation[0, 2]
        assert speed == pytest.approx(0.15 * torque, rel=1e-5)


@pytest.mark.parametrize("id", ["Hopper-v5", "Reacher-v5"])
def test_masses_are_those_of_a_recompiled_model(id):
    env, factor = Environment(id), 1.7
    env.reset(Seed((1,)), {"mass": np.float64(factor)})
    here = env._bare
    spec = mujoco.MjSpec.from_file(here.fullpath)
    for geom in spec.geoms:
        geom.density *= factor
        geom.mass *= factor  # not a number, where the density says it
    model = spec.compile()
    np.testing.assert_allclose(here.model.body_mass, model.body_mass, rtol=1e-12)
    np.testing.assert_allclose(here.model.body_inertia, model.body_inertia, rtol=1e-12)
    data = mujoco.MjData(model)
    ours = mujoco.MjData(here.model)
    random = np.random.default_rng(0)
    for _ in range(60):
        ours.ctrl[:] = data.ctrl[:] = random.uniform(-1, 1, model.nu)
        for _ in range(here.frame_skip):
            mujoco.mj_step(here.model, ours)
            mujoco.mj_step(model, data)
    np.testing.assert_allclose(ours.qpos, data.qpos, atol=1e-8)
    np.testing.assert_allclose(ours.qvel, data.qvel, atol=1e-8)
    assert np.abs(ours.qvel).max() > 0.01


def test_a_model_is_brought_back_to_the_last_bit():
    env = Environment("HalfCheetah-v5")
    names = [n for n in dir(env._bare.model) if isinstance(getattr(env._bare.model, n), np.ndarray)]
    before = {n: np.array(getattr(env._bare.model, n)) for n in names}
    for parameter in ("mass", "friction", "damping", "strength", "gravity"):
        env.reset(
            Seed((1,)), {parameter: np.float64(0.37), "model.opt.timestep": np.float64(0.003)}
        )
    env.reset(Seed((1,)), {})
    for name in names:
        assert np.array_equal(before[name], getattr(env._bare.model, name), equal_nan=True), name
    assert env._bare.model.opt.timestep == 0.01
    assert np.array_equal(env._bare.model.opt.gravity, [0, 0, -9.81])


# Names that no parameter is for.


@pytest.mark.parametrize(
    ("id", "name", "nominal", "value"),
    [
        ("CartPole-v1", "attribute.tau", 0.02, 0.04),
        ("HalfCheetah-v5", "model.opt.timestep", 0.01, 0.005),
        ("HalfCheetah-v5", "model.jnt_stiffness", None, 90.0),
        ("HalfCheetah-v5", "make.ctrl_cost_weight", 0.1, 0.7),
        ("HalfCheetah-v5", "make.frame_skip", 5.0, 3),
        ("LunarLander-v3", "make.turbulence_power", 1.5, 0.2),
    ],
)
def test_raw_names_reach_what_they_name_and_are_taken_back(id, name, nominal, value):
    found = examine(id, {}, (name,)).parameters[name]
    assert nominal is None or found.nominal == nominal
    env = Environment(id, {"enable_wind": True} if "Lander" in id else None)
    before = driven(env, {})
    assert not same(driven(env, {name: np.float64(value)}), before)
    assert same(driven(env, {}), before)


@pytest.mark.parametrize(
    "name",
    ["make.nope", "attribute.nope", "attribute.spec", "model.nope", "model.opt.nope", "nope.x"],
)
def test_a_raw_name_that_stands_for_no_number_is_no_word(name):
    assert name not in examine("HalfCheetah-v5", {}, (name,)).parameters
    assert "model.nq" not in examine("CartPole-v1", {}, ("model.nq",)).parameters


@pytest.mark.parametrize(
    ("id", "name", "given", "nominal", "whole"),
    [
        ("HalfCheetah-v5", "ctrl_cost_weight", 0.3, 0.3, False),
        ("HalfCheetah-v5", "ctrl_cost_weight", 3, 3, False),
        ("HalfCheetah-v5", "frame_skip", 4, 4, True),
        ("MountainCarContinuous-v0", "goal_velocity", 0.01, 0.01, False),
    ],
)
def test_nominal_is_what_the_constructor_is_given(id, name, given, nominal, whole):
    found = examine(id, {name: given}, (f"make.{name}",)).parameters[f"make.{name}"]
    assert (found.nominal, found.whole) == (nominal, whole)


def test_nominal_is_what_an_environment_was_registered_with(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    __import__("toy_environments")
    assert examine("toys/Plain-v0", {}, ("make.length",)).parameters["make.length"].nominal == 4


@pytest.mark.parametrize("name", ["attribute.dt", "model.nq", "model.nbody"])
def test_a_raw_name_of_what_cannot_be_set_is_no_word(name):
    assert name not in examine("HalfCheetah-v5", {}, (name,)).parameters


def test_params_must_leave_the_spaces_as_they_are():
    env = Environment("HalfCheetah-v5")
    name = "make.exclude_current_positions_from_observation"
    with pytest.raises(UserError, match="18 numbers in an observation for one client and 17"):
        env.reset(Seed((1,)), {name: np.float64(0)})


@pytest.mark.parametrize(
    ("arguments", "name", "sentence"),
    [
        ({}, "make.buttons", "4 discrete actions for one client and 2 numbers in an action for"),
        ({"buttons": 3}, "make.buttons", "4 discrete actions for one client and 3 discrete"),
        ({}, "make.size", "4 numbers in an action for one client and 2 numbers in an action for"),
    ],
)
def test_params_must_leave_the_actions_as_they_are(toys, monkeypatch, arguments, name, sentence):
    monkeypatch.syspath_prepend(toys)
    __import__("toy_environments")
    env = Environment("toys/Actions-v0", arguments)
    with pytest.raises(UserError, match=f"{sentence}.*must leave its spaces as they are"):
        env.reset(Seed((1,)), {name: np.int32(4)})


def test_limits_of_actions_may_differ(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    __import__("toy_environments")
    env = Environment("toys/Actions-v0")
    env.reset(Seed((1,)), {"make.reach": np.float64(0.5)})
    assert env.step(np.ones((1, 2), np.float32)).reward == 1.0


# Where episodes start.


def test_first_states_lie_in_the_box_of_their_client():
    env = Environment("CartPole-v1")
    params = {"initial_low": np.float64(0.02), "initial_high": np.float64(0.03)}
    first = np.stack([env.reset(Seed((s,)), params)[0] for s in range(50)])
    assert first.min() >= 0.02 - 1e-7
    assert first.max() <= 0.03 + 1e-7
    assert np.ptp(first) > 0.008


def test_first_states_of_a_model_lie_around_the_one_it_was_made_with():
    env = Environment("HalfCheetah-v5")
    low, high = np.full(18, -0.1), np.full(18, 0.1)
    low[8], high[8] = 0.4, 0.5
    params = {"initial_low": low, "initial_high": high}
    # Without its own place, the observation is 8 positions and 9 velocities.
    first = np.stack([env.reset(Seed((s,)), params)[0] for s in range(40)])
    assert (first[:, 7] > 0.4 - 1e-6).all()
    assert (first[:, 7] < 0.5 + 1e-6).all()
    assert np.abs(np.delete(first, 7, axis=1)).max() <= 0.1 + 1e-6
    assert len(set(first[:, 7])) == 40


def test_first_velocities_that_a_word_is_for_are_uniform():
    """HalfCheetah's own are normal, and go beyond its reach of 0.1."""
    env, parameters = Environment("HalfCheetah-v5"), PARAMETERS["HalfCheetah-v5"]
    named = {
        parameter: np.array(parameters[parameter].nominal)
        for parameter in ("initial_low", "initial_high")
    }
    for params, beyond in ((named, False), ({}, True)):
        first = np.stack([env.reset(Seed((s,)), params)[0, 8:] for s in range(40)])
        assert (np.abs(first).max() > 0.1 + 1e-6) == beyond
    assert "uniformly" in parameters["initial_low"].help
