"""The links of the server in a config: what cannot work is refused, what can is kept."""

import tomllib

import pytest
import tomli_w

import fedkl
from fedkl.config import config

GROUPED = {"aggregation.reduce": "grouped"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"aggregation.reduce": "krum", "federation.clients_per_round": 4},
            "aggregation.reduce = krum with aggregation.byzantine = 1 needs "
            "federation.clients_per_round of at least 5, not 4",
        ),
        (
            {"aggregation.reduce": "multi-krum", "aggregation.byzantine": 0,
             "aggregation.chosen": 4},
            "aggregation.chosen must be at most 3",
        ),
        *(
            (
                {"federation.observation_statistics": "local"} | measures,
                "federation.observation_statistics must be federated or none where the level of "
                "heterogeneity is measured, not local",
            )
            for measures in (
                {"heterogeneity.every": 5},
                {"selection.name": "potential"},
                {"selection.name": "alignment"},
            )
        ),
        (
            {"aggregation.reduce": "trimmed-mean", "aggregation.trim": 0.5},
            "aggregation.trim must be at most 0.499, not 0.5",
        ),
        (
            {"aggregation.reduce": "trimmed-mean", "aggregation.trim": 0.1},
            "aggregation.trim must be 0, or at least 0.334, not 0.1",
        ),
        (
            GROUPED | {"aggregation.regions": 61},
            "aggregation.regions must be at most federation.clients (60), not 61",
        ),
        (
            GROUPED | {"aggregation.region_of": [0, 1, 0]},
            "aggregation.region_of must name a region for each of federation.clients (60), "
            "not for 3",
        ),
        (
            GROUPED | {"aggregation.region_of": [0, 2] * 30},
            "aggregation.region_of must name every region from 0 to the highest",
        ),
        (
            GROUPED | {"aggregation.region_of": [-1] * 60},
            "aggregation.region_of must be at least 0, not -1",
        ),
        (
            GROUPED | {"aggregation.region_rounds": 0},
            "aggregation.region_rounds must be at least 1, not 0",
        ),
        (
            GROUPED | {"aggregation.within": "grouped"},
            "aggregation.within must be a reducer of one level, not grouped",
        ),
        (
            GROUPED | {"aggregation.across": "grouped"},
            "aggregation.across must be a reducer of one level, not grouped",
        ),
        (
            GROUPED | {"aggregation.across": "krum"},
            "aggregation.reduce = krum with aggregation.byzantine = 1 needs",
        ),
        (GROUPED | {"aggregation.within": "nope"}, "aggregation.within: there is no reducer "),
        (
            {"federation.quorum": 4},
            "federation.quorum must be at most federation.clients_per_round (3), not 4",
        ),
        (
            {"evaluation.clients": 61},
            "evaluation.clients must be at most federation.clients (60), not 61",
        ),
        ({"federation.retries": 101}, "federation.retries must be at most 100, not 101"),
        ({"federation.max_empty_rounds": 0}, "federation.max_empty_rounds must be at least 1"),
        (
            {"aggregation.reduce": "nope"},
            "aggregation.reduce: there is no reducer 'nope'; available: geometric-median, grouped, "
            "krum, mean, median, multi-krum, trimmed-mean",
        ),
        (
            {"aggregation.each": ["nope"]},
            "aggregation.each: there is no transform 'nope'; available: clip",
        ),
        (
            {"aggregation.step": "nope"},
            "aggregation.step: there is no server step 'nope' (did you mean none?); available: "
            "adam, none, sgd, yogi",
        ),
        (
            {"selection.name": "nope"},
            "selection.name: there is no selector 'nope'; available: alignment, potential, "
            "round-robin, uniform, weighted",
        ),
        ({"selection.name": 3}, "selection.name must say which selection"),
        ({"selection": "uniform"}, "selection must be a table of settings, not 'uniform'"),
        ({"aggregation": "mean"}, "aggregation must be a table of settings, not 'mean'"),
        ({"aggregation.each": "clip"}, "aggregation.each must be a list, not 'clip'"),
        ({"aggregation.each": ["clip", "clip"]}, "aggregation.each must name a link only once"),
        (
            {"aggregation.nope": 1},
            "aggregation.nope is not a setting; with these links aggregation has: "
            "each, reduce, step",
        ),
        (
            {"aggregation.trim": 0.4},
            "aggregation.trim is not a setting; with these links aggregation has:",
        ),
        (
            {"aggregation.server_momentum": 0.9},
            "aggregation.server_momentum is not a setting; with these links aggregation has:",
        ),
        (
            {"aggregation.step": "sgd", "aggregation.b1": 0.9},
            "aggregation.b1 is not a setting; with these links aggregation has: each, reduce, "
            "step, server_learning_rate, server_momentum",
        ),
        ({"selection.weights": [1]}, "selection.weights is not a setting; the selection uniform"),
        (
            {"selection.name": "weighted"},
            "selection.weights must have 60 numbers, one for each client, not 0",
        ),
        (
            {"selection.name": "weighted", "selection.weights": [1.0] * 59},
            "selection.weights must have 60 numbers, one for each client, not 59",
        ),
        (
            {"selection.name": "weighted", "selection.weights": [0] * 58 + [1, 1]},
            "selection.weights must have at least 3 numbers above 0",
        ),
        (
            {"selection.name": "weighted", "selection.weights": [-1] * 60},
            "selection.weights must be at least 0, not -1",
        ),
    ],
)  # fmt: skip
def test_a_server_that_cannot_work_is_refused_with_the_setting_at_fault(settings, sentence):
    with pytest.raises(fedkl.UserError) as caught:
        fedkl.preset("reacher-iid", set=settings)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_regions_exchange_models_and_nothing_more():
    with pytest.raises(
        fedkl.UserError, match=r"aggregation\.reduce must not be grouped with scaffold"
    ):
        fedkl.preset("reacher-iid", "scaffold", set=GROUPED)


@pytest.mark.parametrize(
    "settings", [{"learner.optimiser": "adam"}, {"learner.max_gradient_norm": 1.0}]
)
def test_scaffold_refuses_a_learner_whose_gradient_it_cannot_read(settings):
    with pytest.raises(fedkl.UserError, match=r"learner\.optimiser must be sgd and learner\.max_g"):
        fedkl.preset("reacher-iid", "scaffold", set=settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"aggregation.each": ["clip"], "aggregation.max_norm": 2.0, "aggregation.reduce": "median"},
        {"aggregation.step": "adam", "aggregation.b1": 0.5},
        GROUPED | {"aggregation.within": "trimmed-mean", "aggregation.trim": 0.4,
                   "aggregation.region_of": [0, 1, 1] * 20, "aggregation.region_rounds": 3},
        {"selection.name": "weighted", "selection.weights": [1.0] * 60},
        {"selection.name": "round-robin"},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)  # fmt: skip
def test_every_link_of_the_server_survives_toml(settings):
    resolved = fedkl.preset("reacher-iid", set=settings)
    again = config.from_mapping(tomllib.loads(tomli_w.dumps(resolved.mapping())))
    assert again.mapping() == resolved.mapping()
    for key, value in settings.items():
        group, name = key.split(".")
        assert again.mapping()[group][name] == value


def test_a_config_from_before_there_were_links_means_the_papers_server():
    values = fedkl.preset("reacher-iid").mapping()
    del values["selection"], values["aggregation"]
    old = config.from_mapping(values)
    assert old.selection.name == "uniform"
    assert old.aggregation.mapping() == {"each": [], "reduce": "mean", "step": "none"}
