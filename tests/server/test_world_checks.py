"""Worlds that are not what they say are found out, in a sentence that names them."""

import jax.numpy as jnp
import pytest

import fedkl
from fedkl.core.errors import UserError
from fedkl.server.world_checks import require_finite, require_sound

WORLD = """
import fedkl
import jax.numpy as jnp

@fedkl.register_world
class Odd(fedkl.World):
    name = "odd-{kind}"
    summary = "a world with a mistake in it"
    observation_size = 3
    actions = fedkl.Continuous(1)
    horizon = 4

    def clients(self, n, key):
        return jnp.zeros((n + {rows}, 2))

    def reset(self, params, key):
        return jnp.zeros(()), jnp.full({seen}, {value})

    def step(self, params, state, action, key):
        return fedkl.Transition(state, jnp.zeros({moved}), jnp.full({paid}, {reward}), jnp.zeros((), bool))
"""  # noqa: E501
SOUND = {"rows": 0, "seen": 3, "value": "0.0", "moved": 3, "paid": "()", "reward": "1.0"}


@pytest.fixture
def odd(tmp_path):
    """Makes the config of such a world."""

    def make(kind, edit=("", ""), **mistake):
        file = tmp_path / f"{kind}.py"
        text = WORLD.format(kind=kind, **SOUND | mistake)
        assert edit[0] in text
        file.write_text(text.replace(*edit) if edit[0] else text)
        few = {"federation.clients": 4, "federation.clients_per_round": 2, "federation.rounds": 1}
        short = {"learner.iterations": 1, "learner.steps": 8, "learner.epochs": 1}
        short |= {"learner.minibatch": 8, "critic.minibatch": 8}
        name = {"world.name": f"odd-{kind}"}
        return fedkl.preset("probe-point", set=few | short | name, plugins=[file])

    return make


def test_a_world_without_a_mistake_is_let_alone(odd):
    config = odd("sound")
    require_sound(config)
    require_finite(config)


@pytest.mark.parametrize(
    ("kind", "mistake", "sentence"),
    [
        ("seen", {"seen": 5}, r"`reset` gives an observation of shape \(5,\), not \(3,\) \(observ"),
        ("moved", {"moved": 2}, r"`step` gives an observation of shape \(2,\), not \(3,\)"),
        ("paid", {"paid": "(1,)"}, r"`step` gives a reward of shape \(1,\), not \(\)"),
        ("rows", {"rows": 1}, r"gives params of shape \(5, 2\) for 4 clients"),
        ("fewer", {"rows": -1}, r"gives params of shape \(3, 2\) for 4 clients"),
    ],
)
def test_a_world_that_is_not_what_it_says_is_refused_before_the_first_round(
    odd, kind, mistake, sentence
):
    with pytest.raises(UserError, match=rf"the world odd-{kind} .*{sentence}"):
        fedkl.Federation(odd(kind, **mistake))


PARAMETER = "    parameters = (fedkl.Parameter('gravity', 1.0),)"


@pytest.mark.parametrize(
    ("kind", "line", "instead", "sentence"),
    [
        ("no-size", "    observation_size = 3", "", "Odd .*no-size.py. lacks `observation_size`"),
        ("no-step", "def step", "def stop", "Odd .*no-step.py. lacks `step`, which every world"),
        ("size-0", "size = 3", "size = 0", "`observation_size` must be a whole number from 1 on"),
        ("size-tuple", "size = 3", "size = (3,)", r"from 1 on, not \(3,\)"),
        ("horizon", "horizon = 4", "horizon = '4'", "`horizon` must be a whole number from 1 on"),
        ("actions", "fedkl.Continuous(1)", "1", r"`actions` must be fedkl.Continuous\(size\) or"),
        ("actions-0", "Continuous(1)", "Discrete(0)", "with at least 1, not Discrete"),
        (
            "words",
            "    horizon",
            "    parameters = ('g',)\n    horizon",
            "must be a tuple of fedkl.P",
        ),
        (
            "twice",
            "    horizon",
            f"{PARAMETER.replace(',)', ',) * 2')}\n    horizon",
            "`parameters` has gravity twice",
        ),
        (
            "params",
            "    def clients(self, n, key):\n        return jnp.zeros((n + 0, 2))",
            f"{PARAMETER}\n    params = lambda mass: mass",
            r"`params` must take its parameters by name \(gravity\): TypeError: .*'gravity'",
        ),
        ("one", "jnp.zeros(()), jnp.full(3", "jnp.full(3", "`reset` must give two things, a state"),
        ("tuple", "fedkl.Transition(", "(", "`step` must give fedkl.Transition.*, not tuple"),
        (
            "arguments",
            "params, state, action, key",
            "params",
            r"`step`: TypeError: .*step\(\) takes",
        ),
        (
            "branch",
            "        return fedkl.Tr",
            "        if action[0] > 0:\n            pass\n        return fedkl.Tr",
            "`step` must be written in JAX, .*jnp.where in that of `if`.*branch.py, line 20, in s",
        ),
    ],
)
def test_a_mistake_in_a_world_is_told_in_a_sentence(odd, kind, line, instead, sentence):
    with pytest.raises(UserError, match=sentence):
        fedkl.Federation(odd(kind, edit=(line, instead)))


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    ("kind", "mistake", "sentence"),
    [
        ("nan-seen", {"value": "jnp.nan"}, "an observation of client 0 from `reset` has NaN"),
        ("nan-paid", {"reward": "jnp.inf"}, "a reward of client 0 from `step` has NaN or infinity"),
    ],
)
def test_a_world_that_gives_no_numbers_is_named_in_the_first_round(
    odd, tmp_path, kind, mistake, sentence
):
    config = odd(kind, **mistake)
    with pytest.raises(UserError, match=sentence):
        fedkl.train(config, tmp_path / "runs" / "run")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("config", ["demo", None, {"federation": 1}])
def test_what_is_no_config_is_answered_with_what_is(config):
    with pytest.raises(UserError, match=r"config must be what fedkl\.preset\(\.\.\.\) gives, not "):
        fedkl.Federation(config)


@pytest.mark.parametrize("name", [None, 3, ["demo"], jnp.zeros(1)])
def test_what_is_no_preset_is_answered_with_what_is(name):
    with pytest.raises(UserError, match="a preset must be a name or a file that ends in"):
        fedkl.preset(name)


def test_a_preset_may_be_a_path(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = ["probe-point"]\nseed = 3\n')
    assert fedkl.preset(file).seed == 3
