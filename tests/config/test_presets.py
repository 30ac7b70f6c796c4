"""Presets and config files, and what they extend; what is wrong with one is a sentence."""

import pytest

import fedkl
from fedkl.config import presets
from fedkl.training.plans import PLANS


@pytest.mark.parametrize("name", presets.summaries())
def test_every_preset_has_a_line_about_it(name):
    assert presets.summaries()[name]


def test_unknown_presets_and_algorithms_are_answered_with_those_there_are():
    with pytest.raises(fedkl.UserError, match="there is no preset 'nope'; available: acrobot"):
        fedkl.preset("nope")
    with pytest.raises(fedkl.UserError, match="there is no algorithm 'nope'; available: fedavg"):
        fedkl.preset("demo", algorithm="nope")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gymnasium:CartPole-v1", "gym:CartPole-v1"),
        ("Gym:CartPole-v1", "gym:CartPole-v1"),
        ("petting_zoo:mpe2.simple_v3", "pettingzoo:mpe2.simple_v3"),
        ("gymnasiun", "gymnasium"),
    ],
)
def test_a_shorthand_by_another_name_is_answered_with_what_is_meant(name, meant):
    with pytest.raises(
        fedkl.UserError, match=rf"^there is no preset '{name}' \(did you mean {meant}"
    ):
        fedkl.preset(name)


def test_a_file_can_build_on_a_preset_and_overrules_it(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'extends = ["reacher-iid"]\n[algorithm]\nd_global = 0.1\n[learner]\nsteps = 100\n'
    )
    mine = fedkl.preset(str(path))
    assert (mine.algorithm.d_global, mine.learner.steps, mine.learner.epochs) == (0.1, 100, 10)


def test_another_algorithm_drops_what_a_file_said_of_its_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = ["reacher-iid"]\n[algorithm]\nd_global = 0.1\n')
    assert fedkl.preset(str(path), algorithm="fedprox").algorithm.mu == 0.02


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rounds = ", "is not valid TOML"),
        ('extends = ["nope"]', "there is no preset 'nope'"),
        ("[algorithm]\nname = 3", "algorithm.name must say which algorithm"),
        ('algorithm = "fedkl"', "algorithm must be a table"),
        ('extends = "demo"', "extends must be a list of strings"),
        ("plugins = [1]", "plugins must be a list of strings"),
        ('extends = ["_nope"]', "there is no preset '_nope'"),
        ('extends = ["demo"]\nper_algorithm = 5', "per_algorithm must be a table"),
        ('extends = ["demo"]\nper_algorithm.fedkl = 5', "fedkl must be a table"),
        ('[world]\nname = "reacher"', "algorithm.name must say which algorithm"),
        ('extends = ["demo"]\ntuned_on = 5', "tuned_on must be a list, not 5"),
        ('extends = ["demo"]\ntuned_on = ["a"]', "tuned_on must be a whole number, not 'a'"),
        ('extends = ["demo"]\ntuned_on = [-1]', "tuned_on must be at least 0, not -1"),
    ],
)
def test_a_wrong_file_is_answered_with_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(fedkl.UserError, match=sentence):
        fedkl.preset(str(path))


def test_a_file_that_extends_itself_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text('extends = ["b.toml"]')
    (tmp_path / "b.toml").write_text('extends = ["a.toml"]')
    with pytest.raises(fedkl.UserError, match=r"a\.toml extends itself"):
        fedkl.preset("a.toml")


def test_what_a_file_extends_is_found_from_where_the_file_is(tmp_path, monkeypatch):
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "base.toml").write_text('extends = ["demo"]\n[learner]\nsteps = 100\n')
    (tmp_path / "a" / "deep" / "mine.toml").write_text('extends = ["../base.toml"]\n')
    monkeypatch.chdir(tmp_path)
    assert fedkl.preset("a/deep/mine.toml").learner.steps == 100


def test_a_file_that_extends_itself_by_another_path_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine.toml").write_text('extends = ["../a/mine.toml"]')
    with pytest.raises(fedkl.UserError, match=r"mine\.toml extends itself"):
        fedkl.preset(str(tmp_path / "a" / "mine.toml"))


def test_what_two_files_extend_does_not_undo_what_the_first_says(tmp_path):
    """Two tunings of one preset, put together."""
    (tmp_path / "one.toml").write_text(
        'extends = ["reacher-iid-paper"]\ntuned_on = [3, 4]\n'
        "[per_algorithm.fedkl.learner]\nd_local = 0.5\n"
    )
    (tmp_path / "two.toml").write_text(
        'extends = ["reacher-iid-paper"]\ntuned_on = [4, 5]\n'
        "[per_algorithm.fedprox.algorithm]\nmu = 0.7\n"
    )
    (tmp_path / "both.toml").write_text('extends = ["one.toml", "two.toml"]\ntuned_on = [9]\n')
    both = str(tmp_path / "both.toml")
    assert fedkl.preset("reacher-iid-paper").learner.d_local == 0.01
    assert fedkl.preset(both, "fedkl").learner.d_local == 0.5
    assert fedkl.preset(both, "fedprox").learner.d_local == 0.01
    assert fedkl.preset(both, "fedprox").algorithm.mu == 0.7
    assert fedkl.preset(both, "fedkl").tuned_on == (3, 4, 5, 9)
    assert fedkl.preset(both).mapping()["tuned_on"] == [3, 4, 5, 9]
    assert fedkl.preset("reacher-iid-paper").tuned_on == ()


def test_plugins_of_all_files_count(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("")
        (tmp_path / f"{name}.toml").write_text(f'extends = ["demo"]\nplugins = ["{name}.py"]')
    (tmp_path / "both.toml").write_text('extends = ["one.toml", "two.toml"]')
    plugins = fedkl.preset(str(tmp_path / "both.toml")).plugins
    assert plugins == (str(tmp_path / "one.py"), str(tmp_path / "two.py"))


def test_another_world_drops_what_a_preset_said_of_its_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = ["reacher-both"]\n[world]\nname = "probe-point"\n')
    assert fedkl.preset(str(path)).world.name == "probe-point"


def test_a_missing_file_is_named():
    with pytest.raises(fedkl.UserError, match=r"there is no config file 'gone.toml'"):
        fedkl.preset("gone.toml")


def test_the_directory_of_a_run_is_no_preset_and_how_to_resume_is_said(tmp_path):
    (tmp_path / "config.toml").touch()
    with pytest.raises(fedkl.UserError) as error:
        presets.layers(str(tmp_path))
    assert str(error.value) == (
        f"{tmp_path} is the directory of a run: `fedkl resume {tmp_path}` goes on with it, "
        "evaluate, export, heterogeneity, report and check take it as well, and "
        f"{tmp_path / 'config.toml'} in its place has its settings"
    )


def test_the_directory_of_several_runs_is_no_preset_and_how_to_add_is_said(tmp_path):
    (tmp_path / "compare.toml").touch()
    with pytest.raises(fedkl.UserError, match=r"holds several runs: `fedkl resume .* --add` adds"):
        presets.layers(str(tmp_path))


def test_every_kind_of_several_runs_is_known():
    assert {*presets._PLANS} == {*PLANS}
