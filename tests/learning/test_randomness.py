"""All randomness is folded from the seed, a purpose and numbers."""

import jax
import numpy as np

from fedkl.learning.randomness import Purpose, key_data_for, key_data_of, key_for


def test_a_key_is_folded_from_seed_purpose_and_numbers():
    by_hand = jax.random.fold_in(jax.random.fold_in(jax.random.key(7), 3), 5)
    assert np.array_equal(key_data_of(key_for(7, Purpose.TRAINING, 5)), key_data_of(by_hand))


def test_the_numbers_of_purposes_are_those_of_every_saved_run():
    assert {purpose.name: int(purpose) for purpose in Purpose} == {
        "WORLDS": 0,
        "MODEL": 1,
        "SELECTION": 2,
        "TRAINING": 3,
        "EVALUATION": 4,
        "SHARED_WORLD": 5,
        "RECORDING": 6,
        "AGGREGATION": 7,
        "EVALUATED": 8,
        "HETEROGENEITY": 9,
    }


def test_the_keys_of_many_are_those_of_each():
    numbers = np.array([[round, client, 0] for round in (0, 9) for client in (0, 1, 99_999)])
    together = key_data_for(3, Purpose.TRAINING, numbers)
    for words, row in zip(together, numbers.tolist(), strict=True):
        assert np.array_equal(words, key_data_of(key_for(3, Purpose.TRAINING, *row)))
    assert together.dtype == np.uint32


def test_no_two_purposes_seeds_or_numbers_have_the_same_key():
    words = {
        tuple(key_data_of(key_for(seed, purpose, *numbers)).tolist())
        for seed in (0, 1)
        for purpose in Purpose
        for numbers in ((), (0,), (1,), (0, 1), (1, 0))
    }
    assert len(words) == 2 * len(Purpose) * 5


def test_words_are_a_key_again():
    key = key_for(0, Purpose.MODEL)
    again = jax.random.wrap_key_data(key_data_of(key))
    assert jax.random.normal(again) == jax.random.normal(key)
