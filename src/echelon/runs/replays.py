"""Recorded episodes: the poses of all bodies over time, for a browser to draw.

`replay/replay.json` holds one episode per policy: the scene as primitives and meshes, and for every frame the pose of
every body. Poses are whole numbers, positions in hundredths of a millimetre and quaternions in 1/32767, so a drawn body
is within 0.01 mm of the simulated one however far the robot runs. Per body and component the differences from frame to
frame are stored, split into byte planes, deflated, in base64: bodies that stand still take no space.
"""

import base64
import dataclasses
import json
import math
import zlib
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from echelon.errors import UserError, first_line
from echelon.runs.durable import replace_durably
from echelon.runs.untrusted import MAX_UNPACKED_BYTES, Unreadable, from_json, inflate, read_json, require_finite

FORMAT = 1
UNITS = np.array([1e-5] * 3 + [1 / 32767] * 4)
"""Units of the stored integers: x y z in metres, then w x y z of the quaternion."""
MAX_TRIANGLES = 2_000_000
"""Most triangles of a replay's meshes, with which a page has some tens of MB."""
MAX_PARTS = 10_000
"""Bodies, meshes, episodes, or shapes of one, in a replay that is read."""
Vector = tuple[float, ...]
Outcome = Literal["failed", "succeeded", "time limit", "cut"]
"""How an episode ended; `cut` means that only the recording ended."""


@dataclass(frozen=True)
class Geom:
    """A shape attached to a body: a geometric primitive, with MuJoCo's sizes (half lengths, radii), or a mesh."""

    type: str
    """sphere, capsule, box, cylinder, ellipsoid, plane, or the name of one of the replay's meshes."""
    size: Vector
    rgba: Vector
    body: int
    pos: Vector
    quat: Vector
    """w x y z"""
    goal: bool = False
    """Whether it marks a goal, and so must not be taken for an object."""


@dataclass(frozen=True)
class Mesh:
    """Triangles, stored once however many geoms show them; a height field is one, too."""

    vertices: np.ndarray
    """`[V, 3]` in metres."""
    faces: np.ndarray
    """`[F, 3]`: numbers of vertices."""


@dataclass(frozen=True)
class Camera:
    """The initial view."""

    eye: Vector
    target: Vector
    fovy: float
    """Vertical field of view, in degrees."""
    follow: int | None
    """The body that the camera follows, if the robot moves away from its start."""


@dataclass(frozen=True)
class Episode:
    """One episode of one policy."""

    policy: int
    name: str
    """Label of the policy, such as `leader` or `follower 3`."""
    total_return: float
    length: int
    """Control steps."""
    geoms: tuple[Geom, ...]
    """Per episode, since environments may have different sizes and colours."""
    poses: np.ndarray
    """`[frames, bodies, 7]`: x y z in metres, then w x y z."""
    outcome: Outcome = "time limit"
    series: dict[str, np.ndarray] = field(default_factory=dict)
    """`[frames]` each, by name: `reward`, its terms as `reward/NAME`, `action/0` and so on, and `kl`, how far the
    policy is from the leader in that state."""
    iteration: int | None = None
    """Iterations its policy was trained for, in a replay of several checkpoints; None: the replay's."""


@dataclass(frozen=True)
class Replay:
    """One recorded episode per policy of a run."""

    run: str
    task: str
    algo: str
    iteration: int
    """Iterations the shown policies were trained for."""
    seed: int
    """Seed of the episodes, which all start in the same state."""
    leader: int
    """The policy to show first."""
    frame_s: float
    """Simulated seconds between two frames."""
    bodies: tuple[str, ...]
    camera: Camera
    episodes: tuple[Episode, ...]
    meshes: dict[str, Mesh] = field(default_factory=dict)


def replay_path(run: Path) -> Path:
    """Path of the replay in a run folder."""
    return run / "replay" / "replay.json"


def write_replay(replay: Replay, path: Path) -> None:
    """Write the replay, replacing an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(path, replay_json(replay).encode())


def replay_json(replay: Replay) -> str:
    """The replay as JSON, as in the file and in a page; a `UserError` if its meshes are too large for one."""
    if (triangles := sum(len(mesh.faces) for mesh in replay.meshes.values())) > MAX_TRIANGLES:
        raise UserError(
            f"the meshes of this model have {triangles:,} triangles, more than the {MAX_TRIANGLES:,} that a page can "
            "hold; record a film with --format mp4"
        )
    episodes: list[dict[str, Any]] = []
    for one in replay.episodes:
        plain = _rounded(dataclasses.asdict(dataclasses.replace(one, poses=np.empty(0), series={})))
        series = {name: pack_series(values) for name, values in one.series.items()}
        episodes.append(plain | {"frames": len(one.poses), "poses": pack(one.poses), "series": series})
    document = {"format": FORMAT} | _rounded(dataclasses.asdict(dataclasses.replace(replay, episodes=(), meshes={})))
    document |= {"episodes": episodes, "meshes": {name: pack_mesh(mesh) for name, mesh in replay.meshes.items()}}
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def read_replay(path: Path) -> Replay:
    """Read what `write_replay` wrote, positions to half a unit; a `UserError` if the file is not a replay."""
    try:
        fields = read_json(path)
        require_finite(fields)
        if (found := fields.pop("format")) != FORMAT:
            raise ValueError(f"its format is {found}, known is {FORMAT}")
        bodies, episodes, meshes = fields["bodies"], fields["episodes"], fields.get("meshes", {})
        parts = len(bodies), len(meshes), len(episodes), *(len(one["geoms"]) for one in episodes)
        frames = [one["frames"] for one in episodes]
        counts = [count for mesh in meshes.values() for count in mesh["counts"]]
        if min(frames + counts, default=1) < 1:
            raise ValueError("an episode or a mesh in it is empty")
        size = sum(frames) * len(bodies) * UNITS.size * 4 + sum(counts) * 12
        if max(parts) > MAX_PARTS or size > MAX_UNPACKED_BYTES:
            raise ValueError(f"it has {max(parts):,} parts of a kind, or unpacks to {size:.3g} bytes")
        for one, count in zip(episodes, frames, strict=True):
            del one["frames"]
            one["poses"] = unpack(one["poses"], count, len(bodies))
            one["series"] = {name: unpack_series(packed, count) for name, packed in one["series"].items()}
        return from_json(fields | {"meshes": {name: unpack_mesh(mesh) for name, mesh in meshes.items()}}, Replay)
    except (Unreadable, UserError, AttributeError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a whole replay ({first_line(error)}); run echelon record again") from None


def _rounded(value: Any) -> Any:
    """Round sizes to micrometres, which keeps the text short."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


def viewer_script() -> str:
    """The script that draws a replay: it defines `EchelonReplay.mount(element, replay, options)`."""
    return (files("echelon") / "viewing" / "web" / "replay.bundle.js").read_text(encoding="utf-8")


def embedded(document: str) -> str:
    """JSON escaped for a script element of a page: nothing in it can end the script or start a comment."""
    return document.replace("<", "\\u003c")


def pack(poses: np.ndarray) -> str:
    """`[frames, bodies, 7]` as text."""
    steps = np.rint(np.asarray(poses, np.float64) / UNITS).astype("<i4").reshape(len(poses), -1)
    return _pack(np.diff(steps, axis=0, prepend=np.zeros_like(steps[:1])).T)  # bodies × 7 rows of frames


def unpack(text: str, frames: int, bodies: int) -> np.ndarray:
    """The inverse of `pack`, to half a unit."""
    series = _unpack(text, "<i4", frames * bodies * 7).reshape(bodies * 7, frames)
    return np.cumsum(series, axis=1, dtype=np.int64).T.reshape(frames, bodies, 7) * UNITS


def pack_series(values: np.ndarray) -> dict[str, Any]:
    """`[frames]` as text, to a 65,535th of its range."""
    low, high = float(np.min(values)), float(np.max(values))
    steps = np.rint((np.asarray(values, np.float64) - low) / ((high - low) or 1.0) * 65535).astype("<u2")
    return {"low": float(f"{low:.6g}"), "high": float(f"{high:.6g}"), "data": _pack(steps)}


def unpack_series(packed: dict[str, Any], frames: int) -> np.ndarray:
    """The inverse of `pack_series`."""
    low, high = float(packed["low"]), float(packed["high"])
    if not math.isfinite(high - low):
        raise ValueError("a series is not finite")
    return low + _unpack(packed["data"], "<u2", frames) / 65535 * (high - low)


def pack_mesh(mesh: Mesh) -> dict[str, Any]:
    """A mesh as text: differences from vertex to vertex in 65,535ths of its longest side, then those of faces."""
    low = mesh.vertices.min(axis=0)
    unit = float((mesh.vertices - low).max() / 65535) or 1.0
    steps = np.rint((mesh.vertices - low) / unit).astype("<u2")
    return {
        "low": low.tolist(),
        "unit": unit,
        "counts": [len(mesh.vertices), len(mesh.faces)],
        "vertices": _pack(np.diff(steps, axis=0, prepend=np.zeros_like(steps[:1])).T),
        "faces": _pack(np.diff(mesh.faces.ravel(), prepend=0).astype("<i4")),
    }


def unpack_mesh(packed: dict[str, Any]) -> Mesh:
    """The inverse of `pack_mesh`, to half a unit."""
    vertices, faces = packed["counts"]
    steps = np.cumsum(_unpack(packed["vertices"], "<u2", 3 * vertices).reshape(3, -1), axis=1, dtype="<u2").T
    corners = np.cumsum(_unpack(packed["faces"], "<i4", 3 * faces), dtype=np.int64).reshape(-1, 3)
    places = np.array(packed["low"], np.float64) + steps * float(packed["unit"])
    if not np.isfinite(places).all() or not ((corners >= 0) & (corners < vertices)).all():
        raise ValueError("a mesh is damaged")
    return Mesh(places, corners)


def _pack(numbers: np.ndarray) -> str:
    """Integers as text: split into byte planes, deflated, in base64."""
    planes = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, numbers.itemsize).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def _unpack(text: str, kind: str, count: int) -> np.ndarray:
    """The inverse of `_pack` for this many integers."""
    size = np.dtype(kind).itemsize
    planes = np.frombuffer(inflate(base64.b64decode(text, validate=True), count * size), np.uint8)
    return np.ascontiguousarray(planes.reshape(size, -1).T).view(kind).ravel()
