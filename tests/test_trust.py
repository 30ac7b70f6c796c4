"""What a config names that is code is run only if this account has agreed to it."""

import pytest

from fedkl import trust
from fedkl.errors import UserError
from fedkl.runs import RunDirectory
from fedkl.trust import UnknownCodeError


@pytest.fixture(autouse=True)
def _nothing_agreed_to(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text("x = 1")
    return path


def config(**values):
    return {"plugins": [], "world": {"name": "reacher"}} | values


def test_what_names_no_code_needs_no_agreement(tmp_path):
    trust.require(config(), tmp_path)
    trust.remember(config())
    assert not (tmp_path / "state").exists()


def test_a_plugin_is_agreed_to_as_it_is(tmp_path, plugin):
    named = config(plugins=[str(plugin)])
    with pytest.raises(UnknownCodeError, match=rf"{plugin} \(sha256 .{{16}}\).*--trust-plugins"):
        trust.require(named, tmp_path)
    trust.remember(named)
    trust.require(named, tmp_path)
    plugin.write_text("x = 2")
    with pytest.raises(UnknownCodeError):
        trust.require(named, tmp_path)


def test_a_run_is_agreed_to_by_its_directory(tmp_path, plugin):
    run = RunDirectory.create(tmp_path / "run", config(plugins=[str(plugin)]))
    trust.agree(run.path)
    trust.require(run.config(), run.path)


@pytest.mark.parametrize(
    ("world", "module"),
    [
        ({"name": "pettingzoo", "module": "theirs.evil"}, "theirs.evil"),
        ({"name": "gymnasium", "id": "theirs:Arm-v0"}, "theirs"),
        ({"name": "gymnasium", "id": "a.b:c:Arm-v0"}, "a.b:c"),
    ],
)
def test_a_module_that_a_world_is_imported_from_is_code(tmp_path, world, module):
    with pytest.raises(UnknownCodeError, match=f"agreed to: the module {module}; look at it"):
        trust.require(config(world=world), tmp_path)
    trust.remember(config(world=world))
    trust.require(config(world=world), tmp_path)


@pytest.mark.parametrize(
    "world",
    [
        {"name": "pettingzoo", "module": "pettingzoo.sisl.pursuit_v4"},
        {"name": "gymnasium", "id": "CartPole-v1"},
        {"name": "gymnasium"},
        {"name": "reacher", "module": "os"},
        3,
        {"name": 3},
    ],
)
def test_worlds_of_the_libraries_need_no_agreement(tmp_path, world):
    trust.require(config(world=world), tmp_path)


@pytest.mark.parametrize("plugins", ["theirs.py", [3], {}])
def test_plugins_that_are_no_files_are_answered_with_a_sentence(tmp_path, plugins):
    with pytest.raises(UserError, match="plugins must be a list of strings"):
        trust.require(config(plugins=plugins), tmp_path)
