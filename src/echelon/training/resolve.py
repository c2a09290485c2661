"""From the settings somebody asked for to those that are trained with, checked once for everybody.

Values are checked before torch is imported, so that a mistake is answered at once.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from echelon.config import TrainConfig
from echelon.config.checks import require_device, validate
from echelon.errors import UserError, nearest

if TYPE_CHECKING:
    import torch

GPU_SIZED = 1024
"""A preset with more environments than this is sized for a GPU."""
CPU_ENVS = 384
"""Environments such a preset gets on a CPU; divides into every preset's minibatches."""


@dataclass(frozen=True)
class Resolved:
    """Settings that can be trained with. Only `resolve` makes them."""

    config: TrainConfig
    """Complete: `device` is `cpu` or `cuda`, and the environments split into equal minibatches."""
    notes: tuple[str, ...] = ()
    """What was changed, a sentence each, for a person to read."""

    @property
    def device(self) -> "torch.device":
        """Where it trains."""
        import torch

        return torch.device(self.config.device)


def resolve(config: TrainConfig, *, fit_envs: bool = False) -> Resolved:
    """Settle what `config` leaves open, and raise a `UserError` for the first thing in it that cannot work.

    `fit_envs` allows another number of environments than the preset's, where the device or the algorithm needs one.
    """
    validate(config)
    device = choose_device(config.device).type
    config, notes = replace(config, device=device), []  # pyright: ignore[reportArgumentType]  # cpu or cuda
    if config.precision == "bf16" and device == "cpu":
        raise UserError("--precision bf16 needs a CUDA GPU; leave it out on a CPU")
    _require_algorithm(config.algo)
    if fit_envs:
        for fit in (_fit_to_device, _fit_to_population):
            config, note = fit(config)
            notes += [note] if note else []
    _check_policies(config)
    _require_even_minibatches(config)
    return Resolved(config, tuple(notes))


def choose_device(name: str) -> "torch.device":
    """`auto` is CUDA where there is one."""
    import torch

    require_device(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _require_algorithm(name: str) -> None:
    """Refuse an algorithm that nobody registered."""
    from echelon.algorithms import ALGORITHMS

    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise UserError(f"--algo takes one of {known}, not {name!r}{nearest(name, ALGORITHMS)}")


def _fit_to_device(config: TrainConfig) -> tuple[TrainConfig, str]:
    """A preset sized for a GPU gets fewer environments on a CPU."""
    if config.device != "cpu" or config.num_envs <= GPU_SIZED:
        return config, ""
    note = f"on a CPU: {CPU_ENVS} environments instead of {config.num_envs:,}; --num-envs sets another number"
    return replace(config, num_envs=CPU_ENVS), note


def _fit_to_population(config: TrainConfig) -> tuple[TrainConfig, str]:
    """The members of a population have equally many environments, also where the preset's number does not divide."""
    over = config.num_envs % config.num_policies
    if config.algo != "pbt" or not over or config.num_envs < config.num_policies:
        return config, ""
    fitting = config.num_envs - over
    note = f"{fitting} environments instead of {config.num_envs}: as many for each member"
    return replace(config, num_envs=fitting), note


def _check_policies(config: TrainConfig) -> None:
    """Refuse a number of policies that does not fit the algorithm or the environments."""
    if config.algo == "ppo" and config.num_policies != 1:
        raise UserError(f"ppo trains one policy, not {config.num_policies}; drop --policies or choose --algo cpo")
    if config.algo == "pbt" and config.num_envs % config.num_policies:
        below = config.num_envs // config.num_policies * config.num_policies
        raise UserError(
            f"--num-envs {config.num_envs} does not divide between the {config.num_policies} members of a population; "
            f"{max(below, config.num_policies)} would"
        )
    if config.num_envs < config.num_policies:
        raise UserError(
            f"--num-envs {config.num_envs} is too few for {config.num_policies} policies, which need one each; "
            "raise it or lower --policies"
        )


def _require_even_minibatches(config: TrainConfig) -> None:
    """Build the plan once: it refuses environments that do not split, before a run folder exists."""
    from echelon.rollout.layout import Layout
    from echelon.training.trainer import make_plan

    make_plan(Layout(config.num_envs, config.num_policies), config)
