"""Which runs are one method, what methods are called, and their colours: told apart by people with common colour
blindness, and never twice with the same dashes."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.synthetic import write_run

from echelon.algorithms import AdversaryConfig, PullConfig
from echelon.config import UpdateConfig
from echelon.report.methods import COLOURS, DARK_COLOURS, DASHES, Method, group_runs, looks
from echelon.report.reading import Run, read_run


def read(folder: Path, algo: str = "cpo", seed: int = 0, **more: Any) -> Run:
    return read_run(write_run(folder, algo, seed=seed, iterations=2, **more))


def test_methods_are_algorithms_unless_settings_differ(tmp_path: Path) -> None:
    plain = [read(tmp_path / "a", seed=seed) for seed in (0, 1)]
    other_task = read(tmp_path / "a", task="Hopper", update=UpdateConfig(horizon=32))
    methods = group_runs([*plain, other_task])
    assert [(method.name, len(method.runs)) for method in methods] == [("CPO", 3)]
    assert methods[0].on("Hopper") == [other_task]
    longer = read(tmp_path / "c", seed=7, planned=50)
    assert [method.name for method in group_runs([*plain, longer])] == ["CPO"]
    # A run from before a setting existed, and one of another preset with the same values, are alike.
    paths = [write_run(tmp_path, seed=seed, iterations=2) for seed in (0, 1)]
    document = json.loads((paths[0] / "config.json").read_text())
    del document["config"]["pull"]["temperature"]
    document["config"]["preset"] = "paper"
    (paths[0] / "config.json").write_text(json.dumps(document))
    assert [method.name for method in group_runs([read_run(path) for path in paths])] == ["CPO"]


def test_names_say_only_what_differs_and_of_what(tmp_path: Path) -> None:
    """One setting that varies is named for all; of several, only where it is not what most runs have."""
    runs = [read(tmp_path / str(value), pull=PullConfig(temperature=value)) for value in (0.2, 0.5)]
    assert [method.name for method in group_runs(runs)] == ["CPO · pull temperature 0.2", "CPO · pull temperature 0.5"]
    runs = [read(tmp_path / f"coef {value}", adversary=AdversaryConfig(coef=value)) for value in (0.01, 0.1)] + runs
    names = [method.name for method in group_runs([*runs, read(tmp_path / "p", "ppo")])]
    varied = ("adversary coef 0.01", "adversary coef 0.1", "pull temperature 0.5")
    assert names == ["PPO", "CPO", *(f"CPO · {setting}" for setting in varied)]


def test_a_variant_goes_by_its_name(tmp_path: Path) -> None:
    """After the algorithm it varies; what else its runs differ in is added, the algorithm too."""

    def varied(folder: str, *variant: str, algo: str = "cpo", seed: int = 0) -> Run:
        pull = PullConfig(beta=0.0 if variant else 0.001)
        return read(tmp_path / folder, algo, seed, variant=variant, pull=pull)

    no_pull = [varied("a", "no_pull", seed=seed) for seed in (0, 1)]
    runs = [*no_pull, varied("a"), varied("a", "no_pull", "entropy_off"), varied("a", algo="sapg")]
    methods = group_runs(runs)
    assert [method.name for method in methods] == ["SAPG", "CPO", "no_pull", "no_pull+entropy_off"]
    assert [len(method.runs) for method in methods] == [1, 1, 2, 1]
    names = [method.name for method in group_runs([*no_pull, varied("b", "no_pull", algo="sapg")])]
    assert names == ["no_pull · algo sapg", "no_pull · algo cpo"]


# Colour blindness by the matrices of Machado et al. 2009 at severity 1; distances are CIE 1976.
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


def test_methods_are_told_apart_whatever_eyes_one_has() -> None:
    """No pair is nearer than Okabe and Ito's nearest; the built-in algorithms' four are farther apart. Lines stand out
    from their ground with a contrast of 3 to 1, as WCAG asks of graphics."""
    assert smallest(OKABE_ITO, "deuteranopia") == pytest.approx(17.0, abs=0.1)  # as published
    for colours, ground in ((COLOURS, "#FBFAF7"), (DARK_COLOURS, "#1A1D22")):
        assert min(smallest(colours, sight) for sight in SIGHT) >= 17
        assert min(smallest(colours[:4], sight) for sight in SIGHT) >= 23
        for colour in colours:
            dark, bright = sorted(float(TO_XYZ[1] @ linear(x)) for x in (colour, ground))
            assert (bright + 0.05) / (dark + 0.05) >= 2.95


def test_algorithms_keep_their_colours_and_no_line_comes_twice(tmp_path: Path) -> None:
    runs = [read(tmp_path, algo) for algo in ("ppo", "cpo")]
    both, alone = looks(group_runs(runs)), looks(group_runs(runs[:1]))
    assert both["PPO"] == alone["PPO"]
    many = [Method(f"CPO {k}", (runs[1],)) for k in range(len(COLOURS) * len(DASHES))]
    found = [*looks(many).values()]
    assert len(set(found)) == len(many)
    assert len({look.colour for look in found[:8]}) == 8
