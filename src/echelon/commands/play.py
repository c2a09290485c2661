"""`echelon play`: a policy of a run, or an exported one, live in the browser."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated

from echelon.commands.command import OnPolicies
from echelon.config.ranges import NOT_NEGATIVE, Range
from echelon.errors import UserError, is_installed, require_package


@dataclass(frozen=True)
class Play(OnPolicies):
    """Show a policy of a run, or an exported one, live in the browser."""

    policy: str = "leader"
    """leader or a policy's number, which the page can change; without RUN, an exported policy's name or file."""
    port: Annotated[int, Range(low=0, high=65535)] = 0
    """Port of the page; 0 is the first free one from 8080. It listens on localhost only."""
    seed: Annotated[int, NOT_NEGATIVE] = 1000
    """Seed of the episodes."""
    sampled: bool = False
    """Sample actions instead of acting at the means; the page can change it."""

    def run(self) -> None:
        source = self.source()
        if self.sampled and not self.run_folder:
            raise UserError("an exported policy acts at its means; leave out --sampled")
        require_package("mujoco", "echelon play", "mujoco")
        if not is_installed("mujoco.studio"):
            told = f"echelon play needs MuJoCo 4, not {version('mujoco')}"
            raise UserError(f"{told}; if your simulator pins that, as mjlab does, take echelon record")

        from echelon.export.files import opened
        from echelon.viewing.live import play

        play(opened(source, self.which), self.shown, self.seed, self.port, self.sampled)
