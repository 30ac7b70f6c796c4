"""Videos of frames, written by the ffmpeg that comes with imageio-ffmpeg.

We run it ourselves, as imageio-ffmpeg's own writer hides whether it succeeded: on a full disk it
would leave half a video and say nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.drawing.canvas import Frame, require_pillow
from fedkl.io.files import explain_os_errors, require_writable

SUFFIXES = (".mp4", ".gif")

# Browsers slow a GIF down whose frames last less than two hundredths of a second.
_GIF_FPS = 50
LARGEST_GIF = 2_000_000
"""Bytes; pages that show a larger one are slow to open."""
_SMALLER = ((1, 1), (2, 1), (3, 1), (3, 0.75), (4, 0.6), (6, 0.5), (8, 0.4), (12, 0.3))
"""Every so many frames, and the share of the size; the last is taken whatever it weighs."""
_H264 = (
    *("-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart"),
    # Without these, players guess from the size what the colours mean.
    *("-vf", "scale=out_color_matrix=bt709:out_range=tv", "-colorspace", "bt709"),
    *("-color_primaries", "bt709", "-color_trc", "bt709"),
)


def check_target(path: Path) -> None:
    """Check, before anything costs time, that a video can be written to a path.

    Raises:
        UserError: it is neither an mp4 nor a gif, its folder is missing or closed to us, or the
            packages that draw and write videos are not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"a video is a file that ends in .mp4 or .gif, and {path} does not")
    require_writable(path)
    require_pillow()
    _ffmpeg()


def write_video(path: Path, frames: Iterable[Frame], fps: float) -> None:
    """Write a video, frame by frame as they come; whatever happens, it is whole or not there.

    Args:
        path: ends in .mp4 (H.264, which every browser plays) or .gif (which plays forever, and has
            fewer and smaller frames where it would exceed two megabytes).
        frames: RGB pictures of one size, even in width and height.
        fps: frames per second. A GIF cannot show more than 50: it then leaves out some, evenly.

    Raises:
        UserError: `check_target` refuses the path, or writing failed.
    """
    check_target(path)
    with explain_os_errors("write", path):
        # Beside the target, because a rename is atomic only within one file system.
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        video = folder / f"video{path.suffix.lower()}"
        try:
            if video.suffix == ".mp4":
                _run_on_frames(frames, fps, [*_H264, str(video)])
            else:
                _write_gif(video, frames, fps)
        except _FfmpegError as error:
            raise UserError(f"cannot write {path}: {error}") from error
        with explain_os_errors("write", path):
            os.replace(video, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _FfmpegError(Exception):
    """Says how it ended."""


def _write_gif(video: Path, frames: Iterable[Frame], fps: float) -> None:
    """Write a GIF; its best 256 colours are known only at the end, so frames wait on disk,
    losslessly.

    What is too large is written again with fewer frames of the same length in all, then smaller.
    """
    kept, palette = str(video.with_name("frames.mkv")), str(video.with_name("palette.png"))
    graph = f"fps={min(fps, _GIF_FPS)},split[frames][all];[all]palettegen[palette]"
    keep = ["-map", "[frames]", "-c:v", "ffv1", kept]
    _run_on_frames(
        frames, fps, ["-filter_complex", graph, *keep, "-map", "[palette]", "-update", "1", palette]
    )
    use = "paletteuse=dither=none:diff_mode=rectangle"
    for every, scale in _SMALLER:
        shown = f"fps={min(fps, _GIF_FPS) / every},scale=iw*{scale}:-1:flags=area[small]"
        options = ["-y", "-lavfi", f"{shown};[small][1:v]{use}", str(video)]
        _run(["-i", kept, "-i", palette, *options], [])
        if video.stat().st_size < LARGEST_GIF:
            return


def _run_on_frames(frames: Iterable[Frame], fps: float, options: list[str]) -> None:
    following = iter(frames)
    first = next(following, None)
    if first is None:
        raise ValueError("a video has at least one frame")
    height, width, _ = first.shape
    if width % 2 or height % 2:
        raise ValueError(f"the codecs need even sizes, and the frames are {width}x{height}")
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    _run([*raw, "-framerate", str(fps), "-i", "-", *options], _raw(chain([first], following)))


def _raw(frames: Iterable[Frame]) -> Iterator[bytes]:
    shape = None
    for frame in frames:
        shape = shape or frame.shape
        if frame.shape != shape or frame.dtype != "uint8":
            raise ValueError(f"a frame of {frame.dtype} {frame.shape} among those of {shape}")
        yield frame.tobytes()


def _run(options: list[str], frames: Iterable[bytes]) -> None:
    """Run ffmpeg to its end; kill it if a frame does not come."""
    # Its messages go to a file: a pipe that is not read while frames are written could fill up.
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            [_ffmpeg(), "-v", "error", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            start_new_session=True,  # Ctrl-C is for us, who then end it
        )
        assert process.stdin is not None
        try:
            for frame in frames:
                try:
                    process.stdin.write(frame)
                except BrokenPipeError:
                    break  # it ended early; its exit code and its messages tell why
            process.communicate()
        finally:
            process.kill()
            process.communicate()
        if process.returncode:
            messages.seek(0)
            said = messages.read().decode(errors="replace").strip()
            # The first line is the cause; each starts with the part of ffmpeg that speaks.
            cause = re.sub(r"^\[[^]]*\] *", "", said.partition("\n")[0])
            code = f"ffmpeg ended with code {process.returncode}"
            raise _FfmpegError(f"ffmpeg says: {cause}" if cause else code)


def _ffmpeg() -> str:
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise MissingPackageError("writing videos needs imageio-ffmpeg", "video") from error
