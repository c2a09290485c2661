"""Small tasks that learn on a laptop's CPU in minutes."""

from echelon.config import ModelConfig, PullConfig, TrainConfig, UpdateConfig
from echelon.presets.population import short_run_pbt
from echelon.tasks.settings import CartpoleConfig, DeceptiveReachConfig, HopperConfig

PRESETS: dict[str, TrainConfig] = {
    "CartpoleSwingup": TrainConfig(
        task="CartpoleSwingup",
        num_envs=256,
        env_steps=1_000_000,
        pbt=short_run_pbt(1_000_000),
        env=CartpoleConfig(),
        model=ModelConfig(hidden=(64, 64)),
        update=UpdateConfig(horizon=16, mini_epochs=5, learning_rate=5e-4, entropy_scale=0.005),
        pull=PullConfig(beta=1e-3, temperature=0.2),
    ),
    "Hopper": TrainConfig(
        task="Hopper",
        num_envs=512,
        env_steps=2_000_000,
        pbt=short_run_pbt(2_000_000),
        env=HopperConfig(),
        model=ModelConfig(hidden=(128, 64)),
        update=UpdateConfig(horizon=16, mini_epochs=5, learning_rate=5e-4),
        pull=PullConfig(beta=5e-3, temperature=0.2),
    ),
    "DeceptiveReach": TrainConfig(
        task="DeceptiveReach",
        num_envs=768,
        env_steps=800_000,
        pbt=short_run_pbt(800_000),
        env=DeceptiveReachConfig(),
        model=ModelConfig(hidden=(32, 32)),
        update=UpdateConfig(horizon=16, mini_epochs=4, learning_rate=5e-4, entropy_scale=0.05),
        pull=PullConfig(beta=1e-3, temperature=0.2),
    ),
}
