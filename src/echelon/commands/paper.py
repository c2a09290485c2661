"""`echelon paper`: a table or figure of the paper from your own runs, beside the numbers it prints."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from echelon.commands.command import Command, TrainFlags, place
from echelon.commands.compare import Compare, make_jobs, train_all
from echelon.commands.report import inches
from echelon.config.ranges import COUNT
from echelon.console.wording import count, duration, text_table
from echelon.errors import UserError, nearest
from echelon.report.paper import EXHIBITS, beside_the_paper
from echelon.report.write import write_report, write_table

H200_STEPS_PER_S = 2.19e6
"""AllegroHand, CPO, `--preset paper` on one H200 (results/physics/bench.txt); other tasks run at 1 to 3 million."""


@dataclass(frozen=True)
class Paper(Command):
    """Train what a table or figure of the paper needs, and write the report of it, with figures, beside the paper's
    numbers. Runs are shared between them; the same command resumes where it stopped. All other flags are those of
    echelon train, for every run."""

    refused = (
        Compare.refused
        | dict.fromkeys(("--algo", "--algos", "--variant", "--variants", "--score"), ": the exhibit decides that")
        | dict.fromkeys(("--on", "--per-gpu", "--cpus"), "; echelon compare has it")
    )

    name: Annotated[tyro.conf.Positional[str], place("NAME")]
    """Which table or figure, as below."""
    plan: bool = False
    """Say how many runs, steps and hours are left, and stop."""
    tasks: tuple[str, ...] = ()
    """Instead of the paper's."""
    seeds: Annotated[int, COUNT.up_to(10_000)] = 5
    """How many seeds, 0 to N-1; 5 as in the paper."""
    out: str = "runs/paper"
    """Folder of the run folders."""
    workers: Annotated[int | None, COUNT] = None
    """Runs at a time; if unset, one per GPU, or on a CPU one per two cores."""
    column: str = "5.5in"
    """Width of figures in print."""
    train_flags: TrainFlags = ()

    @classmethod
    def more_help(cls) -> str:
        lines = (f"  {name:<11}{one.title}: {', '.join(one.methods)}" for name, one in EXHIBITS.items())
        return "\n".join(["", "names:", *lines, ""])

    def check(self) -> None:
        if self.name not in EXHIBITS:
            hint = nearest(self.name, EXHIBITS) or "; there are " + ", ".join(EXHIBITS)
            raise UserError(f"the paper has no {self.name}{hint}")
        inches(self.column)

    def run(self) -> int:
        exhibit, flags = EXHIBITS[self.name], (*self.train_flags, "--preset", "paper")
        given = {"seeds": self.seeds, "out": self.out, "workers": self.workers, "train_flags": flags}
        order = Compare(tasks=self.tasks or exhibit.tasks, variants=exhibit.methods, **given)
        order.check()
        jobs = make_jobs(order, quiet=self.plan)  # a plan is about an H200, not this machine
        left = [job for job in jobs if not job.trained]
        wanted = sum(job.config.num_iterations * job.config.steps_per_iteration for job in left)
        steps = wanted - sum(job.newest().get("env_steps", 0) for job in left)
        time = f"{duration(steps / H200_STEPS_PER_S)} of an H200 at {count(H200_STEPS_PER_S)} steps/s"
        cost = f"; {count(steps)} steps are left, about {time}"
        print(f"{exhibit.title}: {len(jobs)} runs, {len(jobs) - len(left)} of them done{cost if left else ''}")
        if self.plan:
            return 0
        (contents, code), out = train_all(order, jobs), order.folder / self.name
        write_report(contents, out, figures=inches(self.column))
        rows = beside_the_paper(contents)
        write_table(rows, out / "figures" / "beside_the_paper.tex")
        print(text_table(rows[1:], rows[0]), end="")
        return code
