"""Check and complete the settings of a run, once for all commands.

Values are checked before torch is imported, so that a mistake is answered at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
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
OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc", "cannot allocate memory")


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
    config = check(config)
    device = elsewhere or choose_device(config.device).type
    config = replace(config, device=device)  # pyright: ignore[reportArgumentType]  # cpu or cuda
    if config.precision == "bf16" and device == "cpu":
        raise UserError("--precision bf16 needs a CUDA GPU; leave it out on a CPU")
    from echelon.algorithms import complete, find
    from echelon.training.trainer import make_layout, make_plan

    config, notes = complete(config), list[str]()
    policies, networks = config.num_policies, find(config.algo).networks(config.num_policies)
    if fit_envs and device == "cpu" and config.num_envs > GPU_SIZED:
        notes += [f"on a CPU: {CPU_ENVS} environments instead of {config.num_envs:,}; --num-envs sets another number"]
        config = replace(config, num_envs=CPU_ENVS)
    fitting = config.num_envs // networks * networks
    if fit_envs and 0 < fitting < config.num_envs:
        notes += [f"{fitting} environments instead of {config.num_envs}: an equal number for each member"]
        config = replace(config, num_envs=fitting)
    if policies > networks == 1 and (each := config.num_envs // policies) < FEW_ENVS:
        few = f"{each} environments for each of {policies} policies are few for an ensemble"
        notes += [f"{few}; --algo ppo trains one policy, or take {FEW_ENVS * policies} environments or more"]

    def plan(config: TrainConfig) -> "Plan":
        return make_plan(make_layout(config, "cpu" if elsewhere else ranks.device(device), ranks), config)

    try:  # before a run folder exists that cannot be trained
        return Resolved(config, plan(config), tuple(notes))
    except UserError as error:
        wanted = 2 * config.update.horizon / config.update.minibatch_envs
        numbers = sorted(range(1, 65), key=lambda number: abs(number - wanted))
        for number in numbers if config.update.minibatches is None else ():
            try:
                plan(replace(config, update=replace(config.update, minibatches=number)))
            except UserError:
                continue
            raise UserError(f"{error}; or --update.minibatches {number}") from None
        raise


@contextmanager
def explain_full_memory(config: TrainConfig) -> Iterator[None]:
    """Turn an out-of-memory error into a `UserError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error).lower() for words in OUT_OF_MEMORY):
            raise
        hidden, fewer = " ".join(map(str, config.model.hidden)), max(1, config.num_envs // 2)
        sizes = f"{config.num_envs:,} environments, a horizon of {config.update.horizon} and networks of {hidden}"
        raise UserError(f"{sizes} do not fit into the memory of the {config.device}; try --num-envs {fewer}") from None
