"""Add the leader of a run to the policies that come with this repository, with a card that says how good it is.

    PYTHONPATH=benchmarks python results/policies/add.py runs/AllegroHand-ppo-s3 AllegroHand --episodes 256

Writes results/policies/NAME/policy.npz, as `echelon export` makes it, or with weights of 8 bits where that would be
5 MB or more, and card.json. The card's score is of this very file, acting at its means on the CPU, with 95 % intervals.
`echelon play --policy NAME` and `echelon record --policy NAME` show it.
"""

import json
import shlex
from pathlib import Path

import numpy as np
import torch
from command import command, options

from echelon import RunFolder
from echelon.errors import UserError
from echelon.evaluation.evaluate import first_episodes
from echelon.export.files import export, open_exported
from echelon.export.policy import SavedPolicy
from echelon.runs.folder import read_config

HERE = Path(__file__).parent
MAX_BYTES = 5_000_000


def shrink(file: Path) -> None:
    """Compress a file; one that is still too large gets weights of 8 bits, with a scale per row."""
    with np.load(file) as found:
        arrays = dict(found)
    np.savez_compressed(file, **arrays)
    if file.stat().st_size < MAX_BYTES:
        return
    for name in [name for name in arrays if name.endswith("_weight") and arrays[name].ndim == 2]:
        scale = np.maximum(np.abs(arrays[name]).max(1, keepdims=True), 1e-12) / 127
        arrays[name], arrays[f"{name}_scale"] = np.rint(arrays[name] / scale).astype(np.int8), scale.astype(np.float32)
    np.savez_compressed(file, **arrays)
    if (size := file.stat().st_size) >= MAX_BYTES:
        raise UserError(f"{file} has {size:,} bytes, and a policy of this repository has fewer than {MAX_BYTES:,}")


def score(file: Path, episodes: int, seed: int) -> dict[str, dict[str, object]]:
    """Mean and 95 % interval of every figure of the policy's episodes."""
    trained = open_exported(file)
    env = trained.make_env(episodes, torch.device("cpu"), seed)
    found = {}
    for name, x in first_episodes(env, trained.actor(0, episodes), lambda: None).items():
        mean, half = x.double().mean().item(), 1.96 * x.double().std().item() / episodes**0.5
        found[name] = {
            "mean": float(f"{mean:.5g}"),
            "interval": [float(f"{end:.5g}") for end in (mean - half, mean + half)],
        }
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--checkpoint", choices=("newest", "best"), default="newest")
    given = parser.parse_args()
    folder, out = RunFolder.open(given.run), HERE / given.name
    session = read_config(folder.path)[1]["sessions"][0]
    file = out / "policy.npz"
    policy = SavedPolicy.load(folder, "leader", given.checkpoint)
    export(policy, "numpy", file)
    (out / "numpy_policy.py").unlink()  # it comes with Echelon
    shrink(file)
    config, iteration = folder.config, policy.trained.iteration
    words = [Path(word).name if k == 0 else word for k, word in enumerate(session["command"])]
    card = {
        "task": config.source or config.task,
        "algorithm": config.algo,
        "policies": config.num_policies,
        "steps": config.steps_per_iteration * iteration,
        "iterations": iteration,
        "episodes": given.episodes,
        "seed": given.seed,
        "score": score(file, given.episodes, given.seed),
        "command": shlex.join(["echelon" if words[0] == "__main__.py" else words[0], *words[1:]]),
        "hardware": session["hardware"]["gpu"] or session["hardware"]["cpu"],
        "revision": session["git_revision"],
        "bytes": file.stat().st_size,
    }
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n")
    print((out / "card.json").read_text())


if __name__ == "__main__":
    command(main)
