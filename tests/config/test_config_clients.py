"""What differs between clients, in a config: the one table within a table."""

import tomllib

import numpy as np
import pytest
import tomli_w

import fedkl
from fedkl.config import config

GRAVITY = {"uniform": [7.0, 13.0]}


def cartpole(**words):
    return fedkl.preset("cartpole", set={f"world.clients.{w}": d for w, d in words.items()})


def table(chosen):
    return chosen.mapping()["world"]["clients"]


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"gravity": GRAVITY},
        {"gravity": {"normal": [9.8, 1.0], "clip": 2.0}, "length": [0.4, 0.5, 0.7]},
        {"initial_state": {"boxes": 7}, "action_delay": {"choice": [0, 1, 2]}},
        {"observation_noise": {"normal": [0, 0.1], "per": "step"}, "masscart": 2},
    ],
)
def test_a_table_survives_the_way_to_toml_and_back(words):
    chosen = cartpole(**words)
    assert table(chosen) == words
    again = config.from_mapping(tomllib.loads(tomli_w.dumps(chosen.mapping())))
    assert again.mapping() == chosen.mapping()
    assert again.world == chosen.world
    np.testing.assert_equal(chosen.clients(), again.clients())


def test_a_file_replaces_word_by_word_and_a_draw_as_a_whole(tmp_path):
    (tmp_path / "base.toml").write_text(
        'extends = ["cartpole"]\n[world.clients]\n'
        "gravity = { normal = [9.8, 1.0], clip = 2.0 }\nlength = [0.4, 0.6]\n"
    )
    (tmp_path / "mine.toml").write_text(
        'extends = ["base.toml"]\n[world.clients]\ngravity = { uniform = [7.0, 13.0] }\n'
    )
    chosen = fedkl.preset(str(tmp_path / "mine.toml"))
    assert table(chosen) == {"gravity": GRAVITY, "length": [0.4, 0.6]}


def test_a_table_may_hold_for_one_algorithm(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'extends = ["cartpole"]\n[per_algorithm.fedavg.world.clients]\ngravity = 3\n'
    )
    path = str(tmp_path / "mine.toml")
    assert table(fedkl.preset(path, "fedavg")) == {"gravity": 3}
    assert table(fedkl.preset(path, "fedkl")) == {}


def test_the_whole_table_can_be_replaced():
    assert table(fedkl.preset("reacher-both", set={"world.clients": {}})) == {}
    assert fedkl.preset("reacher-both", set={"world.clients": {}}).clients() == {}


def test_a_setting_leaves_the_other_words_and_the_preset_as_they_are():
    quiet = {"world.clients.action_noise": 0.1}
    assert table(fedkl.preset("reacher-both", set=quiet)) == {
        "initial_state": {"boxes": 60},
        "action_noise": 0.1,
    }
    assert "normal" in table(fedkl.preset("reacher-both"))["action_noise"]


def test_another_world_drops_what_a_preset_said_of_its_clients(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = ["reacher-both"]\n[world]\nname = "pendulum"\n')
    assert table(fedkl.preset(str(path))) == {}


def test_clients_are_what_the_federation_trains_on():
    chosen = cartpole(gravity=GRAVITY)
    gravity = chosen.clients()["gravity"]
    assert gravity.shape == (chosen.federation.clients,)
    np.testing.assert_array_equal(gravity, chosen.client_params.gravity)
    other = fedkl.preset("cartpole", seed=1, set={"world.clients.gravity": GRAVITY})
    assert (gravity != other.clients()["gravity"]).all()


def test_only_words_that_are_named_or_differ_are_told():
    assert cartpole().clients() == {}
    assert list(cartpole(gravity=3).clients()) == ["gravity"]
    both = fedkl.preset("reacher-both").clients()
    assert list(both) == ["target_low", "target_high", "action_offset"]
    late = fedkl.preset("reacher-both", set={"world.clients.action_delay": 1}).clients()
    assert set(late) == set(both) | {"action_delay"}
    assert list(fedkl.preset("probe-point", set={"world.spread": 1.0}).clients()) == ["target"]


def test_clients_of_one_simulation_have_no_words():
    assert fedkl.preset("figure-eight").clients() == {}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"world.clients": 3}, "world.clients must be a table of parameters, not 3"),
        (
            {"world.clients.gravty": 3},
            "world.clients.gravty is not a parameter of cartpole (did you",
        ),
        ({"world.clients.gravity": "x"}, "world.clients.gravity must be a number, a list, or"),
        ({"world.clients.a.b": 3}, "world.clients.a.b is not a parameter of cartpole; available: "),
        ({"world.clients.initial_low": 1}, "world.clients: client 0 would have initial_low = 1"),
        ({"world.clients": 3, "world.clients.gravity": 3}, "clients must be a table of settings"),
        ({"world.other.b": 3}, "world.other.b is not a setting"),
        ({"learner.clients.b": 3}, "learner.clients.b is not a setting"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(settings, sentence):
    with pytest.raises(fedkl.UserError) as caught:
        fedkl.preset("cartpole", set=settings)
    assert str(caught.value).startswith(sentence)


def test_a_world_that_all_clients_share_has_no_such_table():
    with pytest.raises(
        fedkl.UserError, match=r"^world\.clients is not a setting; the world figure-eight has: "
    ):
        fedkl.preset("figure-eight", set={"world.clients.gravity": 3})
