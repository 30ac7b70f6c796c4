"""The table `[aggregation]`: names of links, and beside them their settings."""

from typing import ClassVar

import pytest

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.server.aggregation import (
    REDUCERS,
    AggregationChain,
    Clip,
    Krum,
    Reducer,
    Regions,
    TrimmedMean,
    build_aggregation,
)


def test_nothing_said_is_the_papers_mean():
    made = build_aggregation({})
    assert made.mapping() == {"each": [], "reduce": "mean", "step": "none"}
    assert isinstance(made.aggregation(3), AggregationChain)


def test_the_settings_of_links_stand_beside_their_names():
    table = {"each": ["clip"], "max_norm": 3, "reduce": "trimmed-mean", "trim": 0.3, "step": "sgd"}
    made = build_aggregation(table)
    assert made.each == (Clip(3.0),)
    assert made.reduce == TrimmedMean(0.3)
    assert made.mapping()["server_momentum"] == 0.0


def test_a_table_is_read_back_as_it_was_made():
    table = {"reduce": "grouped", "within": "krum", "across": "median", "byzantine": 2}
    made = build_aggregation(table)
    assert made.levels[0] == Krum(2)
    assert isinstance(made.aggregation(10), Regions)
    assert build_aggregation(made.mapping()).mapping() == made.mapping()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            {"reduce": "best"},
            "aggregation.reduce: there is no reducer 'best'; available: geometric-median, grouped",
        ),
        ({"each": ["melt"]}, "aggregation.each: there is no transform 'melt'; available: clip"),
        (
            {"step": "leap"},
            "aggregation.step: there is no server step 'leap'; available: adam, none, sgd, yogi",
        ),
        ({"each": ["clip", "clip"]}, "aggregation.each must name a link only once"),
        ({"trim": 0.2}, "aggregation.trim is not a setting; with these links aggregation has:"),
        ({"reduce": "trimmed-mean", "trim": 0.5}, "aggregation.trim must be at most 0.499"),
        ({"reduce": 3}, "aggregation.reduce must be a string, not 3"),
        ({"each": "clip"}, "aggregation.each must be a list, not 'clip'"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_field(table, sentence):
    with pytest.raises(UserError) as error:
        build_aggregation(table)
    assert str(error.value).startswith(sentence)


def test_links_that_share_a_setting_have_the_same_value_and_keep_it_when_read_back(monkeypatch):
    """Two links of a plugin may have settings of the same name with different defaults."""

    class Rare(Reducer):
        name: ClassVar[str] = "rare"
        summary: ClassVar[str] = "for this test"
        trim: float = setting(0.4, "of another default")

        def __call__(self, points, weights):
            return points[0]

    monkeypatch.setitem(REDUCERS._classes, "rare", (Rare, None))
    made = build_aggregation({"reduce": "grouped", "within": "trimmed-mean", "across": "rare"})
    assert [level.trim for level in made.levels] == [0.2, 0.2]
    again = build_aggregation(made.mapping())
    assert [level.trim for level in again.levels] == [0.2, 0.2]


def test_reducers_are_told_how_many_clients_and_regions_there_are():
    with pytest.raises(UserError, match="clients_per_round of at least 5, not 3"):
        build_aggregation({"reduce": "krum"}).check(60, 3)
    grouped = build_aggregation({"reduce": "grouped", "across": "krum", "regions": 4})
    with pytest.raises(UserError, match="at least 5, not 4"):
        grouped.check(60, 10)
