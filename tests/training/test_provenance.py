"""Where checkpoints come from: what is compared, refused, accepted and written down."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from finished_runs import finish
from safetensors import safe_open

import fedkl
from fedkl.training import lifecycle, provenance
from fedkl.training import origin as origins
from fedkl.training.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_compilation")

PLUGIN = """
import fedkl

@fedkl.register_algorithm
class Mine(fedkl.Algorithm):
    name = "mine-of-{name}"
    summary = "of my own"
"""


def silent(_):
    pass


def loud(sentence):
    pytest.fail(f"unexpected: {sentence}")


def edit(run, old, new):
    file = run.path / "config.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two rounds that nobody changes."""
    return finish(tmp_path_factory.mktemp("a") / "run")


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it."""
    shutil.copytree(finished.path, tmp_path / "run")
    return RunDirectory.open(tmp_path / "run")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("seed = 0", "seed = 1", "seed was 0, is 1"),
        ("learning_rate = 0.05", "learning_rate = 0.04", r"learner.learning_rate was 0.05, is 0.0"),
        ("d_global = 0.6", "d_global = 0.7", r"algorithm.d_global was 0.6, is 0.7"),
        ("centre = 0.5", "centre = 0.4", r"world.centre was 0.5, is 0.4"),
        ("quorum = 1\n", "", "federation.quorum was 1, is gone"),
    ],
)
def test_a_changed_setting_is_refused_and_named(run, old, new, named):
    edit(run, old, new)
    for do in (
        lambda: lifecycle.load(run, loud),
        lambda: lifecycle.run_remaining(run, silent, loud),
    ):
        with pytest.raises(fedkl.UserError, match=named) as caught:
            do()
        assert "\n" not in str(caught.value)


def test_a_policy_of_another_config_is_not_loaded_without_a_word(run):
    policy = fedkl.load(run.path)
    edit(run, "observation_clip = 5.0", "observation_clip = 0.1")
    with pytest.raises(fedkl.UserError, match=r"observation_clip was 5.0, is 0.1; put it back"):
        fedkl.load(run.path)
    far = 5.0 * np.ones(policy.spaces.observation_size)
    accepted = fedkl.load(run.path, accept_changes=True)
    assert not np.allclose(accepted(far), policy(far))


def test_the_best_round_is_compared_like_any_other(tmp_path):
    run = finish(tmp_path / "best", settings={"checkpoint.keep_best": True})
    best = lifecycle.load(run, loud, best=True)
    assert best.state.round == run.summary()["best_round"]
    edit(run, "seed = 0", "seed = 1")
    with pytest.raises(fedkl.UserError, match="seed was 0, is 1"):
        lifecycle.load(run, loud, best=True)
    with pytest.raises(fedkl.UserError, match="seed was 0, is 1"):
        fedkl.load(run.path, best=True)
    assert lifecycle.load(run, silent, best=True, accept=True).state.round == best.state.round


def test_many_changes_are_named_in_one_short_sentence(run):
    edit(run, "0.0", "0.1")
    with pytest.raises(fedkl.UserError, match=r"; and \d+ more; ") as caught:
        lifecycle.load(run, loud)
    assert len(str(caught.value)) < 600


def test_more_rounds_are_no_change_but_said(run):
    edit(run, "rounds = 2", "rounds = 3")
    said = []
    lifecycle.run_remaining(run, silent, said.append)
    assert said == ["federation.rounds was 2, is 3"]
    assert run.summary()["rounds"] == 3
    _, longer = run.summary()["history"]
    assert (longer["round"], longer["changes"]) == (2, ["federation.rounds was 2, is 3"])


def test_an_accepted_change_is_written_down_for_ever(run):
    edit(run, "learning_rate = 0.05", "learning_rate = 0.04")
    edit(run, "rounds = 2", "rounds = 3")
    said = []
    lifecycle.run_remaining(run, silent, said.append, accept=True)
    assert "accepted from round 2 on: learner.learning_rate was 0.05, is 0.04" in said
    first, second = run.summary()["history"]
    assert (first["round"], first["changes"]) == (0, [])
    assert (second["round"], second["changes"]) == (
        2, ["learner.learning_rate was 0.05, is 0.04", "federation.rounds was 2, is 3"],
    )  # fmt: skip
    lifecycle.load(run, loud)  # now it is the run's own
    edit(run, "rounds = 3", "rounds = 4")
    lifecycle.run_remaining(run, silent, silent)
    assert run.summary()["history"][:2] == [first, second]


def test_checkpoints_of_another_run_are_refused(run, tmp_path):
    other = finish(tmp_path / "other", 3, {"evaluation.episodes": 3})
    shutil.rmtree(run.path / "checkpoints")
    shutil.copytree(other.path / "checkpoints", run.path / "checkpoints")
    with pytest.raises(fedkl.UserError, match=r"episodes was 3, is 1; seed was 3, is 0"):
        lifecycle.load(run, loud)


def test_another_version_is_said_and_written_down_but_not_refused(run, monkeypatch):
    newer = provenance.versions() | {"jax": "99.0"}
    monkeypatch.setattr(provenance, "versions", lambda: newer)
    edit(run, "rounds = 2", "rounds = 3")
    said = []
    lifecycle.run_remaining(run, silent, said.append)
    assert any("jax was" in sentence and "is 99.0" in sentence for sentence in said)
    assert [entry["versions"]["jax"] == "99.0" for entry in run.summary()["history"]] == [
        False, True,
    ]  # fmt: skip


def test_params_that_are_drawn_differently_are_refused(run, monkeypatch):
    monkeypatch.setattr(provenance, "_params", lambda config: "other")
    with pytest.raises(fedkl.UserError, match="clients' worlds are drawn differently"):
        lifecycle.load(run, loud)


def with_plugin(folder: Path, name: str) -> tuple[Path, fedkl.Config]:
    plugin = folder / f"{name}.py"
    plugin.write_text(PLUGIN.format(name=name))
    settings = {"federation.rounds": 1, "learner.iterations": 1, "learner.steps": 16}
    return plugin, fedkl.preset("probe-point", f"mine-of-{name}", set=settings, plugins=[plugin])


def test_an_edited_plugin_is_refused_and_one_that_moved_is_not(tmp_path):
    plugin, config = with_plugin(tmp_path, "edited")
    run = lifecycle.create(config, tmp_path / "run")
    lifecycle.run_remaining(run, silent, loud)
    moved = tmp_path / "elsewhere" / plugin.name
    moved.parent.mkdir()
    shutil.move(plugin, moved)
    edit(run, str(plugin), str(moved))
    federation = fedkl.Federation(config)
    lifecycle.load(run, loud, federation)
    moved.write_text(moved.read_text() + "# another line\n")
    with pytest.raises(fedkl.UserError, match=r"plugins are not as they were \(edited\.py\)"):
        lifecycle.load(run, loud, federation)


def test_a_run_with_a_plugin_that_nobody_agreed_to_is_not_loaded(tmp_path, monkeypatch):
    plugin, config = with_plugin(tmp_path, "stranger")
    run = lifecycle.create(config, tmp_path / "run")
    lifecycle.run_remaining(run, silent, loud)
    lifecycle.load(run, loud)  # whoever made it has agreed
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody else"))
    with pytest.raises(fedkl.UserError, match=f"have not agreed to: {plugin}.*--trust-plugins"):
        lifecycle.load(run, loud)


def test_a_run_of_an_older_fedkl_is_read_with_one_warning(run):
    from fedkl.training import checkpoint_files

    for file in checkpoint_files.find(run.path / "checkpoints"):
        contents = checkpoint_files.read(file)
        rows = checkpoint_files.stacked(
            {n: contents.row(i) for i, n in enumerate(contents.numbers)},
            contents.numbers,
            checkpoint_files.layout_of(contents.row(0)),
        )
        file.path.unlink()
        checkpoint_files.write(file.path.parent, file.round, contents.arrays, rows, None, {})
    edit(run, "learning_rate = 0.05", "learning_rate = 0.04")
    said = []
    lifecycle.load(run, said.append)
    assert len(said) == 1
    assert "wrote down no origin" in said[0]


def test_any_reader_of_safetensors_shows_the_origin(run):
    newest = max((run.path / "checkpoints").iterdir())
    with safe_open(newest, "numpy") as file:
        metadata = file.metadata()
    assert metadata["round"] == "2"
    origin = origins.decode({k: v for k, v in metadata.items() if k != "round"})
    assert origin.config["learner.learning_rate"] == "0.05"
    assert "federation.rounds" not in origin.config
    assert origin.history[0]["versions"].keys() >= {"fedkl", "jax", "numpy", "python"}


def test_a_checkpoint_under_the_name_of_another_round_is_passed_over(run):
    newest = max((run.path / "checkpoints").iterdir())
    newest.rename(newest.with_name(newest.name.replace("000002", "000007")))
    said = []
    federation = lifecycle.load(run, said.append)
    assert federation.state.round == 1
    assert any("it is of round 2, not of the one in its name" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", ()),
        ("[" * 5000, ()),
        ('{"config": 3}', ()),
        ("[3]", ()),
        ("null", ()),
        ("true", ()),
        ("[]", ("plugins", "history")),
        ("{}", ("config",)),
        ("3", ("rounds",)),
        ('"x"', ("params", "log")),
    ],
)
def test_an_origin_that_makes_no_sense_is_refused(run, text, allowed):
    saved = run.checkpoints.latest(loud).origin
    for name in saved:
        if name in allowed:
            assert origins.decode({**saved, name: text}) is not None
            continue
        with pytest.raises(ValueError, match="origin is damaged"):
            origins.decode({**saved, name: text})
    assert origins.decode({}) is None


def test_a_checkpoint_whose_origin_makes_no_sense_is_passed_over(run):
    saved = run.checkpoints.latest(loud)
    origin = {**saved.origin, "config": "[]"}
    run.checkpoints.drop_after(1)
    run.checkpoints.save(2, saved.arrays, saved.rows, origin=origin)
    for do in (lifecycle.load, lambda run, warn: lifecycle.run_remaining(run, silent, warn)):
        said = []
        do(RunDirectory.open(run.path), said.append)
        assert any("origin is damaged), so that of round 1 is used" in one for one in said)


def test_values_too_long_for_a_sentence_are_kept_as_checksums():
    origin = provenance.origin_of(
        {"world": {"clients": {"gravity": list(range(1000))}}, "seed": 1},
        fedkl.preset("probe-point"),
    )
    assert origin.config["seed"] == "1"
    assert origin.config["world.clients"].startswith("sha256:")
