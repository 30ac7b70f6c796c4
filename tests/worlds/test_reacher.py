"""The JAX Reacher beside MuJoCo's, and what Reacher-v2 promises."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.core.errors import UserError
from fedkl.worlds import WORLDS, Differences, Reacher, ReacherState, reacher
from fedkl.worlds.reacher_mujoco import FRAME_SKIP, MujocoReacher, load_model

try:
    from jax import enable_x64
except ImportError:  # before JAX 0.8
    from jax.experimental import enable_x64

EPISODES, ONE_SIDED = 100, 20
WORLD = Reacher()
JITTED_RESET = jax.jit(WORLD.reset)


def row(params, i=0):
    return jax.tree.map(lambda x: x[i], params)


def clients(n, key=None, **table):
    """Params of clients that differ in what the table says."""
    world = Reacher(differences=Differences.from_table(table))
    return world.clients(n, jax.random.key(0) if key is None else key)


SQUARES = {"boxes": 60}
OFFSET = {"normal": [0, 0.4], "clip": 1}
PER_STEP = {"normal": [0, 0.4], "per": "step"}


@eqx.filter_jit
def play(params, keys, actions):
    """Episodes of given actions, one per row; also the state that each step starts from."""

    def episode(params, key, actions):
        keys = jax.random.split(key, len(actions) + 1)
        start, observation = WORLD.reset(params, keys[0])

        def step(state, x):
            moved = WORLD.step(params, state, *x)
            return moved.state, (state, moved)

        states, moved = jax.lax.scan(step, start, (actions, keys[1:]))[1]
        return start, observation, states, moved

    return jax.vmap(episode)(params, keys, actions)


def random_actions():
    """Actions beyond what motors can do, and a last few that drive into the joint limit."""
    actions = np.random.default_rng(0).uniform(-1.5, 1.5, (EPISODES, WORLD.horizon, 2))
    actions[-ONE_SIDED:, :, 1] = np.where(np.arange(ONE_SIDED) % 2, 1.0, -1.0)[:, None]
    return actions


@pytest.mark.parametrize(("x64", "tolerance"), [(True, 1e-6), (False, 1e-3)])
def test_equals_mujoco(x64, tolerance):
    with enable_x64(x64):
        params = clients(EPISODES, jax.random.key(1), initial_state=SQUARES, action_noise=OFFSET)
        keys = jax.random.split(jax.random.key(0), EPISODES)
        actions = random_actions().astype(np.float64 if x64 else np.float32)
        params, played = jax.tree.map(np.asarray, (params, play(params, keys, actions)))
    start, first, _, moved = played
    assert moved.observation.dtype == moved.reward.dtype == (np.float64 if x64 else np.float32)

    observations, rewards = np.zeros_like(moved.observation), np.zeros_like(moved.reward)
    beyond = {-1.0: 0, 1.0: 0}
    for i in range(EPISODES):
        mujoco = MujocoReacher(row(params, i))
        np.testing.assert_allclose(first[i], mujoco.reset(row(start, i)), rtol=0, atol=tolerance)
        for t in range(WORLD.horizon):
            observations[i, t], rewards[i, t] = mujoco.step(actions[i, t])
            if abs(angle := mujoco.data.qpos[1]) > reacher.LIMIT:
                beyond[float(np.sign(angle))] += 1
    np.testing.assert_allclose(moved.observation, observations, rtol=0, atol=tolerance)
    np.testing.assert_allclose(moved.reward, rewards, rtol=0, atol=tolerance)
    assert min(beyond.values()) > 100  # steps on the limit, on either side


def test_constants_are_those_of_the_compiled_model():
    model = load_model()
    arm = [model.body(name) for name in ("body0", "body1", "fingertip")]
    close = dict(rtol=1e-12)
    np.testing.assert_allclose([b.mass[0] for b in arm[:2]], reacher.LINK_MASS, **close)
    np.testing.assert_allclose([b.inertia[0] for b in arm[:2]], reacher.LINK_INERTIA, **close)
    np.testing.assert_allclose([b.ipos[0] for b in arm[:2]], reacher.LINK_CENTRE, **close)
    np.testing.assert_allclose(arm[1].pos, [reacher.LINK_LENGTH, 0, 0])
    np.testing.assert_allclose(arm[2].pos, [reacher.TIP_REACH, 0, 0])
    np.testing.assert_allclose(arm[2].mass[0], reacher.TIP_MASS, **close)
    np.testing.assert_allclose(arm[2].inertia[0], reacher.TIP_INERTIA, **close)
    np.testing.assert_allclose(model.dof_armature[:2], reacher.ARMATURE)
    np.testing.assert_allclose(model.dof_damping[:2].ravel(), reacher.DAMPING)
    np.testing.assert_allclose(model.dof_invweight0[1], reacher.INVERSE_WEIGHT, **close)
    np.testing.assert_allclose(model.actuator_gear[:, 0], reacher.GEAR)
    np.testing.assert_allclose(model.actuator_ctrlrange, [[-1, 1], [-1, 1]])
    np.testing.assert_allclose(model.jnt_range[1], [-reacher.LIMIT, reacher.LIMIT])
    np.testing.assert_allclose(
        model.jnt_solimp[1], [reacher.IMP_MIN, reacher.IMP_MAX, reacher.IMP_WIDTH, 0.5, 2]
    )
    np.testing.assert_allclose(model.jnt_solref[1], [reacher.TIME_CONSTANT, 1])
    assert list(model.jnt_limited[:2]) == [False, True]
    assert not model.geom_contype.any()
    assert model.opt.timestep == reacher.TIMESTEP
    assert model.opt.integrator == 1  # RK4
    assert FRAME_SKIP == reacher.SUBSTEPS


def test_reward_is_of_the_state_before_and_of_the_action_as_given():
    stretched = ReacherState(jnp.zeros(2), jnp.zeros(2), jnp.asarray([0.06, 0.2]))
    params = row(clients(1))._replace(action_offset=jnp.asarray([0.5, -0.5]))
    key = jax.random.key(0)
    moved = WORLD.step(params, stretched, jnp.asarray([1.5, 0.0]), key)
    distance = np.hypot(0.21 - 0.06, 0.2)
    np.testing.assert_allclose(moved.reward, -distance - 2.0**2 - 0.5**2, rtol=1e-6)
    clamped = WORLD.step(params, stretched, jnp.asarray([0.5, 0.0]), key)
    np.testing.assert_array_equal(moved.observation, clamped.observation)
    assert not moved.terminated


def test_observation_reads_as_in_v2():
    state, observation = WORLD.reset(row(clients(1)), jax.random.key(3))
    q, tip = np.asarray(state.q), np.zeros(2)
    tip = 0.1 * np.array([np.cos(q[0]), np.sin(q[0])])
    tip += 0.11 * np.array([np.cos(q.sum()), np.sin(q.sum())])
    expected = [*np.cos(q), *np.sin(q), *state.target, *state.v, *(tip - state.target), 0.0]
    np.testing.assert_allclose(observation, expected, atol=1e-6)
    assert observation.shape == (WORLD.observation_size,)


coordinate = st.floats(-0.25, 0.25, width=32, allow_subnormal=False)


@settings(max_examples=200, deadline=None)
@given(st.tuples(coordinate, coordinate), st.tuples(coordinate, coordinate), st.integers(0, 2**31))
def test_targets_spawn_in_the_box_and_within_reach(a, b, seed):
    low, high = np.minimum(a, b), np.maximum(a, b)
    nearest = np.clip(0.0, low, high)
    params = row(clients(1))._replace(
        target_low=jnp.asarray(low, float), target_high=jnp.asarray(high, float)
    )
    # A sliver within reach may take for ever to hit; a box wholly out of reach must not.
    if 0.19 < np.linalg.norm(nearest) < 0.201:
        return
    state, _ = JITTED_RESET(params, jax.random.key(seed))
    target = np.asarray(state.target)
    assert (params.target_low <= target).all()
    assert (target <= params.target_high).all()
    if np.linalg.norm(nearest) <= 0.19:
        assert np.linalg.norm(target) < 0.2
    assert np.abs(state.q).max() <= 0.1
    assert np.abs(state.v).max() <= np.float32(0.005)


def test_targets_fill_the_disc_evenly():
    keys = jax.random.split(jax.random.key(0), 20_000)
    state, _ = jax.jit(jax.vmap(WORLD.reset, (None, 0)))(row(clients(1)), keys)
    radius = np.linalg.norm(state.target, axis=1)
    # Uniform in a disc: the squared radius is uniform.
    np.testing.assert_allclose(
        np.histogram(radius**2 / 0.04, 10, (0, 1))[0] / 20_000, 0.1, atol=0.01
    )
    np.testing.assert_allclose(np.mean(state.target, axis=0), 0, atol=0.003)
    np.testing.assert_allclose(np.std(state.q, axis=0), 0.2 / np.sqrt(12), rtol=0.02)
    np.testing.assert_allclose(np.std(state.v, axis=0), 0.01 / np.sqrt(12), rtol=0.02)


def efforts(params):
    """|a|^2 of each step of still episodes, read off the rewards."""
    still = np.zeros((EPISODES, WORLD.horizon, 2), np.float32)
    _, first, _, moved = play(params, jax.random.split(jax.random.key(5), EPISODES), still)
    before = np.concatenate([first[:, None], moved.observation[:, :-1]], axis=1)
    return -np.asarray(moved.reward) - np.linalg.norm(before[..., 8:10], axis=-1)


def test_offset_is_constant_and_per_step_noise_is_fresh():
    key = jax.random.key(2)
    offset = clients(EPISODES, key, action_noise=OFFSET)
    expected = np.sum(np.square(offset.action_offset), axis=1, keepdims=True)
    np.testing.assert_allclose(efforts(offset), expected.repeat(WORLD.horizon, 1), atol=1e-5)

    fresh = efforts(clients(EPISODES, key, action_noise=PER_STEP))
    assert len(np.unique(fresh)) > 0.99 * fresh.size
    np.testing.assert_allclose(fresh.mean(), 2 * 0.4**2, rtol=0.05)  # two entries' variances


def test_same_keys_same_episode_and_a_single_run_equals_the_vmapped():
    params = clients(3, initial_state=SQUARES, action_noise=PER_STEP)
    keys = jax.random.split(jax.random.key(7), 3)
    actions = jnp.asarray(random_actions()[-3:, :5], float)
    together = play(params, keys, actions)
    jax.tree.map(np.testing.assert_array_equal, together, play(params, keys, actions))

    i = 1
    reset_key, *step_keys = jax.random.split(keys[i], 6)
    state, _ = WORLD.reset(row(params, i), reset_key)
    for t, key in enumerate(step_keys):
        moved = WORLD.step(row(params, i), state, actions[i, t], key)
        state = moved.state
        jax.tree.map(
            lambda single, many, t=t: np.testing.assert_allclose(single, many[i, t], atol=1e-5),
            moved,
            together[3],
        )


def test_the_world_is_known_by_its_name():
    assert WORLDS["reacher"] is Reacher


def test_mujoco_draws_its_own_resets_and_noise():
    params = row(clients(1, initial_state=SQUARES, action_noise=PER_STEP))
    one, two, other = (MujocoReacher(params, seed) for seed in (1, 1, 2))
    first = one.reset()
    np.testing.assert_array_equal(first, two.reset())
    assert np.abs(first - other.reset()).max() > 0
    assert (params.target_low <= first[4:6]).all()
    assert (first[4:6] <= params.target_high).all()
    still = np.zeros(2)
    assert one.step(still)[1] == two.step(still)[1]
    assert one.step(still)[1] != other.step(still)[1]


@pytest.mark.parametrize("missing", ["mujoco", "gymnasium"])
def test_without_mujoco_the_error_names_the_extra(monkeypatch, missing):
    if missing == "mujoco":
        monkeypatch.setitem(sys.modules, "mujoco", None)
    else:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[mujoco\]'"):
        load_model()


ANYWHERE = Reacher(arm="anywhere", differences=Differences.from_table({"initial_state": SQUARES}))
ANGLE = st.floats(-2.875, 2.875, width=32, allow_subnormal=False)


@settings(max_examples=200, deadline=None)
@given(st.floats(-3, 3, width=32, allow_subnormal=False), ANGLE)
def test_inverse_kinematics_undo_the_forward_kinematics(q0, q1):
    x = 0.1 * np.cos(q0) + 0.11 * np.cos(q0 + q1)
    y = 0.1 * np.sin(q0) + 0.11 * np.sin(q0 + q1)
    found = np.asarray(reacher.angles_at(jnp.array(x), jnp.array(y), 1.0 if q1 >= 0 else -1.0))
    tip = 0.1 * np.exp(1j * found[0]) + 0.11 * np.exp(1j * found.sum())
    np.testing.assert_allclose([tip.real, tip.imag], [x, y], atol=2e-5)
    if abs(q1) > 0.1:  # near a stretched arm the angle is a square root of rounding errors
        np.testing.assert_allclose(found[1], q1, atol=2e-3)


def test_arms_that_start_anywhere_start_with_the_fingertip_in_the_clients_square():
    params = ANYWHERE.clients(60, jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), (60, 200))
    reset = jax.vmap(jax.vmap(ANYWHERE.reset, (None, 0)))
    state, observation = jax.jit(reset)(params, keys)
    q, target = np.asarray(state.q, float), np.asarray(state.target)
    tip = np.asarray(observation)[..., 8:10] + target
    assert (tip >= np.asarray(params.fingertip_low)[:, None] - 1e-5).all()
    assert (tip <= np.asarray(params.fingertip_high)[:, None] + 1e-5).all()
    assert np.linalg.norm(tip, axis=-1).max() < 0.2
    assert np.abs(q[..., 1]).max() < reacher.LIMIT
    np.testing.assert_allclose(np.mean(q[..., 1] > 0), 0.5, atol=0.02)
    # Targets spawn in the whole field, whoever's they are: in each client's episodes on all sides.
    assert (target.min(axis=1) < -0.1).all()
    assert (target.max(axis=1) > 0.1).all()


def test_arms_that_start_anywhere_draw_the_targets_and_velocities_of_stretched_ones():
    keys = jax.random.split(jax.random.key(1), 20)
    params = ANYWHERE.clients(20, jax.random.key(0))
    anywhere, _ = jax.vmap(ANYWHERE.reset)(params, keys)
    stretched, _ = jax.vmap(WORLD.reset)(clients(20), keys)
    np.testing.assert_array_equal(anywhere.target, stretched.target)
    np.testing.assert_array_equal(anywhere.v, stretched.v)


def test_a_fingertip_has_no_box_where_arms_start_stretched():
    assert clients(3).fingertip_low is None
    with pytest.raises(UserError, match=r"fingertip_low is not a parameter of reacher"):
        clients(3, fingertip_low=-0.1)


def test_a_box_that_no_fingertip_can_reach_is_refused():
    def made(low, high):
        table = Differences.from_table({"fingertip_low": [low], "fingertip_high": [high]})
        return Reacher(arm="anywhere", differences=table).clients(1, jax.random.key(0))

    with pytest.raises(UserError, match=r"client 0 would be in .* within the arm's reach of 0\.2"):
        made([0.16, 0.16], [0.2, 0.2])
    with pytest.raises(UserError, match=r"nearer to the hinge than it can come \(0\.02\)"):
        made([-0.01, -0.01], [0.01, 0.01])
