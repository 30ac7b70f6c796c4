"""Reacher-v2 in JAX: a two-link arm in the plane that reaches for a target.

It equals MuJoCo's reacher.xml: the same rigid-body dynamics, soft joint limit and RK4 integrator.
The tests step MuJoCo beside it. All arithmetic is on scalars, so that a vmapped step compiles to
a few fused loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from fedkl.core.settings import setting
from fedkl.worlds.base import Continuous, Renderer, Transition, World, register_world
from fedkl.worlds.parameters import Parameter
from fedkl.worlds.reacher_params import (
    FINGERTIP_PARAMETERS,
    NEAREST,
    PARAMETERS,
    REACH,
    ReacherParams,
    check_boxes,
    squares,
)

Scalar = Float[Array, ""]

# The compiled reacher.xml: a link is a capsule, the fingertip a sphere on the second link.
LINK_MASS = 0.03560471674068432
LINK_INERTIA = 3.9175660390264734e-05
LINK_LENGTH = 0.1
LINK_CENTRE = 0.05
TIP_MASS = 0.00418879020478639
TIP_INERTIA = 1.6755160819145565e-07
TIP_REACH = 0.11
ARMATURE = 1.0
DAMPING = 1.0
GEAR = 200.0
LIMIT = 3.0
TIMESTEP = 0.01
SUBSTEPS = 2
# The soft joint limit (solimp, solref): impedance grows from IMP_MIN to IMP_MAX within IMP_WIDTH.
IMP_MIN, IMP_MAX, IMP_WIDTH = 0.9, 0.95, 0.001
TIME_CONSTANT = 0.02
_FINGERTIP = 2**31
"""Targets are drawn with the number of a try folded into an episode's key, which this is not."""

# The mass matrix is [[M00 + 2 c COUPLING, M11 + c COUPLING], [same, M11 + ARMATURE]], c = cos(q1).
_M11 = LINK_INERTIA + LINK_MASS * LINK_CENTRE**2 + TIP_INERTIA + TIP_MASS * TIP_REACH**2
_COUPLING = LINK_LENGTH * (LINK_MASS * LINK_CENTRE + TIP_MASS * TIP_REACH)
_M00 = (
    _M11
    + LINK_INERTIA
    + LINK_MASS * LINK_CENTRE**2
    + (LINK_MASS + TIP_MASS) * LINK_LENGTH**2
    + ARMATURE
)
# MuJoCo softens the limit by the second joint's inverse inertia with the arm stretched (c = 1).
_STRETCHED = _M00 + 2 * _COUPLING
INVERSE_WEIGHT = _STRETCHED / (_STRETCHED * (_M11 + ARMATURE) - (_M11 + _COUPLING) ** 2)
_STIFFNESS = 1 / (IMP_MAX * TIME_CONSTANT) ** 2
_LIMIT_DAMPING = 2 / (IMP_MAX * TIME_CONSTANT)


class ReacherState(NamedTuple):
    """Joint angles and velocities, and where the target is."""

    q: Float[Array, " 2"]
    v: Float[Array, " 2"]
    target: Float[Array, " 2"]


@register_world
class Reacher(World):
    """The paper's Experiment 1. Observations and rewards are those of Gym's Reacher-v2.

    The observation is cos(q), sin(q), target, v, fingertip minus target (with a z of 0). The reward
    is `-|fingertip - target| - |a|^2` before the arm moves, where a is the distorted action, not
    clamped to what the motors can do. Numbers have the dtype of the params.
    """

    name: ClassVar[str] = "reacher"
    summary: ClassVar[str] = "a two-link arm reaches for a target (MuJoCo's Reacher-v2, in JAX)"
    observation_size: ClassVar[int] = 11
    actions: ClassVar[Continuous] = Continuous(2)
    horizon: ClassVar[int] = 50
    terminates: ClassVar[bool] = False
    # Five times as slow as it happens: an episode is one second long.
    frames_per_second: ClassVar[float] = 10.0
    playback: ClassVar[float] = 0.2

    params: ClassVar[type] = ReacherParams

    arm: str = setting(
        "stretched",
        "how the arm starts: stretched (as in Gym), or with its fingertip anywhere in the field; "
        "then `initial_state` cuts up where the fingertip starts, and not where targets spawn",
        choices=("stretched", "anywhere"),
        static=True,
    )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters; where fingertips start is one only if arms start anywhere."""
        return PARAMETERS if self.arm == "stretched" else (*PARAMETERS, *FINGERTIP_PARAMETERS)

    def boxes(self, number: int) -> dict[str, Float[np.ndarray, "b 2"]]:
        """Return squares of the field in which targets spawn, or the fingertip starts."""
        return dict(zip(self.box_ends, squares(number), strict=True))

    @property
    def box_ends(self) -> tuple[str, str]:
        """The parameters that `initial_state` stands for: lower and upper corners of boxes."""
        what = "target" if self.arm == "stretched" else "fingertip"
        return f"{what}_low", f"{what}_high"

    def clients(self, n: int, key: PRNGKeyArray) -> ReacherParams:
        """Return the params of n clients.

        Raises:
            UserError: a client's targets would all be out of reach, or its fingertip.
        """
        params: ReacherParams = super().clients(n, key)
        check_boxes(params)
        return params

    def reset(
        self, params: ReacherParams, key: PRNGKeyArray
    ) -> tuple[ReacherState, Float[Array, " 11"]]:
        """Start an arm almost at rest, almost stretched or with its fingertip in the client's box,
        and a target in the client's box.

        A target out of reach is redrawn, and q and v with it, which are independent of it. In a
        box that lies wholly out of reach redrawing would never end; there the first draw stays.
        """
        dtype = params.target_low.dtype
        spread = jnp.asarray([0.1, 0.1, 0.005, 0.005], dtype)
        low = jnp.concatenate([-spread, params.target_low])
        high = jnp.concatenate([spread, params.target_high])
        nearest = jnp.clip(jnp.zeros(2, dtype), params.target_low, params.target_high)
        reachable = _within_reach(nearest)

        def missed(carry: tuple[Int[Array, ""], Float[Array, " 6"]]) -> Bool[Array, ""]:
            tries, x = carry
            return (tries == 0) | (reachable & ~_within_reach(x[4:]))

        def draw(
            carry: tuple[Int[Array, ""], Float[Array, " 6"]],
        ) -> tuple[Int[Array, ""], Float[Array, " 6"]]:
            tries, _ = carry
            # Of 8 numbers 6 are used: XLA takes three times as long to compile a draw of 6.
            u = jax.random.uniform(jax.random.fold_in(key, tries), (8,), dtype)[:6]
            return tries + 1, jnp.minimum(low + (high - low) * u, high)

        _, x = jax.lax.while_loop(missed, draw, (jnp.zeros((), int), low))
        state = ReacherState(q=x[:2], v=x[2:4], target=x[4:])
        if self.arm == "anywhere":
            assert params.fingertip_low is not None
            assert params.fingertip_high is not None
            key = jax.random.fold_in(key, _FINGERTIP)
            state = state._replace(q=_angles_in(params.fingertip_low, params.fingertip_high, key))
        return state, _observe(state)

    def step(
        self,
        params: ReacherParams,
        state: ReacherState,
        action: Float[Array, " 2"],
        key: PRNGKeyArray,
    ) -> Transition:
        """Add the client's noise to the action, and move the arm for 0.02 s."""
        noise = jax.random.normal(key, (2,), params.action_noise.dtype)
        action = action + params.action_offset + params.action_noise * noise
        gap_x, gap_y = _gap(state)
        effort = action[0] * action[0] + action[1] * action[1]
        reward = -jnp.sqrt(gap_x * gap_x + gap_y * gap_y) - effort

        torque = GEAR * jnp.clip(action, -1.0, 1.0)
        joints = (state.q[0], state.q[1], state.v[0], state.v[1])
        # A loop, though short: unrolled, XLA would fuse the substeps with the noise and the
        # observation, and compute each of them many times over.
        q0, q1, v0, v1 = jax.lax.fori_loop(
            0, SUBSTEPS, lambda _, joints: _rk4(joints, torque[0], torque[1]), joints
        )
        state = ReacherState(jnp.stack([q0, q1]), jnp.stack([v0, v1]), state.target)
        return Transition(state, _observe(state), reward, jnp.asarray(False))

    @property
    def legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
        """Fingertip, target, and where this client's targets are, or its fingertip starts."""
        from fedkl.worlds.reacher_renderer import legend

        return legend("where its targets are" if self.arm == "stretched" else "where it starts")

    def renderer(self, params: ReacherParams) -> Renderer:
        """Return a function that draws the arm, the target, and the box in which this client's
        targets spawn, or its fingertip starts."""
        from fedkl.worlds import reacher_renderer

        box = (params.target_low, params.target_high)
        if params.fingertip_low is not None and params.fingertip_high is not None:
            box = (params.fingertip_low, params.fingertip_high)

        def draw(moment: ReacherState, step: int, total: float) -> UInt8[np.ndarray, "h w 3"]:
            return reacher_renderer.draw(moment.q, moment.target, box)

        return draw


def _within_reach(x: Float[Array, " 2"]) -> Bool[Array, ""]:
    return x[0] * x[0] + x[1] * x[1] < REACH**2


def _angles_in(
    low: Float[Array, " 2"], high: Float[Array, " 2"], key: PRNGKeyArray
) -> Float[Array, " 2"]:
    """Joint angles that put the fingertip somewhere in a box, evenly, the elbow on either side.

    A point that the fingertip cannot reach is drawn again.
    """

    def missed(carry: tuple[Int[Array, ""], Float[Array, " 3"]]) -> Bool[Array, ""]:
        tries, x = carry
        near = x[0] * x[0] + x[1] * x[1] < NEAREST**2
        return (tries == 0) | near | ~_within_reach(x[:2])

    def draw(
        carry: tuple[Int[Array, ""], Float[Array, " 3"]],
    ) -> tuple[Int[Array, ""], Float[Array, " 3"]]:
        tries, _ = carry
        u = jax.random.uniform(jax.random.fold_in(key, tries), (4,), low.dtype)
        return tries + 1, jnp.concatenate([low + (high - low) * u[:2], u[2:3]])

    start = jnp.concatenate([low, jnp.zeros_like(low[:1])])
    _, x = jax.lax.while_loop(missed, draw, (jnp.zeros((), int), start))
    return angles_at(x[0], x[1], jnp.where(x[2] < 0.5, -1.0, 1.0))


def angles_at(x: Scalar, y: Scalar, elbow: Scalar | float) -> Float[Array, " 2"]:
    """Return the joint angles that put the fingertip to (x, y): the planar arm's inverse
    kinematics.

    Args:
        x, y: a point from `NEAREST` to `LINK_LENGTH + TIP_REACH` away from the first hinge.
        elbow: 1 or -1, the sign of the second angle.

    Example:
        The first link along the first axis, the second at a right angle to it.

        >>> np.degrees(angles_at(jnp.array(0.1), jnp.array(0.11), 1.0)).round(1).tolist()
        [0.0, 90.0]
    """
    bend = (x * x + y * y - LINK_LENGTH**2 - TIP_REACH**2) / (2 * LINK_LENGTH * TIP_REACH)
    q1 = elbow * jnp.arccos(jnp.clip(bend, -1.0, 1.0))
    along, across = LINK_LENGTH + TIP_REACH * jnp.cos(q1), TIP_REACH * jnp.sin(q1)
    q0 = jnp.arctan2(y * along - x * across, x * along + y * across)
    return jnp.stack([q0, q1])


def _gap(state: ReacherState) -> tuple[Scalar, Scalar]:
    """Fingertip minus target."""
    c0, c1 = jnp.cos(state.q[0]), jnp.cos(state.q[1])
    s0, s1 = jnp.sin(state.q[0]), jnp.sin(state.q[1])
    x = LINK_LENGTH * c0 + TIP_REACH * (c0 * c1 - s0 * s1)
    y = LINK_LENGTH * s0 + TIP_REACH * (s0 * c1 + c0 * s1)
    return x - state.target[0], y - state.target[1]


def _observe(state: ReacherState) -> Float[Array, " 11"]:
    gap_x, gap_y = _gap(state)
    gap = jnp.stack([gap_x, gap_y, jnp.zeros_like(gap_x)])
    return jnp.concatenate([jnp.cos(state.q), jnp.sin(state.q), state.target, state.v, gap])


def _acceleration(
    q1: Scalar, v0: Scalar, v1: Scalar, torque0: Scalar, torque1: Scalar
) -> tuple[Scalar, Scalar]:
    """Return the joints' accelerations; they do not depend on q0, as nothing pulls in the plane.

    The divisions come last on purpose: XLA keeps the result of a division that is used more than
    once, and recomputes anything cheaper, which over four stages would multiply the work.
    """
    bend, twist = _COUPLING * jnp.cos(q1), _COUPLING * jnp.sin(q1)
    m00, m01, m11 = _M00 + 2 * bend, _M11 + bend, _M11 + ARMATURE
    determinant = m00 * m11 - m01 * m01
    force0 = torque0 - DAMPING * v0 + twist * (2 * v0 * v1 + v1 * v1)
    force1 = torque1 - DAMPING * v1 - twist * v0 * v0
    push = _limit_force(q1, v1, m00 * force1 - m01 * force0, m00, determinant)
    force1 = force1 + push
    return (m11 * force0 - m01 * force1) / determinant, (m00 * force1 - m01 * force0) / determinant


def _limit_force(q1: Scalar, v1: Scalar, free: Scalar, m00: Scalar, determinant: Scalar) -> Scalar:
    """Return the torque by which MuJoCo's soft constraint keeps the second joint within its limit.

    It is what brings the joint's acceleration towards that of a critically damped spring, as far
    as the constraint's impedance allows, and it only ever pushes back.

    Args:
        q1, v1: the second joint.
        free: its acceleration without the limit, times the determinant.
        m00, determinant: of the mass matrix; their quotient is the joint's inverse inertia.
    """
    back = -jnp.sign(q1)
    distance = LIMIT - jnp.abs(q1)
    x = jnp.minimum(jnp.abs(distance) / IMP_WIDTH, 1.0)
    ramp = jnp.where(x <= 0.5, 2 * x * x, 1 - 2 * (1 - x) * (1 - x))
    impedance = IMP_MIN + (IMP_MAX - IMP_MIN) * ramp
    wanted = -_LIMIT_DAMPING * back * v1 - _STIFFNESS * impedance * distance
    push = jnp.maximum(impedance * (wanted * determinant - back * free), 0.0) / (
        impedance * m00 + (1 - impedance) * INVERSE_WEIGHT * determinant
    )
    return jnp.where(distance < 0, back * push, 0.0)


def _rk4(
    joints: tuple[Scalar, Scalar, Scalar, Scalar], torque0: Scalar, torque1: Scalar
) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Take one time step of the classical Runge-Kutta method, the limit active at each stage."""
    q0, q1, v0, v1 = joints
    h = TIMESTEP
    a0, a1 = _acceleration(q1, v0, v1, torque0, torque1)
    v0b, v1b = v0 + h / 2 * a0, v1 + h / 2 * a1
    a0b, a1b = _acceleration(q1 + h / 2 * v1, v0b, v1b, torque0, torque1)
    v0c, v1c = v0 + h / 2 * a0b, v1 + h / 2 * a1b
    a0c, a1c = _acceleration(q1 + h / 2 * v1b, v0c, v1c, torque0, torque1)
    v0d, v1d = v0 + h * a0c, v1 + h * a1c
    a0d, a1d = _acceleration(q1 + h * v1c, v0d, v1d, torque0, torque1)
    return (
        q0 + h / 6 * (v0 + 2 * (v0b + v0c) + v0d),
        q1 + h / 6 * (v1 + 2 * (v1b + v1c) + v1d),
        v0 + h / 6 * (a0 + 2 * (a0b + a0c) + a0d),
        v1 + h / 6 * (a1 + 2 * (a1b + a1c) + a1d),
    )
