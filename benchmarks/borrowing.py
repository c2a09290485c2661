"""From whom should the leader borrow? DeceptiveReach, whose dense reward leads into a trap, at equal optimizer steps.

    OMP_NUM_THREADS=1 python benchmarks/borrowing.py --out runs/borrowing                  # 120 runs of 10 to 20 s
    OMP_NUM_THREADS=1 python benchmarks/borrowing.py --seeds 60 62 --arms flock cpo        # some of them

Every arm takes CPO's 2,112 optimizer steps. `flock`: the leader borrows all rows of all followers. A run has solved the
task if its leader succeeds, without noise, in more than half of 64 new episodes. Prints a line of JSON per run.
"""

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from command import command, options

from echelon.config import TrainConfig
from echelon.errors import UserError, nearest
from echelon.evaluation.evaluate import evaluate
from echelon.presets import preset
from echelon.runs.metrics import read_metrics
from echelon.training.loop import train

USUAL = preset("DeceptiveReach")
USUAL = replace(USUAL, device="cpu", update=replace(USUAL.update, minibatches=8))
CENTRED = replace(
    USUAL,
    update=replace(USUAL.update, kl_rows="own"),
    ensemble=replace(USUAL.ensemble, advantage_scope="centred"),
    pull=replace(USUAL.pull, normalise=True, beta=0.005, temperature=1.0),
)
FLOCK = replace(CENTRED, algo="cpo", ensemble=replace(CENTRED.ensemble, borrow_from="all"))
ARMS: dict[str, TrainConfig] = {
    "cpo_centred": replace(CENTRED, algo="cpo"),
    "flock": FLOCK,
    "flock_vtrace": replace(FLOCK, ensemble=replace(FLOCK.ensemble, estimator="vtrace")),
    "ppo_cpo_steps": replace(USUAL, algo="ppo"),
    "cpo": replace(USUAL, algo="cpo"),
    "sapg_cpo_steps": replace(USUAL, algo="sapg"),
}


def run(job: tuple[str, int], out: Path) -> dict[str, Any]:
    name, seed = job
    folder = train(replace(ARMS[name], seed=seed, out=str(out / f"{name}-s{seed}")))
    found = evaluate(folder, num_envs=64, seed=10_000 + seed, device="cpu")
    lines = read_metrics(folder)
    ess = [line["ess"] for line in lines if "ess" in line]
    scores = {f"successes_{s.mode}": s.extra["successes"] for s in found.scores if s.policy == found.leader}
    return {
        "arm": name,
        "seed": seed,
        **scores,
        "ess": sum(ess) / len(ess) if ess else None,
        "gradient_steps": lines[-1]["gradient_steps"],
        "wall": lines[-1]["wall_s"],
        "sigma": lines[-1]["sigma/policy_0"],
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--seeds", nargs=2, type=int, default=(60, 80), metavar=("FIRST", "END"))
    parser.add_argument("--out", type=Path, default=Path("runs/borrowing"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    for name in args.arms:
        if name not in ARMS:
            raise UserError(f"{name} is not an arm{nearest(name, ARMS) or '; there are ' + ', '.join(ARMS)}")
    jobs = [(name, seed) for seed in range(*args.seeds) for name in args.arms]
    with ProcessPoolExecutor(args.workers) as pool:
        for row in pool.map(partial(run, out=args.out), jobs):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    command(main)
