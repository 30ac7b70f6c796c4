"""The figure-eight for everybody: PettingZoo's own tests, configs, and what may be wrong."""

import math
import sys
import tomllib

import numpy as np
import pytest
import tomli_w
from pettingzoo.test import parallel_api_test, parallel_seed_test

import fedkl
from fedkl.cli import main
from fedkl.config import config
from fedkl.simulators.base import SimulatorError
from fedkl.simulators.figure_eight.placement import ALTERNATING, MIXED
from fedkl.simulators.figure_eight.simulation import checked_network
from fedkl.worlds import FigureEight
from fedkl.worlds.figure_eight import parallel_env


@pytest.fixture
def env():
    """Makes environments, and closes them."""
    made = []

    def make(**settings):
        made.append(parallel_env(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def act(environment, acceleration=1.0):
    return {agent: np.array([acceleration], np.float32) for agent in environment.agents}


# PettingZoo.


@pytest.mark.parametrize("placement", [ALTERNATING, MIXED, "h" * 13 + "r"])
def test_pettingzoos_own_test_of_parallel_environments(env, placement):
    parallel_api_test(env(placement=placement, horizon=25), num_cycles=60)


def test_pettingzoos_own_test_of_seeds():
    parallel_seed_test(lambda: parallel_env(horizon=25), num_cycles=30)


def test_agents_are_called_after_their_vehicles(env):
    assert env(placement=MIXED).possible_agents == [
        f"vehicle_{i}" for i in (1, 4, 5, 7, 11, 12, 13)
    ]


def test_spaces_hold_what_is_seen_and_done(env):
    environment = env(horizon=40)
    seen, _ = environment.reset(seed=1)
    while environment.agents:
        for agent, observation in seen.items():
            space = environment.observation_space(agent)
            assert space.contains(observation)
            assert environment.action_space(agent).shape == (1,)
        seen, *_ = environment.step(act(environment, 3.0))
    assert environment.action_space("vehicle_1").high == 3.0


def test_the_horizon_truncates_everybody_at_once(env):
    environment = env(horizon=3)
    environment.reset(seed=0)
    for step in range(3):
        everybody = list(environment.agents)
        _, rewards, terminated, truncated, _ = environment.step(act(environment))
        assert set(truncated) == set(everybody)
        assert set(truncated.values()) == {step == 2}
        assert set(terminated.values()) == {False}
        assert len(set(rewards.values())) == 1
    assert environment.agents == []
    assert environment.step({}) == ({}, {}, {}, {}, {})


def test_two_environments_live_side_by_side_and_agree(env):
    one, other = env(horizon=20), env(horizon=20)
    a, b = one.reset(seed=5)[0], other.reset(seed=5)[0]
    for _ in range(20):
        assert all(np.array_equal(a[agent], b[agent]) for agent in a)
        a, b = one.step(act(one))[0], other.step(act(other))[0]


def test_a_reset_without_a_seed_follows_from_the_seed_before(env):
    def two_episodes(environment):
        result = []
        for seed in (5, None):
            environment.reset(seed=seed)
            seen = None
            while environment.agents:
                seen, *_ = environment.step(act(environment))
            result.append(np.stack(list(seen.values())))
        return result

    first, second = two_episodes(env(horizon=30))
    again = two_episodes(env(horizon=30))
    assert np.array_equal(first, again[0])
    assert np.array_equal(second, again[1])
    assert not np.array_equal(first, second)


def test_the_first_reward_by_hand(env):
    """From rest everybody is asked to gain 0.1 s of acceleration, and 14 equal v give v / 20."""
    environment = env(placement="r" * 14, horizon=5)
    environment.reset(seed=0)
    seen, rewards, *_ = environment.step(act(environment, 0.5))
    speeds = [observation[2] * 30 for observation in seen.values()]
    assert speeds == pytest.approx([0.05] * 14, abs=1e-5)
    assert rewards["vehicle_3"] == pytest.approx(0.05 / 20, rel=1e-3)
    assert math.isclose(rewards["vehicle_0"], rewards["vehicle_13"])


def test_pictures_are_rgb_and_show_who_moves(env):
    environment = env(horizon=60, render_mode="rgb_array")
    environment.reset(seed=0)
    before = environment.render()
    while environment.agents:
        environment.step(act(environment, 3.0))
    after = environment.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    assert not np.array_equal(before, after)


def test_without_a_render_mode_there_is_no_picture(env):
    environment = env(horizon=5)
    environment.reset(seed=0)
    assert environment.render() is None


def test_an_environment_whose_process_died_is_mended_by_a_reset(env):
    environment = env(horizon=10)
    environment.reset(seed=1)
    environment._worker.process.kill()
    with pytest.raises(SimulatorError):
        environment.step(act(environment))
    seen, _ = environment.reset(seed=1)
    assert len(seen) == 7


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"placement": "hr"}, "world.placement must have 14 letters"),
        ({"placement": "h" * 14}, "world.placement has no autonomous vehicle"),
        ({"placement": 3}, "world.placement must be"),
        ({"horizon": 0}, "world.horizon must be at least 1, not 0"),
        ({"horizon": 2.5}, "world.horizon must be a whole number, not 2.5"),
        ({"network": "gone.net.xml"}, "cannot read gone.net.xml: it does not exist"),
        ({"render_mode": "human"}, "render_mode must be None or 'rgb_array', not 'human'"),
        ({"speed": 3}, "parallel_env has no setting speed"),
    ],
)
def test_a_wrong_setting_of_the_environment_is_named(settings, sentence):
    with pytest.raises(fedkl.UserError) as caught:
        parallel_env(**settings)
    assert str(caught.value).startswith(sentence)


def test_a_missing_pettingzoo_is_answered_with_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "fedkl.simulators.figure_eight.environment", raising=False)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(fedkl.UserError, match=r"\.\[sumo\]"):
        parallel_env()


# Configs.


def test_the_paper_preset_has_the_papers_numbers():
    c = fedkl.preset("figure-eight")
    assert (c.federation.clients, c.federation.clients_per_round) == (7, 7)
    assert (c.learner.iterations, c.learner.steps, c.learner.learning_rate) == (50, 1500, 0.01)
    assert (c.learner.hidden, c.critic.hidden) == ((100, 50, 25), (256, 256))
    assert (c.learner.d_local, c.algorithm.d_global) == (0.0003, 0.15)
    assert (c.world.placement, c.world.horizon) == (ALTERNATING, 1500)
    assert fedkl.preset("figure-eight", "fedavg").learner.d_local == 0.0002
    prox = fedkl.preset("figure-eight", "fedprox")
    assert (prox.learner.d_local, prox.algorithm.mu) == (0.0002, 0.001)
    assert fedkl.preset("figure-eight", "fmarl").algorithm.decay == 0.9999
    assert fedkl.preset("figure-eight-mixed").world.placement == MIXED


def test_a_config_of_the_road_survives_toml():
    chosen = fedkl.preset("figure-eight", set={"world.placement": MIXED, "world.horizon": 7})
    again = config.from_mapping(tomllib.loads(tomli_w.dumps(chosen.mapping())))
    assert again.mapping() == chosen.mapping()
    assert again.world == FigureEight(placement=MIXED, horizon=7)


WRONG = [
    ({"world.placement": "hr"}, "world.placement must have 14 letters, one for each vehicle"),
    ({"world.placement": "hr" * 7 + "h"}, "world.placement must have 14 letters"),
    ({"world.placement": "hx" * 7}, "world.placement is made of h (human) and r"),
    ({"world.placement": "h" * 14}, "world.placement has no autonomous vehicle"),
    ({"world.horizon": 0}, "world.horizon must be at least 1, not 0"),
    ({"world.horizon": -5}, "world.horizon must be at least 1, not -5"),
    ({"world.timeout": 0}, "world.timeout must be above 0, not 0"),
    ({"federation.clients": 8}, "federation.clients must be 7, as many as there are agents"),
    ({"world.placement": "r" * 14}, "federation.clients must be 14, as many as there are agents"),
]


@pytest.mark.parametrize(("settings", "sentence"), WRONG)
def test_a_wrong_setting_is_named_with_what_is_allowed(settings, sentence):
    with pytest.raises(fedkl.UserError) as caught:
        fedkl.preset("figure-eight", set=settings)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no XML at all", "is not the network of a figure-eight"),
        ("<net/>", "it has no edge bottom"),
    ],
)
def test_a_network_that_does_not_parse_is_named_before_anything_is_trained(
    tmp_path, text, sentence
):
    path = tmp_path / "mine.net.xml"
    path.write_text(text)
    with pytest.raises(fedkl.UserError, match=sentence):
        fedkl.Federation(fedkl.preset("figure-eight", set={"world.network": str(path)}))


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("world.placement", "hrh", "world.placement must have 14 letters"),
        ("world.placement", "h" * 14, "world.placement has no autonomous vehicle"),
        ("world.horizon", "0", "world.horizon must be at least 1, not 0"),
        ("world.network", "x", "cannot read x: it does not exist"),
    ],
)
def test_the_command_line_answers_in_one_sentence_and_leaves_nothing(
    tmp_path, monkeypatch, capsys, key, value, sentence
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["train", "figure-eight", "--run", "run", "--set", f"{key}={value}"])
    out, err = capsys.readouterr()
    assert (caught.value.code, out, err.count("\n")) == (2, "", 1)
    assert f"fedkl: {sentence}" in err
    assert not (tmp_path / "run").exists()


def test_an_own_copy_of_the_road_is_as_good_as_ours(tmp_path, env):
    path = tmp_path / "mine.net.xml"
    path.write_bytes(checked_network("").read_bytes())
    ours, theirs = env(horizon=30), env(horizon=30, network=str(path))
    a, b = ours.reset(seed=1)[0], theirs.reset(seed=1)[0]
    for _ in range(30):
        assert all(np.array_equal(a[agent], b[agent]) for agent in ours.possible_agents)
        a, b = ours.step(act(ours))[0], theirs.step(act(theirs))[0]
