"""A run's policy acts as the run's clients do, without JAX, and what cannot be loaded is named."""

import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

import fedkl
from fedkl.core.errors import UserError
from fedkl.policies import Policy, load
from fedkl.simulators.spaces import actuator
from fedkl.training import lifecycle
from fedkl.training.directory import SERVING, RunDirectory
from fedkl.training.spaces import FILE

WORLDS = (
    "probe-point",
    "cartpole",
    "acrobot",
    "pendulum",
    "mountain-car-continuous",
    "reacher-both",
)
OBSERVATIONS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.usefixtures("quick_compilation")


def observations(size, seed):
    """Usual ones, some far out, and zeros."""
    random = np.random.default_rng(seed)
    scale = 10.0 ** random.integers(-3, 4)
    return np.concatenate([scale * random.normal(size=(5, size)), np.zeros((1, size))])


def assert_same_actions(policy, made, client=0, seed=0):
    size = policy.spaces.observation_size
    seen = observations(size, seed)
    expected = actuator(made.federation.config.world.actuators)(made.jax_action(seen, client))
    acted = policy(seen)
    if np.issubdtype(acted.dtype, np.integer):
        assert np.array_equal(acted, expected)
    else:
        np.testing.assert_allclose(acted, expected, rtol=2e-5, atol=2e-5)
    assert np.array_equal(acted, [policy(o) for o in seen])


@pytest.mark.parametrize("preset", WORLDS)
def test_it_acts_as_the_policy_in_jax_does(scramble, preset):
    made = scramble(preset)
    policy = load(made.run.path)
    assert policy.round == 3

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=OBSERVATIONS)
    def check(seed):
        assert_same_actions(policy, made, seed=seed)

    check()


@pytest.mark.parametrize("preset", ["pendulum", "cartpole"])
def test_a_rectified_policy_acts_as_in_jax_and_unlike_one_with_tanh(scramble, preset):
    made = scramble(preset, learner__activation="relu", critic__activation="relu")
    policy = load(made.run.path)
    assert_same_actions(policy, made)
    seen = observations(policy.spaces.observation_size, 1)
    other = load(scramble(preset, seed=1).run.path)
    smooth = Policy(policy.actor._replace(activation=other.actor.activation), policy.spaces, 3)
    raw = [p._networks(6)(seen[None].astype(np.float32)).copy() for p in (policy, smooth)]
    assert not np.allclose(*raw)


def test_a_run_from_before_there_was_another_activation_has_tanh(scramble):
    made = scramble()
    config = made.run.path / "config.toml"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("activation")))
    policy = load(made.run.path, accept_changes=True)
    assert_same_actions(policy, made)
    unknown = config.read_text().replace("[learner]", '[learner]\nactivation = "gelu"')
    config.write_text(unknown)
    with pytest.raises(fedkl.UserError, match=r"no usable learner\.activation"):
        load(made.run.path, accept_changes=True)


@pytest.mark.parametrize("preset", ["probe-chain", "probe-bandit"])
def test_it_acts_as_in_jax_where_actions_are_discrete_probes(scramble, preset):
    made = scramble("probe-point", world__name=preset)
    assert_same_actions(load(made.run.path), made)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "LunarLander-v3"])
def test_it_acts_in_gymnasiums_own_units(scramble, id):
    made = scramble(f"gym:{id}")
    made.federation.engine.close()
    policy = load(made.run.path)
    assert_same_actions(policy, made)
    env = gymnasium.make(id)
    far = 100 * np.random.default_rng(0).normal(size=(20, policy.spaces.observation_size))
    assert all(env.action_space.contains(action) for action in policy(far))


def test_a_pendulum_in_jax_and_gymnasiums_are_moved_alike(scramble):
    """The policy's own unit is the motor's limit, and Gymnasium's is torque."""
    made = scramble("pendulum")
    policy = load(made.run.path)
    env = gymnasium.make("Pendulum-v1")
    observation, _ = env.reset(seed=3)
    world = made.federation.config.world
    params = jax.tree.map(lambda x: x[0], world.clients(1, jax.random.key(0)))
    state_of = type(world.reset(params, jax.random.key(0))[0])
    for _ in range(5):
        angle, speed = env.unwrapped.state
        action = jnp.asarray(made.jax_action(observation)[0])
        state = state_of(jnp.float32(angle), jnp.float32(speed))
        ours = world.step(params, state, action, jax.random.key(0))
        observation, reward, *_ = env.step(policy(observation))
        np.testing.assert_allclose(ours.observation, observation, atol=1e-4)
        assert float(ours.reward) == pytest.approx(reward, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("seen", [0.0, 1.0, 2.0])
def test_statistics_of_little_are_those_of_jax(scramble, seen):
    made = scramble()
    arrays, rows, _ = made.federation.save()
    arrays["model.observations.count"] = np.asarray(seen)
    arrays["model.observations.squares"] = np.array([0.0, 1e-12, 1.0, 4.0])
    made.federation.restore(arrays, rows)
    made.run.checkpoints.save(4, arrays, rows)
    assert_same_actions(load(made.run.path), made)


def test_without_statistics_observations_are_taken_as_they_are(scramble):
    made = scramble("pendulum", federation__observation_statistics="none")
    assert_same_actions(load(made.run.path), made)


@pytest.mark.parametrize("preset", ["cartpole", "pendulum"])
@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_client_sees_with_its_own_statistics(scramble, preset, client):
    """Client 0 has not taken part yet, and has none."""
    made = scramble(preset, federation__observation_statistics="local")
    assert_same_actions(load(made.run.path, client=client), made, client)


@pytest.mark.parametrize("personal", ["action-bias", "last-layer"])
def test_a_client_acts_with_its_own_part_of_the_policy(scramble, personal):
    made = scramble("pendulum", federation__personal=personal)
    assert_same_actions(load(made.run.path, client=1), made, 1)
    with pytest.raises(fedkl.UserError, match=r"client 0 of .* has not taken part"):
        load(made.run.path, client=0)
    with pytest.raises(fedkl.UserError, match="keeps a part of the policy to itself: say whose"):
        load(made.run.path)


def test_a_client_that_learns_alone_acts_with_its_own_policy(scramble):
    alone = {f"federation__{name}": "local" for name in ("critic", "reward_statistics")}
    made = scramble(
        "pendulum",
        federation__personal="all",
        federation__observation_statistics="local",
        algorithm__c1_across_rounds="kept",
        **alone,
    )
    assert_same_actions(load(made.run.path, client=1), made, 1)
    with pytest.raises(fedkl.UserError, match=r"client 0 of .* has not taken part"):
        load(made.run.path, client=0)
    with pytest.raises(fedkl.UserError, match="keeps its policy to itself: say whose"):
        load(made.run.path)


def test_where_clients_keep_nothing_all_have_the_same_policy(scramble):
    made = scramble()
    assert_same_actions(load(str(made.run.path), client=3), made)


def test_the_newest_whole_checkpoint_counts_and_a_damaged_one_is_named(scramble):
    made = scramble()
    made.run.checkpoints.save(4, *made.federation.save())
    newest = max((made.run.path / "checkpoints").iterdir())
    newest.write_bytes(b"rubbish")
    with pytest.warns(UserWarning, match=r"is damaged .* of round 3, is used instead"):
        assert load(made.run.path).round == 3


def test_the_best_round_is_loaded_if_it_was_kept(scramble):
    made = scramble()
    with pytest.raises(fedkl.UserError, match=r"has kept no best round: .*keep_best = true"):
        load(made.run.path, best=True)
    for round, reached in ((1, -3.0), (2, -1.0), (3, -2.0)):
        made.run.metrics.append({"round": round, "return_mean": reached})
    made.run.best.save(2, *made.federation.save()[:2])
    made.run.best.save(5, *made.federation.save()[:2])  # of a process that died then
    assert load(made.run.path, best=True).round == 2
    assert load(made.run.path).round == 3


# Bad input.


def test_a_run_without_a_round_is_answered_with_a_sentence(tiny, tmp_path):
    run = lifecycle.create(tiny(), tmp_path / "run")
    with pytest.raises(fedkl.UserError, match="run has no finished round to load yet"):
        load(run.path)


def test_what_is_not_a_run_is_answered_with_a_sentence(tmp_path):
    with pytest.raises(fedkl.UserError, match="nowhere does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(fedkl.UserError, match="is not a run directory"):
        load(tmp_path)


@pytest.mark.parametrize("client", [-1, 4])
def test_a_client_that_there_is_not_is_refused(scramble, client):
    made = scramble()
    with pytest.raises(fedkl.UserError, match=f"client must be from 0 to 3, not {client}"):
        load(made.run.path, client=client)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ("acrobot", "its policy sees 4 numbers and gives 2, not 6 and 3"),
        ("pendulum", "its actions are discrete"),
    ],
)
def test_a_checkpoint_of_another_world_is_refused(scramble, other, sentence):
    made, theirs = scramble("cartpole"), scramble(other, seed=1)
    (made.run.path / FILE).write_bytes((theirs.run.path / FILE).read_bytes())
    with pytest.raises(fedkl.UserError, match=rf"round 3 does not fit the run: {sentence}"):
        load(made.run.path)


def test_a_checkpoint_without_a_policy_is_refused(scramble):
    made = scramble()
    made.run.checkpoints.save(4, {"round": np.asarray(4)})
    with pytest.raises(fedkl.UserError, match="it has no whole policy"):
        load(made.run.path)


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("observations.count", None, "it has no whole statistics of observations: count"),
        ("observations.squares", (2,), "it has no whole statistics of observations: squares"),
        ("policy.network.weights.1", (), "it has no whole policy"),
        ("policy.network.biases.2", (), "it has no whole policy"),
        ("policy.network.biases.1", None, "it has no whole policy"),
        ("policy.network.weights.1", (6, 5), "its layers do not fit each other"),
        ("policy.log_std", (2,), "it has not one deviation for each action"),
    ],
)
def test_a_checkpoint_with_an_array_of_another_shape_is_refused(scramble, name, shape, sentence):
    made = scramble("pendulum")
    arrays = dict(made.run.checkpoint(print, False).arrays)
    assert arrays.pop(f"model.{name}") is not None
    if shape is not None:
        arrays[f"model.{name}"] = np.ones(shape, np.float32)
    made.run.checkpoints.save(4, arrays)
    with pytest.raises(fedkl.UserError, match=f"round 4 does not fit the run: {sentence}"):
        load(made.run.path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name",
    [
        "policy.network.weights.0",
        "policy.network.biases.1",
        "policy.log_std",
        "observations.mean",
        "observations.count",
    ],
)
def test_a_checkpoint_with_numbers_that_are_not_finite_is_refused(scramble, name, value):
    made = scramble("pendulum")
    arrays = dict(made.run.checkpoint(print, False).arrays)
    arrays[f"model.{name}"].flat[0] = value
    made.run.checkpoints.save(4, arrays)
    sentence = f"round 4 does not fit the run: {name} has numbers that are not finite"
    with pytest.raises(fedkl.UserError, match=sentence):
        load(made.run.path)


def test_a_client_whose_own_numbers_are_not_finite_is_refused(scramble):
    made = scramble(federation__personal="last-layer")
    saved = made.run.checkpoint(print, False)
    for row in saved.rows.values():
        row["own.personal.network.biases.2"][:] = np.nan
    made.run.checkpoints.save(4, saved.arrays, saved.rows)
    with pytest.raises(fedkl.UserError, match=r"policy\.network\.biases\.2 has numbers that are"):
        load(made.run.path, client=1)


def test_a_checkpoint_with_statistics_below_zero_is_refused(scramble):
    made = scramble()
    arrays = dict(made.run.checkpoint(print, False).arrays)
    arrays["model.observations.squares"][0] = -1.0
    made.run.checkpoints.save(4, arrays)
    with pytest.raises(fedkl.UserError, match="its statistics of observations are below zero"):
        load(made.run.path)


def test_what_a_client_of_a_network_keeps_is_on_its_own_disk(scramble):
    made = scramble(federation__observation_statistics="local")
    (made.run.path / SERVING).write_text("")
    with pytest.raises(fedkl.UserError, match=r"client 1 of .* on its own disk"):
        load(made.run.path, client=1)


def test_a_served_run_whose_clients_keep_nothing_is_loaded_like_any_other(scramble):
    made = scramble()
    (made.run.path / SERVING).write_text("")
    assert_same_actions(load(made.run.path, client=1), made)


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ("federation", "clients", "four"),
        ("federation", "clients", 0),
        ("learner", "observation_clip", True),
        ("checkpoint", "every", 0),
    ],
)
def test_a_config_that_was_spoilt_is_answered_with_a_sentence(scramble, table, name, value):
    made = scramble()
    config = made.run.config()
    config[table][name] = value
    (made.run.path / "config.toml").write_text(tomli_w.dumps(config))
    with pytest.raises(fedkl.UserError, match=rf"config\.toml has no usable {table}\.{name}"):
        load(made.run.path)


def test_a_run_without_its_spaces_is_told_how_to_get_them(tiny, tmp_path):
    run = lifecycle.create(tiny(federation__rounds=1), tmp_path / "run")
    lifecycle.run_remaining(run, lambda record: None, print)
    (run.path / FILE).unlink()
    with pytest.raises(fedkl.UserError, match=r"has no spaces\.json.*`fedkl resume` writes it"):
        load(run.path)
    fedkl.resume(run.path)
    load(run.path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"observation_size": 4}',
        '{"observation_size": "4", "numbers": {"size": 2}}',
    ],
)
def test_damaged_spaces_are_answered_with_a_sentence(scramble, text):
    made = scramble()
    (made.run.path / FILE).write_text(text)
    with pytest.raises(fedkl.UserError, match=r"spaces\.json is (damaged|not valid JSON)"):
        load(made.run.path)


# Without JAX, and quickly.

PROGRAM = """
import sys, time

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "equinox", "optax", "gymnasium"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
begun = time.process_time()
import fedkl
policy = fedkl.load(sys.argv[1])
import json
seen = json.loads(sys.argv[2])
action = policy(seen)
first = time.process_time() - begun
assert len(fedkl.records(sys.argv[1])) == 0

def thousand():
    begun = time.process_time()
    for _ in range(1000):
        policy(seen)
    return time.process_time() - begun

times = {"first": first, "thousand": min(thousand() for _ in range(5))}
print(json.dumps(times | {"action": action.tolist()}))
"""


@pytest.mark.parametrize("preset", ["cartpole", "pendulum"])
def test_a_policy_needs_no_jax_a_second_to_load_and_50_milliseconds_for_1000_actions(
    scramble, preset
):
    made = scramble(preset, learner__hidden=[64, 64])
    seen = [0.1, 0.2, 0.3, 0.4][: made.federation.config.world.observation_size]
    command = [sys.executable, "-c", PROGRAM, str(made.run.path), json.dumps(seen)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    expected = actuator(made.federation.config.world.actuators)(made.jax_action(seen))[0]
    assert result["action"] == pytest.approx(expected.tolist(), rel=1e-5)
    # Of the process's own time, whoever else is at work.
    assert result["first"] < 1.0
    assert result["thousand"] < 0.05


def linked(requirements, folder):
    """A folder with the files of installed packages, and of what these need, and nothing else."""
    wanted = [Requirement(line).name for line in requirements if not line.startswith("#")]
    done = set()
    while wanted:
        name = wanted.pop().lower()
        if name in done:
            continue
        done.add(name)
        package = distribution(name)
        needs = [Requirement(text) for text in package.requires or ()]
        wanted += [one.name for one in needs if one.marker is None or one.marker.evaluate()]
        for top in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            target = folder / top
            if not target.exists():
                target.symlink_to(package.locate_file(top))
    return done


def test_a_policy_loads_with_what_requirements_policy_txt_names_and_nothing_else(
    scramble, tmp_path
):
    made = scramble("pendulum")
    root = Path(__file__).parents[2]
    names = linked((root / "requirements-policy.txt").read_text().splitlines(), tmp_path)
    assert not names & {"jax", "jaxlib", "equinox", "scipy", "rich"}
    (tmp_path / "fedkl").symlink_to(Path(fedkl.__file__).parent)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import fedkl; "
        "print(fedkl.load(sys.argv[2])([0.1, 0.2, 0.3]).tolist())"
    )
    # -I and -S: neither this environment's packages nor those of the user.
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", program, tmp_path, made.run.path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = actuator(made.federation.config.world.actuators)(made.jax_action([0.1, 0.2, 0.3]))
    assert json.loads(done.stdout) == pytest.approx(expected[0].tolist(), rel=1e-5)


# In Gymnasium's own loop.


def gymnasium_returns(policy, episodes):
    env = gymnasium.make("CartPole-v1")
    returns = []
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return np.array(returns)


def test_a_policy_by_hand_balances_gymnasiums_pole_as_it_does_ours(scramble):
    """It pushes to where the pole falls, seen through statistics without which it would not."""
    made = scramble("cartpole", learner__hidden=[], learner__observation_clip=1000.0)
    mean, deviation = np.array([1.0, -1.0, 0.5, 2.0]), np.array([10.0, 0.1, 3.0, 0.2])
    wanted = np.array([0.1, 0.3, 3.0, 1.0])
    arrays, rows, _ = made.federation.save()
    weight = (wanted * deviation)[:, None] * np.array([[-1.0, 1.0]])
    arrays |= {
        "model.policy.network.weights.0": weight.astype(np.float32),
        "model.policy.network.biases.0": (wanted @ mean * np.array([-1.0, 1.0])).astype(np.float32),
        "model.observations.mean": mean,
        "model.observations.squares": 1000 * deviation**2,
        "model.observations.count": np.asarray(1000.0),
    }
    made.federation.restore(arrays, rows)
    made.run.checkpoints.save(4, arrays, rows)
    assert made.federation.evaluate(5, deterministic=True).min() == 500
    policy = load(made.run.path)
    assert gymnasium_returns(policy, 5).tolist() == [500] * 5
    bare = Policy(policy.actor._replace(centre=0 * mean, scale=mean**0), policy.spaces, 4)
    assert gymnasium_returns(bare, 5).max() < 100


@pytest.mark.slow
def test_a_trained_policy_reaches_in_gymnasium_what_its_evaluation_says(tmp_path):
    config = fedkl.preset("cartpole", set={"checkpoint.keep_best": True})
    run = RunDirectory(fedkl.train(config, tmp_path / "run"))
    for best in (False, True):
        federation = lifecycle.load(run, print, best=best)
        ours = federation.evaluate(20, deterministic=True).mean()
        theirs = gymnasium_returns(load(run.path, best=best), 50).mean()
        assert theirs == pytest.approx(ours, rel=0.1)
        assert theirs > 300


def test_a_run_whose_config_was_edited_is_refused_and_the_way_on_is_named(tiny, tmp_path):
    run = RunDirectory(fedkl.train(tiny(), tmp_path / "run"))
    run.replace_config(run.config() | {"seed": 9})
    said = "seed was 0, is 9; put it back, or accept the changes with --accept-changes"
    with pytest.raises(fedkl.UserError, match=rf"{said} \(in Python accept_changes=True\)"):
        load(run.path)
    policy = load(run.path, accept_changes=True)
    assert (policy.round, policy.run) == (3, run.path)


def test_a_client_that_is_no_number_is_refused(scramble):
    made = scramble(federation__observation_statistics="local")
    with pytest.raises(fedkl.UserError, match="client must be from 0 to 3, not 'a'"):
        load(made.run.path, client="a")
    assert load(made.run.path, client=np.int64(1)).round == 3


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("reacher-both", {}),
        ("cartpole-gravity", {}),
        ("probe-point", {"federation__observation_statistics": "none"}),
        ("probe-point", {"learner__uniform_exploration": 0.5}),
    ],
)
def test_a_federations_policy_is_bit_for_bit_the_one_that_is_loaded(scramble, preset, changes):
    made = scramble(preset, **changes)
    loaded, held = load(made.run.path), made.federation.policy
    assert (held.round, held.spaces, held.run) == (loaded.round, loaded.spaces, None)
    seen = observations(held.spaces.observation_size, 0)
    for one in (held, loaded):
        assert np.array_equal(one(seen), loaded(seen))
        sampled = one(seen, deterministic=False, key=3)
        assert np.array_equal(sampled, loaded(seen, deterministic=False, key=3))


@pytest.mark.parametrize(
    "changes", [{"personal": "action-bias"}, {"observation_statistics": "local"}]
)
def test_a_federation_whose_clients_keep_something_has_no_policy_of_all(tiny, changes):
    config = tiny(**{f"federation__{name}": value for name, value in changes.items()})
    with pytest.raises(UserError, match="no policy is that of all"):
        fedkl.Federation(config).policy  # noqa: B018
