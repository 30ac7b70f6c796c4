"""Flower runs what anybody submits; our clients and our server run our own app and no other."""

import contextlib
import importlib
import io
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from fedkl.network.flower import app_allowlist, entry
from fedkl.network.flower.app_allowlist import ForeignAppError, check
from fedkl.network.flower.environment import flower_environment

pytest.importorskip("flwr")


def packed(*files):
    """An app as Flower packs it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in (*files, (".info/CONTENT", "")):
            file.writestr(name, content)
    return data.getvalue()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("app")
    flwr = Path(sys.executable).with_name("flwr")
    environment = flower_environment(folder / "home")
    command = [flwr, "build", "--app", app_allowlist.APP.parent]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    (app,) = folder.glob("*.fab")
    return app.read_bytes()


@pytest.fixture
def project():
    return app_allowlist.APP.read_text()


def test_our_app_as_flower_packs_it_is_ours(ours, project):
    check(ours)
    check(packed(("pyproject.toml", project)))
    # Flower writes the settings anew, without comments.
    check(packed(("pyproject.toml", "# another comment\n" + project)))


@pytest.mark.parametrize("name", ["server.py", "fedkl/__init__.py", "../x.py", "pyproject.toml.py"])
def test_an_app_that_brings_code_is_not_run(project, name):
    app = packed(("pyproject.toml", project), (name, "print('hello')"))
    with pytest.raises(ForeignAppError, match="brings files along"):
        check(app)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_settings_that_are_there_twice_are_not_believed(project):
    app = packed(("pyproject.toml", project.replace("relay", "x")), ("pyproject.toml", project))
    with pytest.raises(ForeignAppError, match="brings files along"):
        check(app)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fedkl.network.flower.client_app:app", "antigravity:app"),
        ("fedkl.network.flower.relay:app", "antigravity:app"),
        ('dependencies = ["', 'dependencies = ["malware", "'),
        ("[tool.flwr.app.config]", "[tool.flwr.app.config]\nmore = 1"),
    ],
)
def test_an_app_with_other_settings_is_not_run(project, old, new):
    assert old in project
    with pytest.raises(ForeignAppError, match="not those of this fedkl"):
        check(packed(("pyproject.toml", project.replace(old, new))))


@pytest.mark.parametrize(
    "app", [b"", b"rubbish", packed(("pyproject.toml", b"\xff")), packed(("pyproject.toml", "[x"))]
)
def test_rubbish_is_not_run(app):
    with pytest.raises(ForeignAppError, match="cannot be read"):
        check(app)


def test_a_damaged_app_is_not_run_or_is_the_same(ours, project):
    for place in range(0, len(ours), 5):
        damaged = bytes(b ^ 0xFF if i == place else b for i, b in enumerate(ours))
        with contextlib.suppress(ForeignAppError):
            check(damaged)
            with zipfile.ZipFile(io.BytesIO(damaged)) as file:
                found = tomllib.loads(file.read("pyproject.toml").decode())
            assert found == tomllib.loads(project)


def test_an_app_that_is_larger_than_it_looks_is_not_unpacked(project):
    with pytest.raises(ForeignAppError, match="too long"):
        check(packed(("pyproject.toml", "#" * (app_allowlist.MAX_APP_BYTES + 1))))
    with pytest.raises(ForeignAppError, match=r"it has \d+ bytes"):
        check(bytes(app_allowlist.MAX_APP_BYTES + 1))


@pytest.mark.parametrize("command", list(app_allowlist.MODULES))
def test_a_guarded_command_installs_our_app_and_no_other(monkeypatch, capsys, ours, command):
    module = importlib.import_module(app_allowlist.MODULES[command])
    installed = []
    monkeypatch.setattr(module, app_allowlist.INSTALL, lambda app, **options: installed.append(app))
    app_allowlist.guard(command)
    with pytest.raises(ForeignAppError):
        module.install_from_fab(packed(("pyproject.toml", ""), ("x.py", "")), skip_prompt=True)
    assert installed == []
    assert "fedkl: an app that is not fedkl's was not run: it brings" in capsys.readouterr().out
    module.install_from_fab(ours, skip_prompt=True)
    assert installed == [ours]


@pytest.mark.parametrize("command", list(app_allowlist.MODULES))
def test_a_flower_that_would_not_ask_us_is_not_used(monkeypatch, command):
    module = importlib.import_module(app_allowlist.MODULES[command])
    monkeypatch.delattr(module, app_allowlist.INSTALL)
    with pytest.raises(RuntimeError, match="cannot be kept from foreign apps"):
        app_allowlist.guard(command)


def test_a_guarded_command_is_the_only_one_on_its_path(tmp_path):
    folder = entry.write_command(tmp_path / "bin", "flwr-serverapp")
    assert [path.name for path in folder.iterdir()] == ["flwr-serverapp"]
    environment = flower_environment(tmp_path) | {"PATH": str(folder)}
    done = subprocess.run(
        ["flwr-serverapp", "--help"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "flwr-serverapp" in done.stdout
    for command in ("flwr-agentapp", "flwr-simulation"):
        with pytest.raises(FileNotFoundError):
            subprocess.run([command], env=environment)
