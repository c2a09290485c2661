"""The laboratory for physics: settings, what it measures, and sums by kernel."""

from typing import Any

import mujoco
import numpy as np
import pytest

pytest.importorskip("mujoco_warp", reason="needs MuJoCo Warp; pip install -e '.[gpu]'")

import physics

from echelon.errors import UserError


def test_a_setting_is_a_name_or_options_and_other_substeps_keep_the_control_step() -> None:
    assert physics.parse("stock") == {"fused": "none"}
    parsed = physics.parse("iterations=12,cone=elliptic,warp.tolerance=1e-8")
    assert parsed == {"iterations": 12, "cone": "elliptic", "warp.tolerance": 1e-8}
    for wrong in ("cone=round", "iterations=many", "speed=3", "iterations", "warp.tolerance="):
        with pytest.raises(UserError, match=f"^'{wrong}' is no setting"):
            physics.parse(wrong)
    model = mujoco.MjModel.from_xml_string("<mujoco><option timestep='0.01'/></mujoco>")
    assert physics.change(model, 4, {"substeps": 5, "iterations": 3, "cone": "elliptic"}) == 5
    assert model.opt.timestep == pytest.approx(0.008)
    assert (model.opt.iterations, model.opt.cone) == (3, mujoco.mjtCone.mjCONE_ELLIPTIC)


def test_a_distance_is_in_units_of_what_moves() -> None:
    """A hinge that turns by 0.2 rad and a body that moves by 20 mm; the other result is off by 10 % of each."""
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><joint type='slide'/><geom size='1'/></body>"
        "<body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    start = np.tile(model.qpos0, (3, 1))
    one, other = start.copy(), start.copy()
    one[:, [0, 1]], other[:, [0, 1]] = (0.2, 0.02), (0.22, 0.022)
    found = physics.distance(model, start, one, other)
    assert found["median"] == pytest.approx(np.sqrt(2 * 0.1**2 / 7))  # two of seven degrees of freedom
    assert found["mm_p95"] == pytest.approx(2.0)
    other[0, 0] = np.nan
    assert physics.distance(model, start, one, other)["worlds"] == 2
    # Kernels are summed by name and file.
    kernels = ("_qfrc_smooth_0a1b2c3d", "_solve_init_dof__locals__kernel_01234567")
    names = [f"{kernel}_cuda_kernel_forward" for kernel in kernels]
    events: list[dict[str, Any]] = [{"name": name, "dur": 1000.0} for name in (*names, names[0], "at::native::copy")]
    found = physics.by_kernel(events, steps=2, largest=2)
    assert (found["ms"], found["launches"]) == (2.0, 2.0)
    assert tuple(found["largest"][0].values())[:3] == ("_qfrc_smooth", "forward", 1.0)
    assert {"file": "torch and copies", "ms": 0.5, "launches": 0.5} in found["by_file"]


def test_settings_are_measured_side_by_side() -> None:
    """On the CPU, where a run can be repeated to the bit."""
    order = {"task": "Hopper", "device": "cpu", "num_envs": 4, "settings": ["stock", "iterations=1"], "seconds": 0.0}
    stock, hasty = physics.study(order | {"budget": 600, "kernels": 0, "compile_only": False})
    assert stock["left_out"] == hasty["left_out"] == []
    assert stock["ratio"] == 1
    for row in (stock, hasty):
        assert row["ms"] > 0
        assert row["agree"]["again"]["8"]["median"] == 0
        assert sum(row["iterations"]["histogram"]) == 4 * 8 * row["substeps"]
        assert (row["overflow"], row["bad"]) == (0, 0)
    assert hasty["iterations"]["max"] == 1
    assert hasty["agree"]["first"]["8"]["median"] > 1e-4
    assert stock["agree"]["converged"]["8"]["median"] < 1e-5
    assert physics.study(order | {"budget": 0, "kernels": 0, "compile_only": False}) == []
