"""A run that starts from the policy of another one."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from commands import call
from finished_runs import SMALLEST

import fedkl
from fedkl.cli import compare as compare_command
from fedkl.config.pretrained import TAKEN
from fedkl.io.arrays import from_arrays, to_arrays
from fedkl.server.loop import Federation
from fedkl.training import lifecycle, verify
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import of_run

pytestmark = pytest.mark.usefixtures("quick_compilation")


def config(algorithm="fedkl", seed=0, preset="probe-point", **settings):
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    five = {"federation.rounds": 5, "checkpoint.keep_best": True}
    own = {key: value for key, value in SMALLEST.items() if not key.startswith("world.")}
    return fedkl.preset(preset, algorithm, seed, own | five | dotted)


def train(config, path):
    run = lifecycle.create(config, path)
    lifecycle.run_remaining(run, lambda record: None, pytest.fail)
    return run


def newest(run):
    return run.checkpoints.latest(pytest.fail)


def taken_of(arrays):
    return {n: a for n, a in arrays.items() if n.removeprefix("model.").split(".")[0] in TAKEN}


def model_of(federation):
    return {f"model.{n}": a for n, a in to_arrays(federation.state.model).items()}


def assert_same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert np.array_equal(a[name], b[name]), name


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """FedAvg for five rounds."""
    return train(config("fedavg", 3), tmp_path_factory.mktemp("pretrained") / "avg")


class UnpluggedError(Exception):
    pass


def stop_after(rounds):
    def watch(record):
        if record["round"] == rounds:
            raise UnpluggedError

    return watch


def test_fedavg_for_five_rounds_and_then_fedkl_for_five_is_just_that(tmp_path, averaged):
    chosen = fedkl.start_from(config(seed=4), averaged.path)
    run = lifecycle.create(chosen, tmp_path / "kl")
    first = newest(averaged)
    assert first.round == 5
    # Where the second run starts the first one ended, bit for bit.
    start = Federation(of_run(run))
    assert int(start.state.round) == int(start.state.env_steps) == 0
    taken = taken_of(first.arrays)
    assert {name.split(".")[1] for name in taken} == {*TAKEN}
    assert_same_arrays(taken_of(model_of(start)), taken)
    # And what comes of it is what FedKL's own federation makes of that model.
    lifecycle.run_remaining(run, lambda record: None, pytest.fail)
    by_hand = Federation(config(seed=4))
    own = {n: taken.get(f"model.{n}", a) for n, a in to_arrays(by_hand.state.model).items()}
    by_hand.state = replace(by_hand.state, model=from_arrays(by_hand.state.model, own))
    for _ in by_hand:
        pass
    last = newest(run).arrays
    assert_same_arrays({n: a for n, a in last.items() if n.startswith("model.")}, model_of(by_hand))
    assert "c1" in run.metrics.read()[0]["coefficients"]


def test_rounds_coefficients_and_random_numbers_begin_anew(tmp_path, averaged):
    """So FedAvg for five rounds, and five more that start from it, are not FedAvg for ten."""
    more = train(fedkl.start_from(config("fedavg", 3), averaged.path), tmp_path / "more")
    assert [r["round"] for r in more.metrics.read()] == [1, 2, 3, 4, 5]
    assert more.metrics.read()[0]["selected"] == averaged.metrics.read()[0]["selected"]
    shutil.copytree(averaged.path, tmp_path / "ten")
    ten = fedkl.resume(tmp_path / "ten", rounds=10)
    longer = newest(RunDirectory.open(ten)).arrays
    shorter = newest(more).arrays
    assert not np.array_equal(longer["model.policy.log_std"], shorter["model.policy.log_std"])


def test_a_killed_run_needs_no_other_and_ends_as_an_unbroken_one(tmp_path, averaged):
    source = tmp_path / "avg"
    shutil.copytree(averaged.path, source)
    chosen = fedkl.start_from(config(), source)
    whole, broken = (lifecycle.create(chosen, tmp_path / name) for name in ("whole", "broken"))
    lifecycle.run_remaining(whole, lambda record: None, pytest.fail)
    shutil.rmtree(source)
    for stop in (1, 3):
        with pytest.raises(UnpluggedError):
            lifecycle.run_remaining(broken, stop_after(stop), pytest.fail)
        if stop == 1:  # as if it had been killed before its first checkpoint
            shutil.rmtree(broken.path / "checkpoints")
            shutil.rmtree(broken.path / "best")
            (broken.path / "metrics.jsonl").unlink()
            (broken.path / ".lock").unlink()
        broken = RunDirectory.open(broken.path)
    lifecycle.run_remaining(broken, lambda record: None, pytest.fail)
    assert_same_arrays(newest(whole).arrays, newest(broken).arrays)
    for client, row in newest(whole).rows.items():
        assert_same_arrays(row, newest(broken).rows[client])
    assert verify.check(whole) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"preset": "cartpole"},
            "does not fit cartpole: its policy has layers 1-8-1 and continuous actions, and "
            "that of cartpole has layers 4-64-64-2 and discrete actions",
        ),
        ({"preset": "pendulum"}, "that of pendulum has layers 3-64-64-1 and continuous actions"),
        ({"learner__hidden": [5]}, "that of probe-point has layers 1-5-1 and continuous actions"),
        (
            {"critic__hidden": [5, 5]},
            "its critic has layers 1-8-1, and that of probe-point has layers 1-5-5-1",
        ),
        (
            {"federation__observation_statistics": "none"},
            "federation.observation_statistics must be federated, not none",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(averaged, settings, sentence):
    with pytest.raises(fedkl.UserError) as refused:
        fedkl.start_from(config(**settings), averaged.path)
    assert str(refused.value).startswith(f"round 5 of {averaged.path} does not fit ")
    assert sentence in str(refused.value)


def test_any_round_that_is_kept_can_be_started_from(averaged):
    best = averaged.best.rounds()[-1]
    for round, expected in ((None, 5), (4, 4), (np.int64(5), 5), ("best", best)):
        started = fedkl.start_from(config(), averaged.path, round)
        assert started.pretrained.source == f"round {expected} of {averaged.path}"
    kept = sorted({4, 5, *averaged.best.rounds()})
    there = ", ".join(map(str, kept))
    with pytest.raises(fedkl.UserError, match=f"does not keep round 99; available: {there}"):
        fedkl.start_from(config(), averaged.path, 99)
    with pytest.raises(fedkl.UserError, match="must be a number or best, not 'first'"):
        fedkl.start_from(config(), averaged.path, "first")


def test_another_world_and_another_algorithm_of_the_same_sizes_fit(averaged):
    """Also one that keeps the covariance of observations, which the other run did not."""
    settings = {"world__spread": 0.5, "federation__clients": 2}
    started = fedkl.start_from(config("fedkl-anchored", **settings), averaged.path)
    kept = started.first_states[0].observations
    assert not kept.products.any()
    np.testing.assert_array_equal(
        kept.squares, newest(averaged).arrays["model.observations.squares"]
    )
    assert next(iter(Federation(started)))["round"] == 1


def test_what_clients_keep_to_themselves_begins_with_what_all_had(tmp_path, averaged):
    """So that each client can be fine-tuned by itself, also one that is selected late."""
    settings = {
        "federation__personal": "all",
        "federation__critic": "local",
        "federation__observation_statistics": "local",
        "federation__reward_statistics": "local",
        "federation__clients_per_round": 1,
        "federation__rounds": 1,
    }
    started = fedkl.start_from(config("fedavg", **settings), averaged.path)
    _, client = started.first_states
    given = newest(averaged).arrays
    np.testing.assert_array_equal(client.personal.log_std, given["model.policy.log_std"])
    np.testing.assert_array_equal(client.critic.critic.biases[0], given["model.critic.biases.0"])
    mean = client.observations.mean
    assert mean.dtype == np.float32
    np.testing.assert_array_equal(mean, given["model.observations.mean"].astype(np.float32))
    run = train(started, tmp_path / "own")
    assert len(newest(run).rows) == 1  # the others are as they began
    with pytest.raises(fedkl.UserError, match="each of its clients keeps a part of the policy to"):
        fedkl.start_from(config(), run.path)


def test_a_critic_that_no_server_has_begins_anew_and_that_is_said(tmp_path):
    one = config("fedavg", federation__critic="local", federation__rounds=1)
    run = train(one, tmp_path / "run")
    with pytest.warns(UserWarning, match="has no critic at its server: the critic begins anew"):
        started = fedkl.start_from(config(), run.path)
    fresh = config().first_states[0].critic
    assert_same_arrays(to_arrays(started.first_states[0].critic), to_arrays(fresh))


def test_a_start_that_is_missing_or_another_is_found(tmp_path, averaged):
    chosen = fedkl.start_from(config(), averaged.path)
    run = lifecycle.create(chosen, tmp_path / "run")
    assert run.config()["start_from"] == chosen.pretrained.sha256
    (file,) = (run.path / "start").iterdir()
    data = file.read_bytes()
    for damage, sentence in (
        (lambda: file.write_bytes(data[:-1] + b"\1"), "no checkpoint in .*start can be used"),
        (file.unlink, "does not have the policy that the run started from"),
    ):
        damage()
        with pytest.raises(fedkl.UserError, match=sentence):
            of_run(RunDirectory.open(run.path))
        assert [f.remedy.split(":")[0] for f in verify.check(run)] == ["put back a copy"]
    lifecycle.create(fedkl.start_from(config(), averaged.path, 4), tmp_path / "other")
    shutil.rmtree(run.path / "start")
    shutil.copytree(tmp_path / "other" / "start", run.path / "start")
    with pytest.raises(fedkl.UserError, match="has another policy than the run started from"):
        fedkl.resume(run.path)


def test_a_run_cannot_be_resumed_from_another_start(tmp_path, averaged):
    run = train(fedkl.start_from(config(federation__rounds=1), averaged.path), tmp_path / "run")
    changed = run.config()
    del changed["start_from"]
    run.replace_config(changed)
    with pytest.raises(fedkl.UserError, match=r"start_from was .* is gone"):
        fedkl.resume(run.path)
    found = verify.check(run)
    assert any("is of no use: config.toml names no policy" in finding.what for finding in found)


def test_a_config_alone_does_not_start_from_something_else_without_a_word(tmp_path, averaged):
    run = lifecycle.create(fedkl.start_from(config(), averaged.path), tmp_path / "run")
    with pytest.raises(fedkl.UserError, match="say which run to start from with --from RUN"):
        fedkl.train(fedkl.preset(run.path / "config.toml"), tmp_path / "again")
    again = fedkl.start_from(fedkl.preset(run.path / "config.toml"), averaged.path, 4)
    assert again.start_from != run.config()["start_from"]


def test_a_run_without_a_finished_round_cannot_be_started_from(tmp_path):
    run = lifecycle.create(config(), tmp_path / "run")
    with pytest.raises(fedkl.UserError, match="has no finished round to start from yet"):
        fedkl.start_from(config(), run.path)


def test_every_run_of_a_comparison_starts_from_it(tmp_path, averaged, capsys, monkeypatch):
    monkeypatch.setattr(compare_command, "_run_remaining", lambda path, place, options: None)
    five = {key: value for key, value in SMALLEST.items() if not key.startswith("world.")}
    settings = [f"{key}={value}" for key, value in (five | {"critic.minibatch": 16}).items()]
    code, _, err = call(
        capsys, "compare", "probe-point", "--algorithms", "fedkl", "fedavg", "--seeds", 2,
        "--references", "alone", "--from", averaged.path, "--run", tmp_path / "several",
        "--set", *settings,
    )  # fmt: skip
    assert (code, err) == (0, "")
    runs = [run for run in (tmp_path / "several").iterdir() if run.is_dir()]
    assert len(runs) == 6
    given = newest(averaged).arrays["model.policy.log_std"]
    for run in runs:
        model, client = of_run(RunDirectory.open(run)).first_states
        policy = model.policy if client.personal is None else client.personal
        np.testing.assert_array_equal(policy.log_std, given)


def test_what_is_added_to_a_comparison_starts_from_where_its_runs_started(
    tmp_path, averaged, capsys, monkeypatch
):
    monkeypatch.setattr(compare_command, "_run_remaining", lambda path, place, options: None)
    path, settings = tmp_path / "several", [f"{key}={value}" for key, value in SMALLEST.items()]
    settings = [text for text in settings if not text.startswith(("world.", "federation.rounds"))]
    start = ["--from", averaged.path]
    made = ["--algorithms", "fedavg", "--seeds", 1, "--set", *settings, "--run", path, *start]
    assert call(capsys, "compare", "probe-point", *made)[0] == 0
    more = ["--algorithms", "fedkl", "--seeds", 2, "--run", path, "--add"]
    code, _, err = call(capsys, "compare", "probe-point", *more, *start)
    assert (code, err.count("\n")) == (2, 1)
    assert "starts from where its runs started: leave --from out" in err
    code, _, err = call(capsys, "compare", "probe-point", *more)
    assert (code, err) == (0, "")
    starts = {of_run(RunDirectory.open(run)).start_from for run in path.iterdir() if run.is_dir()}
    assert len(starts) == 1
    assert "" not in starts


def test_a_config_that_starts_somewhere_cannot_be_tuned_from_nothing(tmp_path, averaged, capsys):
    run = lifecycle.create(fedkl.start_from(config(), averaged.path), tmp_path / "run")
    code, _, err = call(
        capsys, "tune", run.path / "config.toml", "--algorithm", "fedkl", "--seeds", 1,
        "--grid", "learner.d_local=0.1,0.2", "--run", tmp_path / "tuned",
    )  # fmt: skip
    assert code == 2
    assert "starts from a policy of another run (start_from), which is not here" in err
    assert not (tmp_path / "tuned").exists()


def test_one_client_is_fine_tuned_from_the_policy_of_all(tmp_path, averaged):
    alone = fedkl.only_client(config("fedavg", federation__rounds=2), 1)
    run = train(fedkl.start_from(alone, averaged.path), tmp_path / "one")
    assert [record["selected"] for record in run.metrics.read()] == [[1], [1]]
    assert [record["evaluated"] for record in run.metrics.read()] == [[1], [1]]
    assert [*newest(run).rows] == [1]
    before, after = fedkl.load(averaged.path), fedkl.load(run.path)
    seen = np.ones(1, np.float32)
    assert not np.array_equal(before(seen), after(seen))
