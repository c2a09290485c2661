"""Compare an exported policy, run by each of the runners here, with `echelon evaluate`: same starts, no noise.

    python examples/deploy/check.py RUN --episodes 16

The one file here that needs Echelon. It exports the run's leader, and plays it by `run.py` with the .npz and the .onnx
file where Echelon and torch cannot be imported, and by `run.cpp` if there is a C++ compiler. Exits with 1 if episodes'
returns differ: by the median of their differences, since a contact or a pole near the top can magnify the rounding of
float32 until one episode goes another way.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import mujoco
import numpy as np
import torch
from run import REWARDS

from echelon.config import RandomiseConfig
from echelon.errors import UserError
from echelon.evaluation.evaluate import one_after_another
from echelon.export.files import export
from echelon.export.policy import SavedPolicy
from echelon.runs.trained import Trained

HERE, SEED = Path(__file__).parent, 1000
ALONE = """
import runpy, sys
sys.modules.update(echelon=None, torch=None)
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def runners(place: Path) -> dict[str, list[str]]:
    """Command lines up to the policy's file, by what they show."""
    python = [sys.executable, "-c", ALONE, str(HERE), str(HERE / "run.py")]
    found = {"Python, .npz": [*python, "policy.npz"], "Python, .onnx": [*python, "policy.onnx"]}
    if compiler := shutil.which("g++") or shutil.which("clang++"):
        wheel = Path(mujoco.__file__).parent
        (library,) = wheel.glob("libmujoco*.so*")
        words = ["-std=c++17", "-O2", f"-I{wheel / 'include'}", str(library), f"-Wl,-rpath,{wheel}"]
        subprocess.run([compiler, str(HERE / "run.cpp"), *words, "-o", str(place / "run")], check=True)
        found["C++, .npz"] = [str(place / "run"), "policy.npz"]
    return found


def compare(run: str, episodes: int) -> dict[str, np.ndarray]:
    """Returns of the episodes as `echelon evaluate` finds them, and by runner."""
    trained, cpu = Trained.load(run).randomised(RandomiseConfig()), torch.device("cpu")  # in plain physics
    if trained.config.task not in REWARDS:
        known = ", ".join(REWARDS)
        raise UserError(f"run.py has the rewards of {known}, not of {trained.config.task}; add it to REWARDS there")
    evaluated = one_after_another(trained, episodes, cpu, SEED)[trained.leader, "deterministic"]
    found = {"evaluate": evaluated["return"].numpy()}
    with tempfile.TemporaryDirectory() as name:
        place, policy = Path(name), SavedPolicy.load(run)
        export(policy, "numpy", place / "policy.npz")
        export(policy, "onnx", place / "policy.onnx")
        env = trained.make_env(episodes, cpu, SEED)
        env.reset()
        mujoco.mj_saveModel(env.engine.model, str(place / "model.mjb"))
        command = env.kept.get("command", torch.zeros(episodes, 3))
        np.savez(place / "starts.npz", qpos=env.engine.qpos, qvel=env.engine.qvel, command=command)
        for runner, words in runners(place).items():
            words = [*words, "model.mjb", "starts.npz", "--fast"]
            done = subprocess.run(words, cwd=place, stdout=subprocess.PIPE, text=True, check=True)
            found[runner] = np.array([json.loads(line)["return"] for line in done.stdout.splitlines()])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--tolerance", type=float, default=5e-3, help="of the returns' mean")
    given = parser.parse_args()
    try:
        found = compare(given.run, given.episodes)
    except UserError as error:
        sys.exit(f"check.py: {error}")
    expected, differs = found["evaluate"], False
    for runner, returns in found.items():
        difference = np.abs(returns - expected) / np.abs(expected).mean()
        differs |= not np.median(difference) <= given.tolerance
        said = (
            ""
            if returns is expected
            else f"  episodes differ by {np.median(difference):.1e}, at most {difference.max():.1e}"
        )
        print(f"{runner:14} return {returns.mean():11.5f}{said}")
    sys.exit(int(differs))


if __name__ == "__main__":
    main()
