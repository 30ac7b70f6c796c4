"""What a config names that is code is run only if this account has agreed to it."""

import tempfile

import pytest

from fedkl.core.errors import UserError
from fedkl.io import user_folders
from fedkl.training import plugin_consent
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import UnknownCodeError


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
    plugin_consent.require(config(), tmp_path)
    plugin_consent.remember(config())
    assert not (tmp_path / "state").exists()


def test_a_plugin_is_agreed_to_as_it_is(tmp_path, plugin):
    named = config(plugins=[str(plugin)])
    with pytest.raises(UnknownCodeError, match=rf"{plugin} \(sha256 .{{16}}\).*--trust-plugins"):
        plugin_consent.require(named, tmp_path)
    plugin_consent.remember(named)
    plugin_consent.require(named, tmp_path)
    plugin.write_text("x = 2")
    with pytest.raises(UnknownCodeError):
        plugin_consent.require(named, tmp_path)


def test_a_run_is_agreed_to_by_its_directory(tmp_path, plugin):
    run = RunDirectory.create(tmp_path / "run", config(plugins=[str(plugin)]))
    plugin_consent.agree(run.path)
    plugin_consent.require(run.config(), run.path)


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
        plugin_consent.require(config(world=world), tmp_path)
    plugin_consent.remember(config(world=world))
    plugin_consent.require(config(world=world), tmp_path)


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
    plugin_consent.require(config(world=world), tmp_path)


@pytest.mark.parametrize("plugins", ["theirs.py", [3], {}])
def test_plugins_that_are_no_files_are_answered_with_a_sentence(tmp_path, plugins):
    with pytest.raises(UserError, match="plugins must be a list of strings"):
        plugin_consent.require(config(plugins=plugins), tmp_path)


SERVED = """host = "0.0.0.0"
port = 9092
keys = ""
local = 0
attached = false
"""


def test_a_port_that_a_run_would_open_is_asked_about_like_a_plugin(tmp_path):
    run = RunDirectory.create(tmp_path / "run", config()).path
    plugin_consent.require_served(run)
    (run / "serving.toml").write_text(SERVED)
    asked = r"a port that is opened at 0.0.0.0:9092, without TLS and keys; .*--trust-plugins"
    with pytest.raises(UnknownCodeError, match=asked):
        plugin_consent.require_served(run)
    plugin_consent.agree(run)
    plugin_consent.require_served(run)
    (run / "serving.toml").write_text(SERVED.replace("9092", "9093"))
    with pytest.raises(UnknownCodeError, match=r"at 0\.0\.0\.0:9093"):
        plugin_consent.require_served(run)
    keys = SERVED.replace('keys = ""', 'keys = "/theirs"').replace("false", "true")
    (run / "serving.toml").write_text(keys)
    asked = r"the SuperLink at 0.0.0.0:9092, with the keys in /theirs"
    with pytest.raises(UnknownCodeError, match=asked):
        plugin_consent.require_served(run)


def test_clients_on_this_machine_need_no_agreement(tmp_path):
    (tmp_path / "serving.toml").write_text(SERVED.replace("local = 0", "local = 3"))
    plugin_consent.require_served(tmp_path)


def test_without_a_home_agreement_is_kept_for_this_user_as_long_as_temporary_files_are(
    tmp_path, monkeypatch, plugin
):
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    named = config(plugins=[str(plugin)])
    plugin_consent.remember(named)
    plugin_consent.require(named, tmp_path)


def test_what_was_agreed_to_holds_when_the_home_cannot_be_written_any_more(
    tmp_path, monkeypatch, plugin
):
    named = config(plugins=[str(plugin)])
    plugin_consent.remember(named)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(user_folders, "_problem", lambda folder, mode: "it is read-only")
    plugin_consent.require(named, tmp_path)
