import pytest

from fedkl.core.errors import UserError
from fedkl.core.settings import build
from fedkl.heterogeneity import HeterogeneitySettings, Measure


def test_nothing_is_measured_unless_it_is_asked_for():
    assert HeterogeneitySettings().every == 0


def test_the_settings_make_the_work():
    values = {"trajectories": 6, "basis": "buckets", "features": 9, "length_scale": 0.5}
    settings = build(HeterogeneitySettings, values | {"ridge": 0.75}, "heterogeneity")
    assert settings.work() == Measure(6, "buckets", 9, 0.5, 0.125)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"trajectories": 7}, "heterogeneity.trajectories must be even, not 7"),
        ({"trajectories": 2}, "heterogeneity.trajectories must be at least 4"),
        ({"basis": "wavelets"}, "heterogeneity.basis must be one of fourier, buckets"),
        ({"length_scale": 0.0}, "heterogeneity.length_scale must be above 0"),
        ({"ridge": 0.0}, "heterogeneity.ridge must be above 0"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(values, said):
    with pytest.raises(UserError, match=said):
        build(HeterogeneitySettings, values, "heterogeneity")
