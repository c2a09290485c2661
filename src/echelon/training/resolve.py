"""Check and complete the settings of a run, once for all commands.

Values are checked before torch is imported, so that a mistake is answered at once.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from echelon.config import TrainConfig
from echelon.config.checks import check, choose_device
from echelon.errors import UserError
from echelon.ranks import ALONE, Ranks

if TYPE_CHECKING:
    import torch

    from echelon.learning.plans import Plan

FEW_ENVS = 16
"""Environments of a policy below which an ensemble is advised against."""
GPU_SIZED = 1024
"""A preset with more environments than this is sized for a GPU."""
CPU_ENVS = 384
"""Environments such a preset gets on a CPU; divides into every preset's minibatches."""


@dataclass(frozen=True)
class Resolved:
    """Settings that can be trained with. Only `resolve` makes them."""

    config: TrainConfig
    """Complete: `device` is `cpu` or `cuda`, and there is a number of policies."""
    plan: "Plan"
    """What an update trains on: the environments split between policies, and into equal minibatches."""
    notes: tuple[str, ...] = ()
    """What was changed or is worth a warning, a sentence each."""

    @property
    def ranks(self) -> Ranks:
        """The processes that train it together; this one alone unless they are several."""
        return self.plan.layout.ranks

    @property
    def device(self) -> "torch.device":
        """Where it trains."""
        return self.ranks.device(self.config.device)


def resolve(
    config: TrainConfig, *, fit_envs: bool = False, elsewhere: str | None = None, ranks: Ranks = ALONE
) -> Resolved:
    """Complete `config`, and raise a `UserError` for the first setting that cannot work.

    `fit_envs` allows another number of environments than the preset's, where the device or the algorithm needs one.
    `elsewhere` is the device, `cpu` or `cuda`, if another machine will train; this one may have no GPU.
    """
    check(config)
    device = elsewhere or choose_device(config.device).type
    config = replace(config, device=device)  # pyright: ignore[reportArgumentType]  # cpu or cuda
    if config.precision == "bf16" and device == "cpu":
        raise UserError("--precision bf16 needs a CUDA GPU; leave it out on a CPU")
    from echelon.algorithms import complete
    from echelon.training.trainer import make_layout, make_plan

    config, notes = _fitted(complete(config)) if fit_envs else (complete(config), [])
    notes += _few_environments(config)
    try:  # before a run folder exists that cannot be trained
        where = "cpu" if elsewhere else ranks.device(device)
        plan = make_plan(make_layout(config, where, ranks), config)
    except UserError as error:
        raise UserError(f"{error}{_other_minibatches(config, ranks)}") from None
    return Resolved(config, plan, tuple(notes))


def _few_environments(config: TrainConfig) -> list[str]:
    """Advice if an ensemble is split into parts that are too small to learn from."""
    from echelon.algorithms import find

    policies, each = config.num_policies, config.num_envs // config.num_policies
    if policies == 1 or find(config.algo).networks(policies) > 1 or each >= FEW_ENVS:
        return []
    few = f"{each} environments for each of {policies} policies are few for an ensemble"
    return [f"{few}; --algo ppo trains one policy, or take {FEW_ENVS * policies} environments or more"]


def _other_minibatches(config: TrainConfig, ranks: Ranks) -> str:
    """A number of minibatches that the environments would split into, as advice; empty if the user set the number."""
    from echelon.training.trainer import make_layout, make_plan

    if config.update.minibatches is not None:
        return ""
    wanted = 2 * config.update.horizon / config.update.minibatch_envs
    for number in sorted(range(1, 65), key=lambda number: abs(number - wanted)):
        other = replace(config, update=replace(config.update, minibatches=number))
        try:
            make_plan(make_layout(other, ranks=ranks), other)
        except UserError:
            continue
        return f"; or --update.minibatches {number}"
    return ""


def _fitted(config: TrainConfig) -> tuple[TrainConfig, list[str]]:
    """Fewer environments than the preset's on a CPU if it is sized for a GPU, and equal numbers for each network."""
    from echelon.algorithms import find

    notes: list[str] = []
    if config.device == "cpu" and config.num_envs > GPU_SIZED:
        notes += [f"on a CPU: {CPU_ENVS} environments instead of {config.num_envs:,}; --num-envs sets another number"]
        config = replace(config, num_envs=CPU_ENVS)
    networks = find(config.algo).networks(config.num_policies)
    fitting = config.num_envs - config.num_envs % networks
    if 0 < fitting < config.num_envs:
        notes += [f"{fitting} environments instead of {config.num_envs}: an equal number for each member"]
        config = replace(config, num_envs=fitting)
    return config, notes
