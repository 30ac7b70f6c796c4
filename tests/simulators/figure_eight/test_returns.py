"""Returns of fixed controllers over 1500 steps, as a prototype on SUMO 1.28 measured them."""

import numpy as np
import pytest

from fedkl.simulators.base import Recipe, Seed
from fedkl.simulators.episodes import EpisodeJob
from fedkl.simulators.figure_eight.placement import ALTERNATING, MIXED
from fedkl.simulators.pool import Workers

CONSTANT = [0.0] * 6
# Full throttle or full brake towards a speed: a = (target - v) / 0.1, of which SUMO takes [-3, 3].
TRACK = [0.0, 0.0, -300.0, 0.0, 0.0, 0.0]


@pytest.fixture(scope="module", params=[ALTERNATING, MIXED])
def returns(request, linear):
    """The returns of some episodes in which every agent is the same controller."""
    workers = Workers(
        Recipe("fedkl.simulators.figure_eight.simulation:Simulation", {"placement": request.param}),
        timeout=60.0,
    )

    def measure(bias, weights, deviation=0.0, episodes=1):
        jobs = [
            EpisodeJob(
                (Seed((e,)),),
                [linear(bias, weights, deviation, Seed((e,), (1 + n,))) for n in range(7)],
                (1500,),
            )
            for e in range(episodes)
        ]
        ran = workers.run(jobs)
        assert all(e.mask.all() and not e.terminated.any() for e in ran)
        # All agents share the reward.
        assert all((e.reward == e.reward[:, :1]).all() for e in ran)
        return request.param, np.array([e.returns()[0, 0] for e in ran])

    yield measure
    workers.close()


@pytest.mark.parametrize(
    ("bias", "weights", "expected"),
    [
        pytest.param(0.0, CONSTANT, (4.6, 6.0), id="stand"),
        pytest.param(3.0, CONSTANT, (385, 372), id="full throttle"),
        pytest.param(50.0, TRACK, (375, 370), id="track 5 m/s"),
        pytest.param(60.0, TRACK, (408, 406), id="track 6 m/s"),
        pytest.param(80.0, TRACK, (404, 396), id="track 8 m/s"),
    ],
)
def test_a_deterministic_controller_returns_what_is_known(returns, bias, weights, expected):
    placement, found = returns(bias, weights)
    assert found == pytest.approx(expected[placement == MIXED], rel=0.03)


@pytest.mark.parametrize(
    ("mean", "expected", "deviation"),
    # A mean over episodes varies less than one episode does: ours are 6 to 7 apart at mean 1.
    [(0.0, (84, 81), 11), (1.0, (291, 284), 6)],
)
def test_random_accelerations_return_what_is_known(returns, mean, expected, deviation):
    placement, found = returns(mean, CONSTANT, 1.0, episodes=6)
    assert found.mean() == pytest.approx(expected[placement == MIXED], abs=2 * deviation)
    assert 0 < found.std() < 2.5 * deviation
