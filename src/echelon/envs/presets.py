"""Libraries whose environments have an adapter here, and the settings to start from."""

from dataclasses import replace

from echelon.config import ModelConfig, TrainConfig, UpdateConfig

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
"""By the extra that installs it. `NAME_env.py` of this package has `make(name, num_envs, device, seed, **args)`."""
