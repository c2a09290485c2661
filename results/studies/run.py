"""Train a study: named settings with several seeds each. Its CSV files and curves go to `results/`; prints its table.

    PYTHONPATH=benchmarks python results/studies/run.py quick_tasks                      # resumes where it stopped
    PYTHONPATH=benchmarks python results/studies/run.py coupling_allegro_hand --workers 5
    PYTHONPATH=benchmarks python results/studies/run.py deceptive_reach --methods cpo_group no_pull
    PYTHONPATH=benchmarks python results/studies/run.py precision/Hopper --methods fp32 --device cpu --seeds 1 --env-steps 20000 --out /tmp/try
    PYTHONPATH=benchmarks python results/studies/run.py pbt_recovery --table             # trains nothing

What a study asks and trains stands in `methods.py`. The pages in `results/` are written by hand.
"""

from pathlib import Path

from command import command, options
from methods import STUDIES
from running import ROOT, jobs, train
from summary import draw, table

from echelon.config.checks import choose_device
from echelon.errors import UserError, nearest


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--methods", nargs="+", help="all but the controls, unless given")
    parser.add_argument("--seeds", type=int, help="seeds 0 to this, without it; the study's own number unless given")
    parser.add_argument("--workers", type=int, help="runs at a time; the study's own number unless given")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--out", type=Path, help="instead of results/STUDY; needed for a try with what follows")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--env-steps", type=int)
    args = parser.parse_args()
    study, folder = STUDIES[args.study], args.out or ROOT / "results" / args.study
    if args.table:
        print(table(study, folder))
        return
    known = [*study.methods, *study.controls]
    methods = args.methods or list(study.methods)
    for name in methods:
        if name not in known:
            raise UserError(f"{name} is no method of {args.study}, which has {', '.join(known)}{nearest(name, known)}")
    changes = {name: getattr(args, name) for name in ("device", "num_envs", "env_steps") if getattr(args, name)}
    if changes and args.out is None:
        raise UserError(f"--{next(iter(changes)).replace('_', '-')} makes it another study; give it a place by --out")
    tried = changes | ({"iterations": None} if "env_steps" in changes else {})
    wanted = jobs(study, methods, args.seeds, tried, ROOT / "runs" / "studies" / folder.name)
    choose_device(wanted[0].config.device)
    train(study, wanted, folder, args.workers or study.workers)
    draw(study, folder)
    print(table(study, folder))


if __name__ == "__main__":
    command(main)
