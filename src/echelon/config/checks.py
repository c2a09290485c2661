"""Refuse values of the right type that make no sense, before a run folder is written."""

import dataclasses
from typing import TYPE_CHECKING, Any

from echelon.config import ForeignSettings, ForeignTrainConfig, TaskConfig, TrainConfig, from_dict, to_dict
from echelon.config.ranges import ANY, ranges_of, require
from echelon.config.spelling import spelling
from echelon.errors import UserError, require_package

if TYPE_CHECKING:
    import torch


def validate(config: TrainConfig) -> None:
    """Raise a `UserError` for the first value that cannot work, as far as can be told without importing torch.

    `echelon.training.resolve` checks the rest: algorithm, device, and how environments split between policies.
    """
    from_dict(config, to_dict(config))  # from Python, a value may have a type that cannot be read back from config.json
    check_ranges(config)
    if config.model.lstm and config.update.horizon % config.update.sequence:
        raise UserError(
            f"--update.sequence {config.update.sequence} does not divide --update.horizon {config.update.horizon}, "
            "which training an LSTM needs; change one of them"
        )
    model = config.model
    if model.max_sigma is not None and model.initial_sigma > model.max_sigma:
        raise UserError(f"--model.initial-sigma {model.initial_sigma:g} is above --model.max-sigma {model.max_sigma:g}")
    if config.wandb != "off":
        require_package("wandb", "--wandb", "wandb")


def check_ranges(config: Any, group: str = "") -> None:
    """Raise a `UserError` for the first number of a dataclass that is out of the range in its annotation.

    `group` is how users spell it: settings of a task are in `env.`
    """
    ranges = ranges_of(config, group)
    for name, value in settings_of(config, group).items():
        numbers = value if isinstance(value, tuple) else (value,)
        if name in ranges and not numbers:
            raise UserError(f"{spelling(name)} needs at least one value")
        for number in numbers:
            if isinstance(number, int | float):
                require(name, number, ranges.get(name, ANY))
    task = config.env if isinstance(config, TrainConfig) else config
    if isinstance(task, TaskConfig):
        task.check()


def require_device(device: str) -> None:
    """Raise a `UserError` for CUDA if torch sees none."""
    if device != "cuda":
        return
    import torch  # slow to import, and needed only here

    if not torch.cuda.is_available():
        raise UserError("--device cuda was asked for but torch sees no CUDA GPU; use --device cpu or auto")


def choose_device(name: str) -> "torch.device":
    """The torch device for `cpu`, `cuda` or `auto`, which is CUDA where there is one."""
    import torch

    require_device(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def settings_of(config: Any, group: str = "") -> dict[str, Any]:
    """A config's leaves by dotted name, groups opened."""
    if isinstance(config, ForeignSettings):
        config = config.values
    if not isinstance(config, dict):
        values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        config = values | values.pop("foreign") if isinstance(config, ForeignTrainConfig) else values
    leaves: dict[str, Any] = {}
    for name, value in config.items():
        if dataclasses.is_dataclass(value) or isinstance(value, dict):
            leaves |= settings_of(value, f"{group}{name}.")
        else:
            leaves[group + name] = value
    return leaves
