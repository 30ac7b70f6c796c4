"""The road: its lengths, its drawing, its cache, and files that are not one."""

import math
import os
import tempfile
from importlib import metadata

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.figure_eight import network as networks

RING = 141.37  # 3 pi R / 2


@pytest.fixture(scope="module")
def road():
    return networks.figure_eight()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedkl" / "networks"


def test_the_loop_has_the_known_lanes_in_driving_order(road):
    assert [(lane.edge, lane.length, lane.internal) for lane in road.lanes] == [
        ("bottom", 30.0, False),
        (":center_1", 9.4, True),
        ("top", 30.0, False),
        (":top_0", 0.1, True),
        ("upper_ring", RING, False),
        (":right_0", 0.1, True),
        ("right", 30.0, False),
        (":center_0", 9.4, True),
        ("left", 30.0, False),
        (":left_0", 0.1, True),
        ("lower_ring", RING, False),
        (":bottom_0", 0.1, True),
    ]
    assert math.isclose(road.length, 421.94, abs_tol=1e-9)


def test_lanes_follow_one_another_without_a_gap(road):
    starts = [lane.start for lane in road.lanes]
    ends = [lane.start + lane.length for lane in road.lanes]
    assert starts[0] == 0
    assert starts[1:] == pytest.approx(ends[:-1])
    assert road.coordinate("top", 28.767) == pytest.approx(68.167)


def test_the_drawing_is_a_closed_eight_that_crosses_itself_in_the_middle(road):
    x = np.linspace(0, road.length, 2000)
    points = road.points(x)
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    # No jumps; the drawing is as long as the road but for the width of a lane here and there.
    assert steps.max() < 0.5
    assert steps.sum() == pytest.approx(road.length, rel=0.06)
    np.testing.assert_allclose(points[0], points[-1], atol=2)
    # Both middles of the crossing are the same place.
    np.testing.assert_allclose(*road.points(np.array([34.7, 245.67])), atol=3)
    np.testing.assert_allclose(road.points(x), road.points(x + 3 * road.length), atol=1e-6)


def test_a_kept_network_is_used_again(cache, monkeypatch):
    first = networks.figure_eight()
    assert [first.path] == list(cache.iterdir())
    monkeypatch.setattr(networks, "_generate", lambda: pytest.fail("it is there already"))
    assert networks.figure_eight().lanes[4].length == first.lanes[4].length


@pytest.mark.parametrize("spoil", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b"\xff\0"])
def test_a_spoilt_copy_is_made_again(cache, spoil):
    path = networks.figure_eight().path
    whole = path.read_bytes()
    path.write_bytes(spoil(whole))
    assert networks.figure_eight().length == pytest.approx(421.94)
    assert len(path.read_bytes()) == pytest.approx(len(whole), abs=50)  # it holds a date


def test_where_the_cache_cannot_be_written_a_temporary_folder_has_the_network(
    tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert networks.figure_eight().path.is_relative_to(tmp_path / f"fedkl-{os.getuid()}" / "cache")


def changed(old, new):
    return lambda text: text.replace(old, new)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: "", "no element found"),
        (lambda text: "this is no XML", "syntax error"),
        (lambda text: text[:2000], "unclosed token"),
        (lambda text: "<net/>", "it has no edge bottom"),
        (changed("UTF-8", "nonsense"), "unknown encoding"),
        (changed('<edge id="upper_ring"', '<edge id="other"'), "it has no edge upper_ring"),
        (changed('from="bottom" to="top"', 'from="bottom" to="left"'), "nothing leads from bottom"),
        (changed('length="30.00"', 'length="long"'), "could not convert string to float"),
        (changed('<lane id="top_0"', '<line id="top_0"'), "edge top has 0 lanes"),
        (changed(" shape=", " form="), "shape is missing"),
    ],
)
def test_what_is_no_network_is_answered_with_a_sentence(road, tmp_path, change, sentence):
    path = tmp_path / "mine.net.xml"
    path.write_text(change(road.path.read_text()))
    with pytest.raises(UserError) as caught:
        networks.read(path)
    assert str(caught.value).startswith(f"{path} is not the network of a figure-eight: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*gone\.xml: it does not exist"):
        networks.read(tmp_path / "gone.xml")
    with pytest.raises(UserError, match=r"cannot read .*: it is a directory"):
        networks.read(tmp_path)


def test_a_missing_sumo_is_answered_with_what_to_install(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(networks.metadata, "version", version)
    with pytest.raises(UserError, match=r"needs SUMO.*\.\[sumo\]"):
        networks.figure_eight()


def test_a_netconvert_that_fails_is_quoted(cache, monkeypatch):
    monkeypatch.setattr(networks, "_description", lambda: {"node-files": "<nodes/>"})
    with pytest.raises(UserError, match=r"SUMO's netconvert failed: .+"):
        networks.figure_eight()
