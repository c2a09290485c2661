"""`echelon play`: a policy of a run, live in the browser."""

from dataclasses import dataclass
from typing import Annotated, Literal

from echelon.commands.command import OnRun
from echelon.config.ranges import NOT_NEGATIVE, Range
from echelon.errors import require_package


@dataclass(frozen=True)
class Play(OnRun):
    """Show a policy of a run, live in the browser."""

    policy: str = "leader"
    """leader, or a policy's number; the page can change it."""
    port: Annotated[int, Range(low=0, high=65535)] = 0
    """Port of the page; 0 is the first free one from 8080. It listens on localhost only."""
    seed: Annotated[int, NOT_NEGATIVE] = 1000
    """Seed of the episodes."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which checkpoint to show; the page can change it."""
    sampled: bool = False
    """Sample actions instead of acting at the means; the page can change it."""

    def run(self) -> int:
        folder = self.folder()
        require_package("mujoco.studio", "echelon play", "mujoco")  # of MuJoCo 4

        from echelon.evaluation.trained import Trained
        from echelon.viewing.live import play

        play(Trained.load(folder, self.checkpoint), self.policy, self.seed, self.port, self.sampled)
        return 0
