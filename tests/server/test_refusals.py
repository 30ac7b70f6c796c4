"""Who was refused again and again is not asked for a while, and counts survive a save."""

import pytest

from fedkl.server.refusals import (
    Refusals,
    after_round,
    decode,
    encode,
    not_asked,
)
from fedkl.server.settings import FederationSettings

SETTINGS = FederationSettings(suspend_after=2, suspend_rounds=10)


def test_a_client_is_suspended_after_so_many_refusals_in_a_row():
    once = after_round({}, SETTINGS, 4, [1], frozenset({3}))
    assert once == {3: Refusals(1, 0)}
    twice = after_round(once, SETTINGS, 5, [1], frozenset({3}))
    assert twice == {3: Refusals(2, 16)}
    assert not_asked(twice, 15, [1, 3], quorum=1).keys() == {3}
    assert "2 rounds in a row" in not_asked(twice, 15, [1, 3], quorum=1)[3]
    assert not_asked(twice, 16, [1, 3], quorum=1) == {}


def test_who_is_believed_again_has_a_clean_record():
    assert after_round({3: Refusals(1, 0)}, SETTINGS, 4, [3], frozenset()) == {}


def test_a_round_without_any_update_blames_nobody():
    before = {3: Refusals(1, 0)}
    assert after_round(before, SETTINGS, 4, [], frozenset({3, 5})) == before


def test_everybody_is_asked_where_too_few_would_be_left():
    assert not_asked({3: Refusals(2, 16)}, 5, [1, 3], quorum=2) == {}


def test_how_often_a_client_was_refused_is_read_again():
    refusals = {5: Refusals(4, 19), 3: Refusals(2, 0)}
    array = encode(refusals)
    assert array.tolist() == [[3, 2, 0], [5, 4, 19]]
    assert decode(array) == refusals
    assert decode(encode({})) == {}
    for wrong in (array[:, :2], array.astype(float), array[0]):
        with pytest.raises(ValueError, match="not rows of three"):
            decode(wrong)
