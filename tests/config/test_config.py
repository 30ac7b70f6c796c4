"""Presets, files, overrides; every mistake ends in one sentence that names the field."""

import dataclasses
import os
import tomllib

import numpy as np
import pytest
import tomli_w

import fedkl
from fedkl.algorithms import ALGORITHMS
from fedkl.clients.upload import UPLOADS
from fedkl.config import config, presets
from fedkl.learning.distributions import DISTANCES
from fedkl.server.aggregation import REDUCERS, STEPS, TRANSFORMS
from fedkl.server.selection import SELECTORS


@pytest.mark.parametrize("name", presets.summaries())
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_preset_works_with_every_algorithm_and_survives_toml(name, algorithm):
    if algorithm == "fedkl-anchored" and name.endswith("-authors"):
        with pytest.raises(
            fedkl.UserError, match=r"^federation\.observation_statistics must be fed"
        ):
            fedkl.preset(name, algorithm)
        return
    resolved = fedkl.preset(name, algorithm)
    text = tomli_w.dumps(resolved.mapping())
    again = config.from_mapping(tomllib.loads(text))
    assert again.mapping() == resolved.mapping()
    assert again.algorithm.name == algorithm


def test_the_paper_preset_has_the_papers_numbers():
    c = fedkl.preset("reacher-init-state-paper")
    assert (c.federation.clients, c.federation.clients_per_round, c.federation.rounds) == (
        60,
        3,
        200,
    )
    assert (c.learner.iterations, c.learner.steps, c.learner.epochs) == (20, 2048, 10)
    assert (c.learner.minibatch, c.learner.learning_rate, c.learner.d_local) == (64, 0.001, 0.01)
    assert (c.learner.discount, c.learner.gae_lambda) == (0.99, 0.95)
    assert (c.algorithm.d_global, c.algorithm.c1) == (0.6, 0.001)
    assert (c.algorithm.c1_adapted, c.learner.optimiser) == ("iteration", "sgd")
    assert not c.critic.sees_time
    assert c.federation.personal == "none"
    assert fedkl.preset("reacher-init-state-paper", "fedprox").algorithm.mu == 0.02
    assert fedkl.preset("reacher-init-state-paper", "fmarl").algorithm.decay == 0.9999


@pytest.mark.parametrize("algorithm", ["fedkl", "fedavg", "fedprox", "fmarl"])
@pytest.mark.parametrize("name", [n for n in presets.summaries() if n.endswith("-paper")])
def test_what_follows_the_paper_has_no_guard_and_coefficients_that_move_freely(name, algorithm):
    c = fedkl.preset(name, algorithm)
    assert not c.learner.guard
    assert c.learner.c2_bounds == (1e-30, 1e30)
    assert (c.federation.retries, c.federation.max_relative_norm) == (0, 1e30)
    assert c.federation.max_statistics_factor == np.inf
    if algorithm == "fedkl":
        assert c.algorithm.c1_bounds == (1e-30, 1e30)


def test_the_papers_placements_and_steps_of_experiment_2():
    alternating, mixed = "hrhrhrhrhrhrhr", "hrhhrrhrhhhrrr"
    for name, placement, d_local in (
        ("figure-eight-paper", alternating, (0.0003, 0.0002)),
        ("figure-eight-mixed-paper", mixed, (0.0003, 0.0002)),
        ("figure-eight-same-step-paper", alternating, (0.0003, 0.0003)),
        ("figure-eight-mixed-same-step-paper", mixed, (0.0003, 0.0003)),
    ):
        fedkl_, fedavg = fedkl.preset(name, "fedkl"), fedkl.preset(name, "fedavg")
        assert (fedkl_.learner.d_local, fedavg.learner.d_local) == d_local
        assert fedkl_.world.placement == placement
        assert fedkl_.algorithm.d_global == 0.15
        assert fedkl.preset(name, "fedprox").algorithm.mu == 0.001
        assert (fedkl_.world_seed, fedkl.preset(name.removesuffix("-paper")).world_seed) == (0, -1)


def test_runs_of_different_seeds_can_have_the_same_worlds():
    own, fixed = (
        [fedkl.preset("reacher-dynamics", seed=s, set=extra) for s in (1, 2)]
        for extra in ({}, {"world_seed": 1})
    )
    offsets = [[c.clients()["action_offset"] for c in pair] for pair in (own, fixed)]
    np.testing.assert_array_equal(offsets[0][0], offsets[1][0])
    np.testing.assert_array_equal(*offsets[1])
    assert not np.array_equal(*offsets[0])


@pytest.mark.parametrize("name", ["reacher-dynamics", "cartpole-gravity", "figure-eight"])
def test_one_population_is_the_same_whatever_is_learnt_and_by_which_seed(name):
    some, others = (
        fedkl.preset(name, algorithm, seed, {"world_seed": 7})
        for algorithm, seed in (("fedkl", 1), ("fedavg", 2))
    )
    ours, theirs = some.clients(), others.clients()
    assert ours.keys() == theirs.keys()
    assert all(ours[word].tobytes() == theirs[word].tobytes() for word in ours)
    assert some.seed_of_worlds == others.seed_of_worlds == 7
    weights = [config.first_states[0].policy.network.weights[0] for config in (some, others)]
    assert not np.array_equal(*weights)


def test_the_authors_variant_differs_where_their_code_did():
    c = fedkl.preset("reacher-dynamics-authors")
    assert not c.learner.guard
    assert not c.learner.bootstrap_truncation
    assert c.learner.ratio_bounds == (1e-8, 10.0)
    assert c.algorithm.distance == "sqrt_kl_unhalved"
    assert (c.algorithm.c1, c.algorithm.c1_across_rounds) == (1e-4, "averaged")
    assert (c.critic.epochs, c.critic.learning_rate, c.critic.l2) == (30, 3e-4, 1e-3)
    assert c.critic.replay_previous
    assert c.federation.observation_statistics == "local"
    assert c.mapping()["world"]["clients"]["action_noise"]["normal"] == [0.0, 0.4]
    assert fedkl.preset("reacher-both-authors", "fedprox").algorithm.mu_factor == 0.25
    assert fedkl.preset("reacher-both-authors", "fmarl").algorithm.counter == "variable"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"learner.foo": 1},
            "learner.foo is not a setting; the learner policy-optimisation has: iterations",
        ),
        ({"foo": 1}, "foo is not a setting; available: preset, seed"),
        ({"learner.a.b": 1}, "learner.a.b is not a setting"),
        ({"federation.rounds": 0}, "federation.rounds must be at least 1, not 0"),
        ({"federation.rounds": 2.5}, "federation.rounds must be a whole number, not 2.5"),
        ({"federation.rounds": True}, "federation.rounds must be a whole number, not True"),
        ({"learner.learning_rate": "fast"}, "learner.learning_rate must be a number, not 'fast'"),
        ({"learner.learning_rate": 0}, "learner.learning_rate must be above 0, not 0"),
        ({"learner.learning_rate": float("nan")}, "learner.learning_rate must be a number"),
        ({"learner.guard": 1}, "learner.guard must be true or false, not 1"),
        ({"learner.hidden": 64}, "learner.hidden must be a list, not 64"),
        ({"learner.hidden": [0]}, "learner.hidden must be at least 1, not 0"),
        ({"learner.c2_bounds": [1.0]}, "learner.c2_bounds must be a list of 2, not of 1"),
        ({"learner.ratio_bounds": [5, 1]}, "learner.ratio_bounds must be in ascending order"),
        ({"learner.d_local": 10**400}, "learner.d_local must be finite"),
        ({"learner.c2_bounds": [2, 1]}, "learner.c2_bounds must be in ascending order"),
        ({"algorithm.c1_bounds": [2, 1]}, "algorithm.c1_bounds must be in ascending order"),
        ({"algorithm.distance": "L2"}, f"algorithm.distance must be one of {', '.join(DISTANCES)}"),
        ({"algorithm.mu": 1.0}, "algorithm.mu is not a setting; the algorithm fedkl has:"),
        ({"world.scenario": "mars"}, "world.scenario is not a setting; the world reacher has: c"),
        ({"world.name": "mars"}, "world.name: there is no world 'mars'; available: acrobot"),
        ({"learner": 3}, "learner must be a table of settings, not 3"),
        ({"federation.clients": 2}, "federation.clients_per_round must be at most"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"evaluation.every": 0}, "evaluation.every must be at least 1, not 0"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(settings, sentence):
    with pytest.raises(fedkl.UserError) as caught:
        fedkl.preset("reacher-iid", set=settings)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["learner.steps", "=3", ""])
def test_an_assignment_without_a_key_or_value_is_refused(text):
    with pytest.raises(fedkl.UserError, match=r"dotted\.key=value"):
        config.parse_assignment(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[clip]", ["clip"]),
        (" [ clip, 3 ,true] ", ["clip", 3, True]),
        ("['clip']", ["clip"]),
        ("[clip,]", "[clip,]"),
        ("[[clip]]", "[[clip]]"),
        ("[clip", "[clip"),
        ("[]", []),
    ],
)
def test_a_list_of_words_needs_no_quotes(text, value):
    assert config.parse_assignment(f"aggregation.each={text}") == ("aggregation.each", value)


def test_a_plugin_registers_an_algorithm(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\n"
        "import fedkl\n"
        "@fedkl.register_algorithm\n"
        "class Mine(fedkl.Algorithm):\n"
        "    name = 'mine'\n"
        "    summary = 'of my own'\n"
        "    strength: float = fedkl.setting(2.0, 'of it', low=0)\n"
    )
    chosen = fedkl.preset("probe-point", "mine", plugins=[path], set={"algorithm.strength": 3})
    assert chosen.algorithm.strength == 3.0
    assert chosen.plugins == (str(path),)
    assert "mine" in list(ALGORITHMS)


OWN_REDUCER = (
    "import fedkl\n"
    "@fedkl.register_reducer\n"
    "class {cls}(fedkl.Reducer):\n"
    "    name = '{name}'\n"
    "    summary = 'of my own'\n"
    "    def __call__(self, points, weights):\n"
    "        return points[0]\n"
)


@pytest.mark.parametrize("name", ["mean", "twice"])
def test_two_classes_cannot_have_the_same_name(tmp_path, monkeypatch, name):
    monkeypatch.setattr(REDUCERS, "_classes", dict(REDUCERS._classes))
    plugins = [tmp_path / f"{cls}.py" for cls in ("one", "two")]
    for path in plugins:
        path.write_text(OWN_REDUCER.format(cls=path.stem.title(), name=name))
    with pytest.raises(
        fedkl.UserError, match=rf"there are two reducers named '{name}': .* \(.*\) and .* \(.*\)"
    ):
        fedkl.preset("probe-point", plugins=plugins)


def test_a_plugin_that_was_edited_replaces_what_it_registered(tmp_path, monkeypatch):
    monkeypatch.setattr(REDUCERS, "_classes", dict(REDUCERS._classes))
    path = tmp_path / "edited.py"
    path.write_text(OWN_REDUCER.format(cls="Mine", name="mine"))
    settings = {"aggregation.reduce": "mine"}
    first = fedkl.preset("probe-point", plugins=[path], set=settings)
    path.write_text(path.read_text().replace("points[0]", "points[-1]"))
    os.utime(path, ns=(1, 1))
    second = fedkl.preset("probe-point", plugins=[path], set=settings)
    points = np.array([[1.0], [2.0]])
    reduced = [c.aggregation.reduce(points, np.ones(2)).tolist() for c in (first, second)]
    assert reduced == [[1.0], [2.0]]


def test_a_missing_plugin_is_named():
    with pytest.raises(fedkl.UserError, match=r"the plugin .*gone.py is not a file"):
        fedkl.preset("probe-point", plugins=["gone.py"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learner.personal_iterations": 1}, r"must be 0 where federation\.personal is none"),
        (
            {"federation.personal": "action-bias", "learner.personal_iterations": 20},
            r"must be below learner\.iterations \(20\), not 20",
        ),
    ],
)
def test_there_must_be_something_personal_and_something_shared_to_train(settings, message):
    with pytest.raises(fedkl.UserError, match=message):
        fedkl.preset("demo", set=settings)


def test_a_policy_of_one_layer_cannot_be_personal_as_a_whole():
    settings = {"federation.personal": "last-layer", "learner.hidden": []}
    with pytest.raises(fedkl.UserError, match=r"^federation\.personal must not be last-layer"):
        fedkl.preset("probe-point", set=settings)
    fedkl.preset("probe-point", set=settings | {"federation.personal": "action-bias"})


def test_a_critic_that_sees_the_time_takes_the_limit_for_the_end():
    seeing = {"critic.sees_time": True, "learner.bootstrap_truncation": True}
    message = r"^critic\.sees_time needs learner\.bootstrap_truncation = false"
    with pytest.raises(fedkl.UserError, match=message):
        fedkl.preset("probe-point", set=seeing)
    seen = fedkl.preset("probe-point", set=seeing | {"learner.bootstrap_truncation": False})
    assert seen.critic.sees_time


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("fedkl", {"algorithm.c1_adapted": "ramp", "federation.personal": "action-bias"}),
        ("fedkl-anchored", {"algorithm.anchors": "shared", "algorithm.d_anchor": 0.25}),
        ("fedavg", {"critic.sees_time": True, "learner.bootstrap_truncation": False}),
    ],
)
def test_what_a_client_keeps_and_is_anchored_to_survives_toml(algorithm, settings):
    resolved = fedkl.preset("probe-point", algorithm, set=settings)
    again = config.from_mapping(tomllib.loads(tomli_w.dumps(resolved.mapping())))
    assert again.mapping() == resolved.mapping()
    assert again.federation.sharing() == resolved.federation.sharing()
    assert again.critic.sees_time == resolved.critic.sees_time


def test_every_setting_has_a_line_of_help():
    c = fedkl.preset("demo")
    groups = (c.federation, c.learner, c.critic, c.algorithm, c.world, c.evaluation, c.checkpoint)
    links = [r[name] for r in (REDUCERS, STEPS, TRANSFORMS, UPLOADS, SELECTORS) for name in r]
    for group in (*groups, *links):
        for field in dataclasses.fields(group):
            assert field.metadata["help"], field.name


def test_settings_that_are_no_dict_are_refused():
    with pytest.raises(fedkl.UserError, match=r"set must be a dict such as .*, not \['a=b'\]"):
        fedkl.preset("probe-point", set=["a=b"])
