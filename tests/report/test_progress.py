"""What a person reads of a round."""

from typing import Any

import pytest

from fedkl.progress import describe

RECORD: dict[str, Any] = {
    "return_mean": -8.126,
    "kl_local": 0.01,
    "distance_global": 0.1234,
    "guarded": 0,
    "rejected": [],
    "note": None,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "return -8.13  kl 0.0100  distance 0.123"),
        ({"return_mean": None, "guarded": 2}, "kl 0.0100  distance 0.123  guarded 2"),
        (
            {
                "kl_local": None,
                "distance_global": None,
                "rejected": [{"client": 4, "reason": "not finite"}],
                "note": "no update was accepted",
            },
            "return -8.13  client 4 left out (not finite)  no update was accepted",
        ),
    ],
)
def test_a_round_in_a_few_words(change: dict[str, Any], words: str) -> None:
    assert describe(RECORD | change) == words
