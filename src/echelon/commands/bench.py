"""`echelon bench`: where an iteration's time goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from echelon.commands.lists import task_list
from echelon.commands.train import OnTask
from echelon.config.ranges import COUNT
from echelon.console.wording import show_progress
from echelon.ranks import join
from echelon.runs.durable import require_writable, writing
from echelon.training.resolve import Resolved


@dataclass(frozen=True)
class Bench(OnTask):
    """Train a task for a few iterations and print where their time goes: physics, task logic, policy, targets, gather,
    forward, backward, optimizer, diagnostics, logging. Only the figures are saved. All other flags are those of
    echelon train: --algo sapg --num-envs 4096 --no-capture"""

    repeats: Annotated[int, COUNT] = 20
    """Iterations to time."""
    json: str | None = None
    """Where to write the figures; if unset, bench/TASK-ALGO.json, or with the variant for ALGO."""

    @classmethod
    def more_help(cls) -> str:
        return "\ntasks:\n" + task_list()

    def run(self) -> None:
        def settings() -> tuple[Resolved, Path]:
            resolved = self.resolve(ranks)
            path = Path(self.json or f"bench/{resolved.config.task}-{resolved.config.method}.json")
            if ranks.first:
                require_writable(path)
            return resolved, path

        ranks = join()
        resolved, path = ranks.attempt(settings)
        config = resolved.config
        for note in resolved.notes if ranks.first else ():
            print(note)

        from echelon.bench.measure import bench

        found = bench(config, self.repeats, show_progress if ranks.first else lambda text: None, ranks)
        ranks.leave()
        if not ranks.first:
            return
        show_progress("")
        task = config.source or config.task
        policies = "one policy" if config.num_policies == 1 else f"{config.num_policies} policies"
        sizes = f"{policies}, {config.num_envs} environments, {found.device}"
        print(f"{task}, {config.method}, {sizes}\n")
        print(found.table())
        with writing(path, "choose another --json"):
            path.write_text(found.document())
        print(f"Written to {path}")
