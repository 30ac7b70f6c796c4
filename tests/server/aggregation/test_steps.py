"""The server's optimisers against numbers computed by hand."""

import numpy as np
import optax
import pytest

from fedkl.core.errors import UserError
from fedkl.core.settings import build
from fedkl.server.aggregation import SGD, STEPS, Adam, NoStep, Yogi


def follow(step, gradients):
    """How far each pseudo-gradient moves the model."""
    optimiser, moved = step.optimiser(), []
    state = optimiser.init(np.zeros(np.shape(gradients[0])))
    for gradient in gradients:
        update, state = optimiser.update(np.asarray(gradient), state)
        moved.append(np.asarray(update).tolist())
    return moved


def test_ours_are_registered_under_their_names():
    assert all(STEPS[cls.name] is cls for cls in (NoStep, SGD, Adam, Yogi))


def test_none_has_no_optimiser():
    assert NoStep().optimiser() is None


def test_sgd_by_default_goes_to_the_reduced_model():
    old, reduced = np.array([1.0, -2.0]), np.array([0.5, 4.0])
    (update,) = follow(SGD(), [old - reduced])
    assert optax.apply_updates(old, np.asarray(update)).tolist() == reduced.tolist()


def test_momentum_by_hand():
    """v = 1, then 0.9 * 1 + 0.2 = 1.1, then 0.9 * 1.1 + 0 = 0.99; half of each is taken."""
    step = SGD(server_learning_rate=0.5, server_momentum=0.9)
    assert follow(step, [1.0, 0.2, 0.0]) == pytest.approx([-0.5, -0.55, -0.495])


def test_adam_by_hand():
    """m = 0.2, 0.28 over 0.1, 0.19; v = 0.04, 0.0496 over 0.01, 0.0199."""
    expected = [
        -0.01 * 2 / (2 + 1e-3),
        -0.01 * (0.28 / 0.19) / ((0.0496 / 0.0199) ** 0.5 + 1e-3),
    ]
    assert follow(Adam(), [2.0, 1.0]) == pytest.approx(expected, rel=1e-5)


def test_yogi_by_hand():
    """m = 0.2, 0.28, 0.262 over 0.1, 0.19, 0.271; v = 0.04, then 0.04 + 0.01 * 1 because 1 is
    above it, then 0.05 - 0.01 * 0.01 because 0.01 is below it, over 0.01, 0.0199, 0.029701."""
    expected = [
        -0.01 * 2 / (2 + 1e-3),
        -0.01 * (0.28 / 0.19) / ((0.05 / 0.0199) ** 0.5 + 1e-3),
        -0.01 * (0.262 / 0.271) / ((0.0499 / 0.029701) ** 0.5 + 1e-3),
    ]
    assert follow(Yogi(), [2.0, 1.0, 0.1]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("step", [SGD(server_momentum=0.5), Adam(), Yogi()])
def test_what_no_client_moved_stays_where_it_is(step):
    assert [moved[1] for moved in follow(step, [[1.0, 0.0], [-3.0, 0.0]])] == [0.0, 0.0]


@pytest.mark.parametrize("cls", [Adam, Yogi])
def test_a_large_tau_adapts_nothing(cls):
    """rate / tau = 1 and b1 = 0: each step is the gradient itself."""
    step = cls(server_learning_rate=1e6, b1=0.0, tau=1e6)
    assert follow(step, [3.0, -0.2]) == pytest.approx([-3.0, 0.2], rel=1e-4)


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [(SGD, "server_momentum", 1.0), (Adam, "b1", 1.0), (Yogi, "b2", 1.0), (Adam, "tau", 0.0)],
)
def test_limits_are_named(cls, name, value):
    with pytest.raises(UserError, match=rf"^aggregation\.{name} must be "):
        build(cls, {name: value}, "aggregation")
