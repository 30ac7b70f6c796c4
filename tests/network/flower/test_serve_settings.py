"""How a run is served is kept beside it."""

import os
from pathlib import Path

import pytest

from fedkl.core.errors import UserError
from fedkl.network.flower.serve_settings import ServeSettings
from fedkl.training.directory import SERVING, is_served

NAME = "a" * 32


def made(keys=None):
    return ServeSettings("10.0.0.1", 9092, keys, 0, False, 300.0, NAME)


@pytest.mark.parametrize("keys", [None, Path("/k")])
def test_what_was_written_is_read(tmp_path, keys):
    made(keys).write(tmp_path)
    assert ServeSettings.read(tmp_path) == made(keys)


def test_keys_are_found_from_wherever_the_run_is_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made(Path("k")).write(tmp_path)
    assert ServeSettings.read(tmp_path).keys == tmp_path / "k"


WHOLE = f"""host = "a"
port = 1
keys = ""
local = 0
attached = false
wait = 2.5
federation = "{NAME}"
"""


def test_a_whole_file_is_read(tmp_path):
    (tmp_path / SERVING).write_text(WHOLE)
    assert ServeSettings.read(tmp_path) == ServeSettings("a", 1, None, 0, False, 2.5, NAME)


@pytest.mark.parametrize(
    "text",
    [
        "host = 3",
        "".join(f"k{n} = 1\n" for n in range(10_000)),
        WHOLE.replace("port = 1", 'port = "b"'),
        WHOLE.replace("port = 1", "port = 65536"),
        WHOLE.replace("port = 1", f"port = {'[' * 100}{']' * 100}"),
        WHOLE.replace(NAME, "../../etc"),
        WHOLE.replace("local = 0", "local = true"),
        WHOLE.replace("local = 0", "local = -1"),
        WHOLE.replace("local = 0", "local = 3"),
        WHOLE.replace("wait = 2.5", "wait = 2"),
        WHOLE.replace("attached = false\n", ""),
        WHOLE + "more = 1\n",
    ],
)
def test_a_damaged_file_is_answered_with_a_sentence(tmp_path, text):
    (tmp_path / SERVING).write_text(text)
    with pytest.raises(UserError, match=r"serving.toml is damaged: ") as caught:
        ServeSettings.read(tmp_path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["host = ", "x = " + "[" * 100_000, ".".join("a" * 20_000)])
def test_what_is_no_toml_is_answered_like_any_other_file(tmp_path, text):
    (tmp_path / SERVING).write_text(text)
    with pytest.raises(UserError, match=r"serving.toml is not valid TOML: "):
        ServeSettings.read(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / SERVING)
    with pytest.raises(UserError, match="is not an ordinary file"):
        ServeSettings.read(tmp_path)


def test_clients_on_this_machine_are_served_to_nobody_else(tmp_path):
    local = ServeSettings("127.0.0.1", 0, None, 3, False, 300.0, NAME)
    local.write(tmp_path)
    assert ServeSettings.read(tmp_path) == local
    local._replace(host="0.0.0.0").write(tmp_path)
    with pytest.raises(UserError, match="is damaged: local is 3"):
        ServeSettings.read(tmp_path)


def test_a_run_is_known_by_that_file(tmp_path):
    assert not is_served(tmp_path)
    made().write(tmp_path)
    assert is_served(tmp_path)
