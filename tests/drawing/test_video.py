"""Videos are read back; those that fail leave nothing."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image, ImageSequence

from fedkl.core.errors import UserError
from fedkl.drawing import video
from fedkl.drawing.video import LARGEST_GIF, check_target, write_video

HEIGHT, WIDTH = 48, 64


def frames(count: int):
    """A white bar wanders over blue, a pixel a frame."""
    for i in range(count):
        frame = np.full((HEIGHT, WIDTH, 3), (0, 114, 178), np.uint8)
        frame[:, i % WIDTH] = 255
        yield frame


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def children() -> set[str]:
    """The processes that we started and that still exist, dead ones included."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def read_mp4(path: Path) -> tuple[str, np.ndarray]:
    """What ffmpeg tells of the stream, and the frames."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path)]
    done = subprocess.run(
        [*command, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        capture_output=True,
        check=True,
    )
    stream = next(line for line in done.stderr.decode().split("\n") if " Video: " in line)
    return stream, np.frombuffer(done.stdout, np.uint8).reshape(-1, HEIGHT, WIDTH, 3)


def read_gif(path: Path) -> tuple[list[int], list[np.ndarray]]:
    """Delays in milliseconds, and the frames."""
    with Image.open(path) as image:
        assert image.info["loop"] == 0
        pairs = [
            (frame.info["duration"], np.array(frame.convert("RGB")))
            for frame in ImageSequence.Iterator(image)
        ]
    return [delay for delay, _ in pairs], [frame for _, frame in pairs]


def test_an_mp4_has_every_frame_at_its_size_and_speed(tmp_path):
    write_video(tmp_path / "video.mp4", frames(30), 12.5)
    stream, read = read_mp4(tmp_path / "video.mp4")
    for fact in ("h264", "yuv420p(tv, bt709", f"{WIDTH}x{HEIGHT}", " 12.50 fps"):
        assert fact in stream
    assert len(read) == 30
    assert names(tmp_path) == ["video.mp4"]


def test_an_mp4_keeps_the_colours(tmp_path):
    write_video(tmp_path / "video.mp4", frames(20), 10)
    _, read = read_mp4(tmp_path / "video.mp4")
    assert np.abs(read[10][:, 40:].astype(int) - (0, 114, 178)).mean() < 4


def test_a_gif_has_every_frame_and_loops(tmp_path):
    write_video(tmp_path / "video.gif", frames(20), 10)
    delays, read = read_gif(tmp_path / "video.gif")
    assert delays == [100] * 20
    for got, wanted in zip(read, frames(20), strict=True):
        assert np.abs(got.astype(int) - wanted).max() <= 8
    assert names(tmp_path) == ["video.gif"]


@pytest.mark.parametrize(("fps", "count", "shown"), [(30, 30, 30), (100, 100, 50), (75, 75, 50)])
def test_a_gif_plays_for_as_long_as_it_should(tmp_path, fps, count, shown):
    write_video(tmp_path / "video.gif", frames(count), fps)
    delays, read = read_gif(tmp_path / "video.gif")
    assert len(read) == shown
    assert min(delays) >= 20
    assert sum(delays) == pytest.approx(1000, abs=20)


def test_a_gif_that_would_be_heavy_has_fewer_and_smaller_frames_and_lasts_as_long(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(video, "LARGEST_GIF", LARGEST_GIF // 4)
    generator = np.random.default_rng(0)
    noise = (generator.integers(0, 256, (120, 160, 3), np.uint8) for _ in range(60))
    write_video(tmp_path / "video.gif", noise, 30)
    assert (tmp_path / "video.gif").stat().st_size < LARGEST_GIF // 4
    delays, read = read_gif(tmp_path / "video.gif")
    assert len(read) < 60
    assert sum(delays) == pytest.approx(2000, abs=300)


def test_the_suffix_may_be_written_in_capitals(tmp_path):
    write_video(tmp_path / "VIDEO.MP4", frames(3), 10)
    assert "h264" in read_mp4(tmp_path / "VIDEO.MP4")[0]


def test_frames_are_written_while_they_come(tmp_path):
    """So that memory does not grow with the video: only ever one frame is alive."""
    alive = []

    class Watched(np.ndarray):
        def __del__(self):
            alive.remove(id(self))

    def watched():
        for frame in frames(20):
            one = frame.view(Watched)
            alive.append(id(one))
            yield one
            del one
            # The writer may still hold the last one, and the first, which told the size.
            assert len(alive) <= 2

    write_video(tmp_path / "video.mp4", watched(), 10)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
@pytest.mark.parametrize("error", [OSError("of the simulator"), KeyboardInterrupt()])
def test_frames_that_fail_leave_no_file_and_no_process(tmp_path, suffix, error):
    path = tmp_path / f"video{suffix}"

    def broken():
        yield from frames(5)
        raise error

    before = children()
    with pytest.raises(type(error)) as raised:
        write_video(path, broken(), 10)
    assert raised.value is error
    assert names(tmp_path) == []
    assert children() == before


def test_a_failed_recording_leaves_the_old_video(tmp_path):
    path = tmp_path / "video.mp4"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="among those"):
        write_video(path, [*frames(2), np.zeros((2, 2, 3), np.uint8)], 10)
    assert path.read_bytes() == b"old"
    write_video(path, frames(2), 10)
    assert len(read_mp4(path)[1]) == 2


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo '[out#0/mp4 @ 0xd0] No space left on device' >&2; echo done >&2; exit 1",
            "ffmpeg says: No space left on device$",
        ),
        ("kill -9 $$", "ffmpeg ended with code -9$"),
    ],
)
def test_an_ffmpeg_that_fails_is_explained(tmp_path, suffix, script, message, monkeypatch):
    fake = tmp_path / "ffmpeg"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(stat.S_IRWXU)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(fake))
    with pytest.raises(UserError, match=f"^cannot write .*{suffix}: {message}"):
        write_video(tmp_path / f"video{suffix}", frames(500), 10)
    assert names(tmp_path) == ["ffmpeg"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "at least one frame"),
        ([np.zeros((3, 4, 3), np.uint8)], "even sizes"),
        ([np.zeros((4, 4, 3))], "float64"),
    ],
)
def test_frames_that_no_codec_takes_are_refused(tmp_path, bad, message):
    with pytest.raises(ValueError, match=message):
        write_video(tmp_path / "video.mp4", bad, 10)
    assert names(tmp_path) == []


def test_a_target_that_can_be_written_passes(tmp_path):
    for name in ("a.mp4", "a.gif"):
        check_target(tmp_path / name)
    assert names(tmp_path) == []


def test_a_target_that_cannot_be_written_is_explained(tmp_path):
    (tmp_path / "folder.gif").mkdir()
    for name, message in (
        ("a.avi", r"ends in \.mp4 or \.gif"),
        ("a", r"ends in \.mp4 or \.gif"),
        ("none/a.mp4", "the folder .*none does not exist"),
        ("folder.gif", "it is a directory"),
    ):
        with pytest.raises(UserError, match=message):
            check_target(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_target_in_a_closed_folder_is_explained(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(UserError, match="permission is denied"):
        check_target(tmp_path / "a.mp4")


@pytest.mark.parametrize("package", ["PIL", "imageio_ffmpeg"])
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"\.\[video\]"):
        check_target(tmp_path / "a.mp4")
