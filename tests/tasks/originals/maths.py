"""What the originals' formulas are written in: float64 rows, quaternions x y z w."""

import numpy as np

Array = np.ndarray


def product(a: Array, b: Array) -> Array:
    """Hamilton's, row by row."""
    v, w = a[:, :3], a[:, 3:]
    u, s = b[:, :3], b[:, 3:]
    return np.concatenate((w * u + s * v + np.cross(v, u), w * s - np.sum(v * u, axis=1, keepdims=True)), axis=1)


def conjugate(q: Array) -> Array:
    return q * np.array([-1.0, -1.0, -1.0, 1.0])


def rotate(q: Array, vector: Array) -> Array:
    """q v q*, row by row."""
    pure = np.concatenate((np.broadcast_to(vector, (len(q), 3)), np.zeros((len(q), 1))), axis=1)
    return product(product(q, pure), conjugate(q))[:, :3]


def xyzw(wxyz: Array) -> Array:
    return wxyz[:, [1, 2, 3, 0]]


def unscale(angles: Array, limits: Array) -> Array:
    low, high = limits.T
    return (2 * angles - high - low) / (high - low)


def wrap(angle: Array) -> Array:
    """In [-π, π)."""
    return np.mod(angle + np.pi, 2 * np.pi) - np.pi
