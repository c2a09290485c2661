"""Rough ground for Anymal: a height field of square tiles in a row, from level to as rough as asked for.

A tile repeats itself beyond its edges, so a robot that leaves it can be put back by its width, and walks on for ever.
"""

import mujoco
import numpy as np

LEVELS = 8
"""Tiles; the first is flat."""
TILE, MARGIN, CELL = 8.0, 1.0, 0.1
"""Width of a tile, how far it is continued beyond its edges, and the grid of the height field, in metres."""
PITCH = TILE + 2 * MARGIN
"""From one tile's centre to the next one's."""
FLAT = 0.7
"""Radius around a tile's centre that stays flat for a robot to start on, in metres."""
WAVES, SHORTEST = 40, 0.5
"""Waves that add up to the ground, and the length of the shortest, in metres."""


def tile() -> np.ndarray:
    """Heights from 0 to 1 over a tile and its margins, `[y, x]`."""
    places = np.arange(-PITCH / 2, PITCH / 2, CELL) + CELL / 2
    x, y = np.meshgrid(places, places)
    rng, most = np.random.default_rng(0), int(TILE / SHORTEST)
    heights = np.zeros_like(x)
    for _ in range(WAVES):
        across, along = rng.integers(-most, most + 1, 2)
        heights += np.cos(2 * np.pi * (across * x + along * y) / TILE + rng.uniform(0, 2 * np.pi))
    heights = (heights - heights.min()) / np.ptp(heights)
    apart = np.hypot(*((place + TILE / 2) % TILE - TILE / 2 for place in (x, y)))  # from the nearest centre
    return heights * np.clip((apart - FLAT) / FLAT, 0, 1)


def on_rough_ground(spec: mujoco.MjSpec, height: float) -> mujoco.MjModel:
    """The model with its floor replaced; `height` is that of the roughest tile, in metres.

    The default state is on the roughest tile, because buffers on CUDA are sized by what happens there.
    """
    rows = np.concatenate([tile() * level / (LEVELS - 1) for level in range(LEVELS)], axis=1)
    (nrow, ncol), middle = rows.shape, (LEVELS - 1) * PITCH / 2
    size = [CELL * (ncol - 1) / 2, CELL * (nrow - 1) / 2, height, 0.5]
    spec.add_hfield(name="ground", nrow=nrow, ncol=ncol, size=size, userdata=rows.ravel())
    floor = spec.geom("floor")
    floor.type, floor.hfieldname, floor.pos = mujoco.mjtGeom.mjGEOM_HFIELD, "ground", [middle, 0, 0]
    model = spec.compile()
    model.qpos0[0] = (LEVELS - 1) * PITCH
    return model
