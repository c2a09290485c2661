"""Whether an exported AllegroHand policy does the same outside: ONNX in a plain MuJoCo loop, and `echelon evaluate`.

    PYTHONPATH=benchmarks python results/deployment/run.py runs/AllegroHand-ppo-s0 --episodes 256

The loop is `examples/deploy/allegro_hand.py`, run where Echelon and torch cannot be imported. Both play so many
episodes of the leader at its mean, with starts and goals of their own from the same distributions, on MuJoCo's CPU
engine. The run may have been trained on a GPU. Exits with 1 if successes or lengths differ by more than chance explains
(p < 0.01).
"""

import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import mujoco
from command import command, options

from echelon import RunFolder, evaluate
from echelon.export.files import export
from echelon.export.policy import SavedPolicy
from echelon.tasks.in_hand.task import AllegroHand

EXAMPLE = Path(__file__).parents[2] / "examples" / "deploy" / "allegro_hand.py"
ALONE = """
import runpy, sys
for name in ("echelon", "torch"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def outside(folder: RunFolder, episodes: int) -> dict[str, list[float]]:
    """Successes and lengths of episodes without Echelon."""
    with tempfile.TemporaryDirectory() as place:
        policy, model = Path(place) / "policy.onnx", Path(place) / "hand.mjb"
        export(SavedPolicy.load(folder), "onnx", policy)
        mujoco.mj_saveModel(mujoco.MjModel.from_xml_path(str(AllegroHand.scene_file())), str(model))
        words = [str(EXAMPLE), str(policy), str(model), "--episodes", str(episodes), "--json"]
        done = subprocess.run([sys.executable, "-c", ALONE, *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("run")
    parser.add_argument("--episodes", type=int, default=64)
    given = parser.parse_args()
    folder = RunFolder.open(given.run)
    found = outside(folder, given.episodes)
    evaluation = evaluate(folder, given.episodes, device="cpu")
    leader = evaluation.scores[evaluation.leader]
    inside = {"successes": leader.extra["successes"], "lengths": leader.length_mean}
    differs = False
    for name, values in found.items():
        # Both means scatter as these episodes do.
        error = statistics.pstdev(values) * math.sqrt(2 / len(values))
        difference = statistics.fmean(values) - inside[name]
        differs |= abs(difference) > 2.58 * error + 1e-9
        print(
            f"{name}: {statistics.fmean(values):.3f} in the plain loop, {inside[name]:.3f} by evaluate, "
            f"{given.episodes} episodes each; they differ by {difference:+.3f}, chance by {1.96 * error:.3f} (95 %)"
        )
    sys.exit(int(differs))


if __name__ == "__main__":
    command(main)
