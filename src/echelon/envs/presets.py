"""Settings to start from in environments that are not built in, by the library they come from."""

from dataclasses import replace

from echelon.config import ModelConfig, TaskConfig, TrainConfig, UpdateConfig
from echelon.envs import sources
from echelon.errors import UserError

ON_DEVICE = TrainConfig(
    num_envs=4096,
    env_steps=200_000_000,
    model=ModelConfig(hidden=(512, 256, 128)),
    # These libraries limit no action, so a mean beyond 1 is no fault.
    update=UpdateConfig(horizon=24, learning_rate=1e-3, kl_threshold=0.01, bounds_coef=0.0, minibatches=4),
)
"""Thousands of environments in one simulation on a GPU."""

IN_PROCESS = TrainConfig(
    algo="ppo",
    num_envs=32,
    env_steps=1_000_000,
    model=ModelConfig(hidden=(256, 256)),
    update=UpdateConfig(horizon=64, mini_epochs=10, minibatches=16, learning_rate=3e-4, kl_threshold=0.016),
)
"""Tens of environments, stepped one after another on a CPU: too few to split between policies."""

LIBRARIES = {
    "gymnasium": IN_PROCESS,
    "mjlab": ON_DEVICE,
    "isaaclab": ON_DEVICE,
    "maniskill": replace(ON_DEVICE, num_envs=1024, update=replace(ON_DEVICE.update, bounds_coef=1e-4, horizon=32)),
    "playground": replace(ON_DEVICE, num_envs=2048, update=replace(ON_DEVICE.update, bounds_coef=1e-4)),
}


def foreign_preset(source: str) -> TrainConfig:
    """The settings of an environment by its source.

    A task's folder has a preset in its `settings`; any other class or function may have an attribute `preset`. Without
    one the defaults are taken, with the settings that the class's constructor asks for.
    """
    library = source.partition(":")[0]
    if library in sources.ADAPTERS:
        config = LIBRARIES[library]
    elif (info := sources.in_folder(source)) is not None:
        config = info.preset
    else:
        make = sources.code(source)
        config = getattr(make, "preset", None) or TrainConfig(env=(sources.settings_class(make) or TaskConfig)())
        if not isinstance(config, TrainConfig):
            raise UserError(f"the preset of {source} is a {type(config).__name__}, not a TrainConfig")
    return replace(config, task=sources.task_name(source), source=source)
