"""`echelon play`: a policy of a run, live in the browser."""

from dataclasses import dataclass
from typing import Literal

from echelon.config.ranges import NOT_NEGATIVE, require
from echelon.errors import UserError, require_package


@dataclass(frozen=True)
class PlayFlags:
    """Flags of `echelon play`."""

    policy: str = "leader"
    """leader, or a policy's number; the page can change it."""
    port: int = 0
    """Where the page is served; 0 takes the first free one from 8080 on. It listens to this machine alone."""
    seed: int = 1000
    """Decides the episodes."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which checkpoint to show; the page can change it."""
    sampled: bool = False
    """Sample actions instead of acting at the means; the page can change it."""


def run(arguments: list[str]) -> int:
    """Show a policy of a run, live in the browser."""
    from echelon.console.flags import parse_after_run

    run, given = parse_after_run(PlayFlags(), arguments, "play", "Show a policy of a run, live in the browser.")
    require("seed", given.seed, NOT_NEGATIVE)
    if not 0 <= given.port < 65536:
        raise UserError(f"--port must be from 0 to 65535, not {given.port}")
    if given.policy == "all":
        raise UserError("play shows one policy at a time, so --policy is leader or a number; the page changes it")

    from echelon.runs.folder import RunFolder

    folder = RunFolder.open(run)
    require_package("mujoco.studio", "echelon play", "mujoco")  # of MuJoCo 4

    from echelon.evaluation.trained import Trained
    from echelon.viewing.live import play

    play(folder, Trained.load(folder, given.checkpoint), given.policy, given.seed, given.port, given.sampled)
    return 0
