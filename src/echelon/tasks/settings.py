"""Settings that every task on MuJoCo has. Like every `settings.py`, it imports neither torch nor a simulator."""

from dataclasses import dataclass
from typing import Annotated, Literal

from echelon.config import TaskConfig
from echelon.config.ranges import COUNT


@dataclass(frozen=True)
class MujocoTaskConfig(TaskConfig):
    """Settings that every MuJoCo task has."""

    episode_length: Annotated[int, COUNT] = 250
    """Control steps after which an episode is truncated."""
    contacts: Annotated[int | None, COUNT] = None
    """Contact buffer of a simulation on CUDA; found by a probe if unset, and then stored with the run."""
    constraints: Annotated[int | None, COUNT] = None
    """Constraint rows in the buffer of a simulation on CUDA; found and stored as `contacts` is."""
    physics: Literal["fused", "stock"] = "fused"
    """On CUDA: a few kernels for a whole substep, or MuJoCo Warp's own, for comparison."""
