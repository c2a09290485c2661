"""docs/performance.md says which physics the tasks have: step, substeps, cones, impratio, room on a GPU."""

import re
from pathlib import Path
from typing import Any

import mujoco
import pytest

from echelon import make
from echelon.sim import probe

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
TASKS = {
    "AllegroKuka, one arm": ("AllegroKukaRegrasping", "AllegroKukaReorientation"),
    "AllegroKuka, two arms": ("AllegroKukaTwoArmsReorientation",),
    "FrankaCube, both": ("FrankaCubePush", "FrankaCubeStack"),
}


def rows() -> dict[str, list[str]]:
    """The table's cells by the name in its first column; Throw, whose room is in the cell of one arm, by its own."""
    table = PAGE.read_text().split("### Physics: what was chosen\n\n")[1].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    found = {name: rest for name, *rest in cells}
    *rest, room = found["AllegroKuka, one arm"]
    found["AllegroKuka, one arm"] = [*rest, room.split("; ")[0]]
    found["AllegroKukaThrow"] = [*rest, room.split("; Throw ")[1]]
    return found


@pytest.mark.parametrize("name", rows())
def test_the_table_is_what_the_tasks_have(name: str) -> None:
    step, substeps, more, room = rows()[name]
    for task in TASKS.get(name, (name,)):
        env: Any = make(task, num_envs=1, device="cpu")
        model, config = env.engine.model, env.config
        assert float(step.removesuffix(" ms")) == pytest.approx(1000 * model.opt.timestep, abs=0.005)
        assert (model.opt.solver, model.opt.integrator) == (
            mujoco.mjtSolver.mjSOL_NEWTON,
            mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
        )
        assert int(substeps) == env.substeps
        assert ("elliptic cones" in more) == (model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC)
        assert model.opt.impratio == float((re.findall(r"impratio (\d+)", more) or [1])[0])
        sizes = (config.contacts, config.constraints) if config.contacts else probe(model)
        assert room == f"{sizes[0]}, {sizes[1]}"
