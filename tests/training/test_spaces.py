"""What a policy sees and does is written down, and read as it was."""

import numpy as np
import pytest

import fedkl
from fedkl.simulators.spaces import Box, Numbers
from fedkl.training.spaces import FILE, Spaces, read, write

INF = float("inf")


@pytest.mark.parametrize(
    "actions",
    [
        Numbers(3),
        Numbers(4, -2, "int32"),
        Box.unlimited(2),
        Box((-INF, 0.1), (2.0, INF), (2,), "float64"),
        Box((float(np.float32(-0.4)),) * 4, (float(np.float32(0.4)),) * 4, (2, 2)),
        Box((-1.0,), (1.0,), ()),
    ],
)
def test_what_was_written_is_read(tmp_path, actions):
    write(tmp_path, Spaces(7, actions))
    assert read(tmp_path) == Spaces(7, actions)


def test_what_is_there_stays(tmp_path):
    write(tmp_path, Spaces(7, Numbers(3)))
    write(tmp_path, Spaces(8, Numbers(3)))
    assert read(tmp_path).observation_size == 7
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_what_was_edited_is_not_believed(tmp_path):
    write(tmp_path, Spaces(7, Numbers(3)))
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace(": 7", ": 8"))
    with pytest.raises(fedkl.UserError, match="does not fit its checksum: it was edited"):
        read(tmp_path)


def test_a_file_of_before_there_were_checksums_is_read(tmp_path):
    write(tmp_path, Spaces(7, Numbers(3)))
    lines = (tmp_path / FILE).read_text().splitlines()
    assert '"sha256"' in lines[-2]
    (tmp_path / FILE).write_text("\n".join([*lines[:-3], "  }", "}"]))
    assert read(tmp_path) == Spaces(7, Numbers(3))
