"""The random cases are what the claims need them to be."""

import numpy as np

from fedkl.tabular.sampling import samples


def test_a_seed_determines_its_case_whatever_comes_with_it():
    (alone,) = samples([11])
    for sample in samples(range(30)):
        if 11 in sample.seeds:
            index = list(sample.seeds).index(11)
            np.testing.assert_array_equal(sample.at.policy[index], alone.at.policy[0])
            np.testing.assert_array_equal(sample.weights[index], alone.weights[0])
            np.testing.assert_allclose(sample.step.local[index], alone.step.local[0], atol=1e-15)


def test_every_seed_is_used_once():
    assert sorted(s for sample in samples(range(50)) for s in sample.seeds) == list(range(50))


def test_cases_are_varied():
    seen = list(samples(range(200)))
    gammas = np.concatenate([s.at.family.gamma.ravel() for s in seen])
    assert (gammas < 0.2679).any()
    assert (gammas > 0.98).any()
    assert any((s.at.policy == 0).any() for s in seen)
    assert any((s.at.policy == 1).any() for s in seen)
    assert any((s.weights == 0).any() for s in seen)
    assert any((s.at.family.rewards == s.at.family.rewards.round()).all((-1, -2, -3)).any()
               for s in seen)  # fmt: skip
    steps = np.concatenate([s.step.tv_max.ravel() for s in seen])
    assert steps.max() > 0.9
    assert np.quantile(steps[steps > 0], 0.1) < 0.02
    # A step in one state alone, which the objective with KL gets wrong.
    assert any(((s.step.tv > 0).sum(axis=-1) == 1).any() for s in seen if s.at.family.states > 1)


def test_server_weights_are_convex():
    for sample in samples(range(20)):
        assert (sample.weights >= 0).all()
        np.testing.assert_allclose(sample.weights.sum(axis=-1), 1)
