"""The linear programme by hand, and its limits. See test_best_response.py for the rest."""

from dataclasses import replace

import numpy as np
import pytest

from fedkl.tabular import linear_programme
from fedkl.tabular.objectives import Objective

H = Objective(
    policy=np.array([[0.2, 0.5, 0.3]]),
    gain=np.array([[1.0, 4.0, 2.0]]),
    price=np.array([1.0]),
    linear=np.array(1.5),
    quadratic=np.array(0.0),
)


def test_three_actions_by_hand():
    """The worst action is worth 3 - 1 to move, the next 2 - 1, of which 3/2 are to pay."""
    np.testing.assert_allclose(linear_programme.best_response(H), [[0, 0.7, 0.3]], atol=1e-12)


def test_it_stays_where_nothing_is_gained():
    dear = replace(H, linear=np.array(5.0))
    np.testing.assert_allclose(linear_programme.best_response(dear), H.policy, atol=1e-12)


@pytest.mark.parametrize(
    "objective",
    [
        replace(H, quadratic=np.array(1.0)),
        Objective(*(np.stack([x, x]) for x in (H.policy, H.gain, H.price, H.linear, H.quadratic))),
    ],
)
def test_it_refuses_a_quadratic_term_and_a_batch(objective):
    with pytest.raises(ValueError, match="solves one objective, without a quadratic term"):
        linear_programme.best_response(objective)
