"""`echelon distil`: train a student that imitates a run and may see less."""

from dataclasses import dataclass

from echelon.algorithms import student_of
from echelon.commands.command import OnRun, names_flag
from echelon.commands.train import Trains, given_flags, in_classes
from echelon.config.checks import with_settings
from echelon.ranks import Ranks
from echelon.training.resolve import Resolved, resolve

NOT_HERE = {"--algo": ": a student imitates", "--variant": ": a student has none", "--env": ": it is the teacher's"}
NOT_HERE |= {"--resume": "; echelon train --resume RUN resumes a student"}


@dataclass(frozen=True)
class Distil(Trains, OnRun):
    """Train a student that imitates the leader of a run, its teacher, and may see less: --obs policy leaves it what a
    robot measures. Flags of echelon train give it a --history, another --model or an --out of its own; echelon distil
    RUN --help lists them. The student is a run like any other, and needs its teacher only to train."""

    help_of_task = True
    refused = NOT_HERE

    def run(self) -> int:
        return self.train()

    def settings(self, ranks: Ranks) -> Resolved:
        """Those of the teacher's run, as a student needs them, changed by flags."""
        folder, iteration = self.folder(), None
        if self.which != "newest":
            from echelon.runs.checkpoint import load  # with torch, which a wrong flag must not wait for

            iteration = load(folder, self.which).iteration
        start = student_of(in_classes(folder.config), self.run_folder, iteration)
        given = given_flags(start, self.train_flags, f"distil {self.run_folder}", "Train a student of a run.")
        fit_envs = not names_flag(self.train_flags, "--num-envs")
        return resolve(with_settings(start, given), fit_envs=fit_envs, ranks=ranks)
