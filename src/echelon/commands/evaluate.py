"""`echelon evaluate`: score every policy of a run."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from echelon.commands.command import OnRun
from echelon.config.checks import choose_device
from echelon.config.ranges import COUNT, NOT_NEGATIVE
from echelon.config.schema import PLAIN, WIDE, RandomiseConfig
from echelon.console.wording import LOG_WIDTH
from echelon.errors import UserError
from echelon.runs.durable import require_writable, writing


@dataclass(frozen=True)
class Evaluate(OnRun):
    """Score every policy of a run: in plain physics, or with what --randomise or --as-trained say."""

    refused = dict.fromkeys(
        ("--episodes", "--num-episodes"), "; --num-envs is their number: each environment counts one"
    )

    num_envs: Annotated[int, COUNT] = 64
    """Environments per policy; each counts one episode."""
    seed: Annotated[int, NOT_NEGATIVE] = 1000
    """Seed of the episodes; other than in training, so that they are new ones."""
    json: str | None = None
    """Where to write the scores; unset, evaluation.json in the run, or a name that says what differs."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to simulate; auto is CUDA if there is a GPU."""
    as_trained: bool = False
    """Randomise as in training."""
    robustness: bool = False
    """Score while one parameter of the physics after another changes, into robustness.json, for the report."""
    randomise: RandomiseConfig = PLAIN

    def check(self) -> None:
        super().check()
        if self.as_trained and (self.robustness or self.randomise.active()):
            other = "--robustness" if self.robustness else "--randomise"
            raise UserError(f"--as-trained and {other} were both given; leave one of them out")

    def run(self) -> None:
        folder = self.folder()
        choose_device(self.device)
        plain = not (self.as_trained or self.randomise.active())
        name = "robustness" if self.robustness else "evaluation" if plain else "evaluation-randomised"
        target = folder.path / f"{name}.json" if self.json is None else Path(self.json)
        require_writable(target)

        from rich.console import Console

        from echelon.evaluation.evaluate import evaluate, headline, robustness, robustness_table, score_table, verdict
        from echelon.runs.checkpoint import is_newest, saved_iterations
        from echelon.runs.evaluations import write_evaluation

        console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
        how = (self.num_envs, self.seed, self.device, self.which)
        if self.robustness:
            evaluation = robustness(folder, *how, WIDE if plain else self.randomise)
            console.print(robustness_table(evaluation))
            print(verdict(evaluation, self.run_folder, self.which))
        else:
            evaluation = evaluate(folder, *how, randomise=None if self.as_trained else self.randomise)
            print(headline(evaluation))
            console.print(score_table(evaluation))
        aside = ""
        if self.json is None and not is_newest(folder, self.which, evaluation.iteration):
            # The run's own scores, which reports read, stay as they are.
            aside = f"; {target.name} is for the newest checkpoint, of iteration {max(saved_iterations(folder))}"
            target = target.with_stem(f"{name}-iteration-{evaluation.iteration}")
        with writing(target, "choose another --json"):
            write_evaluation(evaluation, target)
        print(f"Written to {target}{aside}")
