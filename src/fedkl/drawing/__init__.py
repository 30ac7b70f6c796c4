"""Pictures of the worlds, and videos of pictures.

Everything here needs the `video` extra, and says so in a sentence where it is missing.
"""

from fedkl.drawing.canvas import Canvas
from fedkl.drawing.scenes import Scene, grid
from fedkl.drawing.video import check_target, write_video

__all__ = ["Canvas", "Scene", "check_target", "grid", "write_video"]
