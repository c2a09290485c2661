"""Recorded poses: small, and right to a hundredth of a millimetre after a way of kilometres."""

import base64
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from echelon.errors import UserError
from echelon.runs.replays import (
    Camera,
    Episode,
    Geom,
    Mesh,
    Replay,
    _pack,
    pack,
    read_replay,
    replay_json,
    unpack,
    viewer_script,
    write_replay,
)

BOMB = base64.b64encode(zlib.compress(bytes(1 << 28))).decode()
"""Poses that unpack to a quarter of a gigabyte."""
FACES = _pack(np.array([0, 1, 1, 1, -3, 4], "<i4"))  # the last of corners 0 to 3 would be 4


def course(frames: int, bodies: int, seed: int = 0) -> np.ndarray:
    """Bodies that wander off by kilometres, turning."""
    rng = np.random.default_rng(seed)
    position = np.cumsum(rng.normal(0.0, 3.0, (frames, bodies, 3)), axis=0) * 10
    turn = rng.normal(size=(frames, bodies, 4))
    return np.concatenate((position, turn / np.linalg.norm(turn, axis=-1, keepdims=True)), axis=-1)


def replay(poses: np.ndarray) -> Replay:
    geoms = (
        Geom("box", (0.1, 0.2, 0.3), (1.0, 0.5, 0.0, 1.0), 1, (0.0, 0.0, 0.1), (1.0, 0.0, 0.0, 0.0)),
        Geom("sphere", (0.05, 0.0, 0.0), (0.0, 0.0, 1.0, 0.5), 0, (0.0, 1.0, 0.0), (0.0, 1.0, 0.0, 0.0)),
    )
    leader = Episode(0, "leader", 12.5, 7, geoms, poses, "time limit")
    names = tuple(f"body {i}" for i in range(poses.shape[1]))
    camera = Camera((1.0, 2.0, 3.0), (0.0, 0.0, 0.5), 40.0, 1)
    episodes = (leader, replace(leader, policy=2, name="follower 2"))
    corners = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.25], [1.0, 2.0, 0.5], [0.1, 1.9, -0.5]])
    meshes = {"mesh 0": Mesh(corners, np.array([[0, 1, 2], [3, 0, 2]]))}
    return Replay("a run", "Hopper", "cpo", 40, 1000, 0, 0.04, names, camera, episodes, meshes)


def test_poses_come_back_within_half_a_unit() -> None:
    poses = course(frames=300, bodies=5)
    assert np.abs(poses[..., :3]).max() > 500
    back = unpack(pack(poses), 300, 5)
    assert np.abs(back - poses)[..., :3].max() <= 0.5e-5 * (1 + 1e-9) + 1e-12
    assert np.abs(back - poses)[..., 3:].max() <= 0.5 / 32767 * (1 + 1e-9)
    still = np.repeat(course(1, 20), 300, axis=0)
    assert len(pack(still)) < 3_000  # bodies that stand still cost nothing: these are 42 000 numbers


def test_the_text_is_what_the_format_says() -> None:
    """Two frames of one body, packed by hand: differences per component, lowest bytes first, planes apart."""
    x = [100_000, 100_250]  # 1 m and 1.0025 m in hundredths of a millimetre
    w = [32767, -32767]
    series = [x[0], x[1] - x[0], *[0, 0] * 2, w[0], w[1] - w[0], *[0, 0] * 3]
    words = [struct.pack("<i", value) for value in series]
    planes = b"".join(bytes(word[place] for word in words) for place in range(4))
    poses = np.zeros((2, 1, 7))
    poses[:, 0, 0], poses[:, 0, 3] = (1.0, 1.0025), (1.0, -1.0)
    assert zlib.decompress(base64.b64decode(pack(poses))) == planes
    assert unpack(base64.b64encode(zlib.compress(planes)).decode(), 2, 1) == pytest.approx(poses, abs=1e-12)


def test_a_replay_comes_back(tmp_path: Path) -> None:
    written = replay(course(30, 3))
    path = tmp_path / "deep" / "replay.json"
    write_replay(written, path)
    read = read_replay(path)
    assert replace(read, episodes=(), meshes={}) == replace(written, episodes=(), meshes={})
    (before, after) = (one.meshes["mesh 0"] for one in (written, read))
    assert np.abs(after.vertices - before.vertices).max() <= 0.5 * 2.0 / 65535 * (1 + 1e-6)  # its longest side is 2 m
    assert np.array_equal(after.faces, before.faces)
    for before, after in zip(written.episodes, read.episodes, strict=True):
        assert after.poses == pytest.approx(before.poses, abs=2e-5)
        assert vars(replace(after, poses=before.poses)) == vars(before)
    with pytest.raises(ValueError, match="not JSON compliant"):
        replay_json(replace(written, frame_s=float("nan")))


DAMAGES = {
    "cut": lambda text: text[:-50],
    "newer": lambda text: text.replace('"format":1', '"format":99'),
    "fewer frames": lambda text: text.replace('"frames":30', '"frames":31'),
    "no frames": lambda text: text.replace('"frames":30', '"frames":0'),
    "no vertices": lambda text: re.sub(r'"counts":\[\d+,\d+\]', '"counts":[0,0]', text),
    "endless": lambda text: text.replace('"frames":30', '"frames":300000000000'),
    "not base64": lambda text: text.replace('"poses":"', '"poses":"!'),
    "a bomb": lambda text: re.sub('"poses":"[^"]*"', f'"poses":"{BOMB}"', text),
    "infinite": lambda text: text.replace('"series":{}', '"series":{"reward":{"low":0,"high":1e999,"data":""}}'),
    "a face without a corner": lambda text: re.sub('("faces":)"[^"]*"', rf'\1"{FACES}"', text),
    "no camera": lambda text: text.replace('"camera"', '"kamera"'),
}


def test_a_damaged_replay_is_one_sentence(tmp_path: Path) -> None:
    whole, path = replay_json(replay(course(30, 3))), tmp_path / "replay.json"
    for name, damage in ("no file", None), *DAMAGES.items():
        if damage:
            path.write_text(damage(whole))
            assert path.read_text() != whole, name
        with pytest.raises(UserError, match=r"replay\.json is not a whole replay \(.+\); run echelon record"):
            read_replay(path)


def test_the_shipped_script_names_its_licences() -> None:
    script = viewer_script()
    assert "three.js authors" in script
    assert "Permission is hereby granted" in script
    assert "</script" not in script
    assert len(script) < 620_000
