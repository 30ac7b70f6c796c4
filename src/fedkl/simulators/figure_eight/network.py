"""The figure-eight road: made with SUMO's netconvert, kept, and read back.

Two straight roads cross in the middle; two three-quarter circles join their ends to one loop.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.io.files import explain_os_errors, write_atomically
from fedkl.io.user_folders import cache_folder

RADIUS = 30.0
SPEED_LIMIT = 30.0
LOOP = ("bottom", "top", "upper_ring", "right", "left", "lower_ring")
"""The edges in the order in which a vehicle drives them."""
CROSSINGS = ("bottom", "right")
"""Those at whose end the roads cross; at the others' one road goes on."""

NEEDS = ("the figure-eight needs SUMO", "sumo")
# The road from the bottom has the right of way at the crossing.
_YIELDS, _GOES_FIRST = 46, 78
_CROSSING_RADIUS = 3.1


@dataclass(frozen=True)
class Lane:
    """A stretch of the loop."""

    edge: str
    start: float
    """Its start, in metres along the loop."""
    length: float
    internal: bool
    """True if it lies inside a junction."""
    shape: Float[np.ndarray, "p 2"]


@dataclass(frozen=True)
class Network:
    """A network file, and the loop that it holds."""

    path: Path
    lanes: tuple[Lane, ...]
    """In driving order, from the start of `bottom`."""

    @property
    def length(self) -> float:
        """Of the whole loop, junctions included."""
        return self.lanes[-1].start + self.lanes[-1].length

    def coordinate(self, edge: str, position: float) -> float:
        """Return the metres along the loop of a position on an edge."""
        return next(lane.start for lane in self.lanes if lane.edge == edge) + position

    def points(self, x: float | Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n 2"]:
        """Return the points of the plane at coordinates along the loop."""
        at, points = self._polyline
        x = np.mod(x, self.length)
        return np.stack([np.interp(x, at, points[:, i]) for i in (0, 1)], axis=-1)

    @cached_property
    def _polyline(self) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, "p 2"]]:
        at, points = [], []
        for lane in self.lanes:
            steps = np.linalg.norm(np.diff(lane.shape, axis=0), axis=1)
            along = np.concatenate([[0.0], np.cumsum(steps)])
            # A lane's length is given, and need not be that of its drawing.
            at.append(lane.start + along * (lane.length / along[-1]))
            points.append(lane.shape)
        return np.concatenate(at), np.concatenate(points)


def figure_eight() -> Network:
    """Return the network of the paper's Experiment 2, made once and kept in the cache folder."""
    path = _cached()
    if path.is_file():
        try:
            return read(path)
        except UserError:
            path.unlink(missing_ok=True)  # whatever spoilt it: it is only a copy
    with explain_os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _generate())
    return read(path)


def read(path: Path | str) -> Network:
    """Read the loop from a network file.

    Raises:
        UserError: it is not a SUMO network, or has not the edges of a figure-eight.
    """
    path = Path(path)
    with explain_os_errors("read", path):
        text = path.read_bytes()
    try:
        root = ElementTree.fromstring(text)
        edges = {edge.attrib["id"]: edge.findall("lane") for edge in root.iter("edge")}
        via = {
            (c.attrib["from"], c.attrib["to"]): c.get("via", "").rpartition("_")[0]
            for c in root.iter("connection")
        }
        order = []
        for edge, following in zip(LOOP, (*LOOP[1:], LOOP[0]), strict=True):
            if edge not in edges:
                raise ValueError(f"it has no edge {edge}")
            if (edge, following) not in via:
                raise ValueError(f"nothing leads from {edge} to {following}")
            order += [name for name in (edge, via[edge, following]) if name]
        lanes: list[Lane] = []
        for name in order:
            if len(edges[name]) != 1:
                raise ValueError(f"edge {name} has {len(edges[name])} lanes")
            lane = edges[name][0].attrib
            start = lanes[-1].start + lanes[-1].length if lanes else 0.0
            shape = np.array([p.split(",")[:2] for p in lane["shape"].split()], np.float64)
            if not float(lane["length"]) > 0 or len(shape) < 2:
                raise ValueError(f"edge {name} has no length")
            lanes.append(Lane(name, start, float(lane["length"]), name.startswith(":"), shape))
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path} is not the network of a figure-eight: {what}") from error
    return Network(path, tuple(lanes))


def _cached() -> Path:
    description = "".join(_description().values()) + _sumo_version()
    digest = hashlib.sha256(description.encode()).hexdigest()[:16]
    return cache_folder() / "networks" / f"figure-eight-{digest}.net.xml"


def _sumo_version() -> str:
    try:
        return metadata.version("eclipse-sumo")
    except metadata.PackageNotFoundError as error:
        raise MissingPackageError(*NEEDS) from error


def _description() -> dict[str, str]:
    """Return the files that netconvert makes a network of, by the option they are given with."""
    ends = {
        "center": (0.0, 0.0),
        "right": (RADIUS, 0.0),
        "top": (0.0, RADIUS),
        "left": (-RADIUS, 0.0),
        "bottom": (0.0, -RADIUS),
    }
    nodes = "".join(
        f'<node id="{name}" x="{x}" y="{y}" type="priority"'
        + (f' radius="{_CROSSING_RADIUS}"/>' if name == "center" else "/>")
        for name, (x, y) in ends.items()
    )
    upper = np.linspace(0, 1.5 * np.pi, 40)
    lower = np.linspace(0.5 * np.pi, 2 * np.pi, 40)
    ring = 1.5 * np.pi * RADIUS
    edges = (
        _edge("bottom", "bottom", "center", _GOES_FIRST, RADIUS)
        + _edge("top", "center", "top", _GOES_FIRST, RADIUS)
        + _edge("right", "right", "center", _YIELDS, RADIUS)
        + _edge("left", "center", "left", _YIELDS, RADIUS)
        + _edge("upper_ring", "top", "right", _YIELDS, ring, 1 - np.cos(upper), 1 + np.sin(upper))
        + _edge("lower_ring", "left", "bottom", _YIELDS, ring, np.cos(lower) - 1, np.sin(lower) - 1)
    )
    through = "".join(
        f'<connection from="{a}" to="{b}" fromLane="0" toLane="0"/>'
        for a, b in (("bottom", "top"), ("right", "left"))
    )
    return {
        "node-files": f"<nodes>{nodes}</nodes>",
        "edge-files": f"<edges>{edges}</edges>",
        "connection-files": f"<connections>{through}</connections>",
    }


def _edge(
    name: str,
    start: str,
    end: str,
    priority: int,
    length: float,
    x: Float[np.ndarray, " p"] | None = None,
    y: Float[np.ndarray, " p"] | None = None,
) -> str:
    """Return one edge; x and y are the points of its shape in radii, None for a straight one."""
    shape = ""
    if x is not None and y is not None:
        points = " ".join(f"{RADIUS * a:.6f},{RADIUS * b:.6f}" for a, b in zip(x, y, strict=True))
        shape = f' shape="{points}"'
    return (
        f'<edge id="{name}" from="{start}" to="{end}" numLanes="1" priority="{priority}" '
        f'speed="{SPEED_LIMIT}" length="{length}"{shape}/>'
    )


def _generate() -> bytes:
    try:
        import sumo
    except ImportError as error:
        raise MissingPackageError(*NEEDS) from error
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-internal-links", "false", "--no-turnarounds", "true"]
        for option, text in _description().items():
            file = Path(folder) / f"{option}.xml"
            file.write_text(text, encoding="utf-8")
            options += [f"--{option}", str(file)]
        out = Path(folder) / "figure-eight.net.xml"
        tool = Path(sumo.SUMO_HOME) / "bin" / "netconvert"
        done = subprocess.run(
            [str(tool), *options, "--output-file", str(out)],
            capture_output=True,
            text=True,
            env=os.environ | {"SUMO_HOME": sumo.SUMO_HOME},
            check=False,
        )
        if done.returncode or not out.is_file():
            raise UserError(f"SUMO's netconvert failed: {done.stderr.strip() or done.stdout}")
        return out.read_bytes()
