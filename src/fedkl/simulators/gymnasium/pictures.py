"""Frames of environments that render to an array, small enough to be sent and kept."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from jaxtyping import UInt8

from fedkl.core.errors import UserError
from fedkl.core.text import one_line

MODE = "rgb_array"
"""Gymnasium's word for an environment that renders to an array."""

_HEAD = struct.Struct("<HH")
_MOST_PER_SECOND = 1000
_FASTEST = 1
"""Of zlib's levels: frames have large even areas, and shrink by a hundred in any case."""


def require_frames(env: Any, who: str) -> None:
    """Check that an environment has frames to show.

    Raises:
        UserError: it has none.
    """
    modes = getattr(env, "metadata", {}).get("render_modes", [])
    if MODE not in modes:
        known = ", ".join(map(str, modes)) or "none"
        raise UserError(f"{who} cannot be drawn: it has no render mode {MODE} (available: {known})")


def frames_per_second(env: Any) -> float | None:
    """Return the rate at which an environment wants to be shown, if it says a usable one."""
    rate = getattr(env, "metadata", {}).get("render_fps")
    if isinstance(rate, int | float) and 0 < rate <= _MOST_PER_SECOND:
        return float(rate)
    return None


def render(env: Any, who: str) -> UInt8[np.ndarray, " p"]:
    """Render an environment, which was made for it, as it stands now.

    Raises:
        UserError: it cannot be rendered here.
    """
    try:
        frame = np.asarray(env.render())
    except Exception as error:
        raise UserError(f"{who} cannot be drawn here: {one_line(error)}{_hint(env)}") from error
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.size == 0:
        raise UserError(
            f"{who} cannot be drawn: it renders {frame.dtype} of shape {frame.shape}, and frames "
            "are uint8 of shape (height, width, 3)"
        )
    return packed(frame)


def packed(frame: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, " p"]:
    """Compress a frame; `unpacked` takes any zeros after it."""
    data = _HEAD.pack(*frame.shape[:2]) + zlib.compress(frame.tobytes(), _FASTEST)
    return np.frombuffer(data, np.uint8)


def unpacked(data: UInt8[np.ndarray, " p"]) -> UInt8[np.ndarray, "h w 3"]:
    """Return the frame that `packed` compressed."""
    raw = np.asarray(data).tobytes()
    height, width = _HEAD.unpack_from(raw)
    # An object: it ends where the stream does, whatever comes after.
    frame = zlib.decompressobj().decompress(raw[_HEAD.size :])
    return np.frombuffer(frame, np.uint8).reshape(height, width, 3)


def _hint(env: Any) -> str:
    if not hasattr(env.unwrapped, "mujoco_renderer"):
        return ""
    return (
        "; without a screen MuJoCo draws with EGL or OSMesa: install libegl1 or libosmesa6, and "
        "set the environment variable MUJOCO_GL to egl or osmesa"
    )
