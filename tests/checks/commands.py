"""Commands called from tests."""

import pytest

from fedkl import cli


def call(capsys, *arguments):
    """Runs a command in this process: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as exit_:
        cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return exit_.value.code, out, err
