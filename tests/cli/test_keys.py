"""`fedkl keys`, as a user meets it."""

import pytest
from commands import call


def test_keys_are_made_and_it_is_said_who_needs_what(tmp_path, capsys):
    folder = tmp_path / "keys"
    code, out, err = call(capsys, "keys", folder, "--clients", 2, "--host", "192.0.2.7")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"made in {folder}: 8 files"
    assert "ca.crt" in out
    assert "client-N.key" in out
    assert "PRIVATE" not in out


def test_more_clients_are_added_and_nothing_is_made_twice(tmp_path, capsys):
    folder = tmp_path / "keys"
    call(capsys, "keys", folder, "--clients", 2)
    assert call(capsys, "keys", folder, "--clients", 3)[1].startswith(f"made in {folder}: 2 files")
    code, out, _ = call(capsys, "keys", folder, "--clients", 3)
    assert (code, out) == (0, f"all keys are in {folder} already\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--clients", 0], "there must be 1 to 100000 clients, not 0"),
        (["--clients", "two"], "must be a whole number, not 'two'"),
        ([], "the following arguments are required: --clients"),
        (["--clients", 1, "--days", 0], "1 to 3650 days, not 0"),
        (["--clients", 1, "--host", "a/b"], "'a/b' is neither a host name nor an IP address"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(tmp_path, capsys, arguments, reason):
    code, _, err = call(capsys, "keys", tmp_path / "keys", *arguments)
    assert code == 2
    assert reason in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_one_sentence(tmp_path, capsys):
    (tmp_path / "keys").write_text("a file")
    code, _, err = call(capsys, "keys", tmp_path / "keys", "--clients", 1)
    assert code == 2
    assert err == f"fedkl: cannot use {tmp_path / 'keys'}: a file of that name is in the way\n"
