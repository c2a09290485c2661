"""Colours of methods: told apart by people with common colour blindness, and never twice with the same dashes.

Colour blindness is simulated by the matrices of Machado et al. 2009 at severity 1; distances are CIE 1976.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest
from report.synthetic import write_run

from echelon.report.methods import COLOURS, DARK_COLOURS, DASHES, Method, group_runs, looks
from echelon.report.reading import read_run

SIGHT = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)
OKABE_ITO = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")


def linear(colour: str) -> np.ndarray:
    """Linear RGB of a colour such as #0072B2."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(colour: str, sight: str) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(np.asarray(SIGHT[sight]) @ linear(colour), 0, 1) / (0.95047, 1, 1.08883)
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def smallest(colours: tuple[str, ...], sight: str) -> float:
    pairs = itertools.combinations((lab(colour, sight) for colour in colours), 2)
    return min(float(np.linalg.norm(one - other)) for one, other in pairs)


@pytest.mark.parametrize("sight", SIGHT)
def test_methods_are_told_apart_whatever_eyes_one_has(sight: str) -> None:
    """No pair is nearer than Okabe and Ito's nearest; the built-in algorithms' four are farther apart."""
    assert smallest(OKABE_ITO, "deuteranopia") == pytest.approx(17.0, abs=0.1)  # as published
    for colours in (COLOURS, DARK_COLOURS):
        assert smallest(colours, sight) >= 17
        assert smallest(colours[:4], sight) >= 23


@pytest.mark.parametrize(("colours", "ground"), [(COLOURS, "#FBFAF7"), (DARK_COLOURS, "#1A1D22")])
def test_lines_stand_out_from_their_ground(colours: tuple[str, ...], ground: str) -> None:
    """A contrast of 3 to 1, as WCAG asks of graphics."""
    for colour in colours:
        dark, bright = sorted(float(TO_XYZ[1] @ linear(x)) for x in (colour, ground))
        assert (bright + 0.05) / (dark + 0.05) >= 2.95


def test_algorithms_keep_their_colours_and_no_line_comes_twice(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, algo, iterations=2)) for algo in ("ppo", "cpo")]
    both, alone = looks(group_runs(runs)), looks(group_runs(runs[:1]))
    assert both["PPO"] == alone["PPO"]
    many = [Method(f"CPO {k}", (runs[1],)) for k in range(len(COLOURS) * len(DASHES))]
    found = [*looks(many).values()]
    assert len(set(found)) == len(many)
    assert len({look.colour for look in found[:8]}) == 8
