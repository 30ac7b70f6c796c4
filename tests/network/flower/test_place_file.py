"""A process that Flower starts learns from a file where its client lives."""

from pathlib import Path

import pytest

from fedkl.core.errors import UserError
from fedkl.network.client_process import ClientPlace
from fedkl.network.flower.place_file import VARIABLE, read_place, write_place
from fedkl.network.signatures import Verifier


@pytest.mark.parametrize(
    "place",
    [
        ClientPlace(Path("/d"), 3),
        ClientPlace(Path("/d"), 0, Path("/w.toml"), (Path("/a.py"), Path("/b.py")), 17),
    ],
)
@pytest.mark.parametrize("verifier", [None, Verifier(Path("/ca.crt"), b"\1\2")])
def test_what_is_written_is_read_back(tmp_path, monkeypatch, place, verifier):
    path = tmp_path / "place.json"
    path.write_text("old")
    path.chmod(0o644)
    write_place(path, place, verifier)
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv(VARIABLE, str(path))
    assert read_place() == (place, verifier)


def test_paths_do_not_depend_on_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_place(tmp_path / "p", ClientPlace(Path("d"), 0, Path("w.toml"), (Path("a.py"),)), None)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "p"))
    monkeypatch.chdir("/")
    assert read_place()[0] == ClientPlace(
        tmp_path / "d", 0, tmp_path / "w.toml", (tmp_path / "a.py",)
    )


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"directory": 1}'])
def test_what_cannot_be_read_is_said(tmp_path, monkeypatch, text):
    if text is not None:
        (tmp_path / "p").write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "p"))
    with pytest.raises(UserError, match="cannot be read"):
        read_place()


def test_without_a_file_there_is_no_place(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UserError, match="names no file"):
        read_place()
