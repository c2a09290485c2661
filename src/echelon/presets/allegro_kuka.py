"""Allegro hands on Kuka arms: the paper's second table.

The released configs bootstrap no time-outs here: an episode that runs out of time ends like a failed one.
"""

from dataclasses import replace

from echelon.config import AdversaryConfig, ModelConfig, TrainConfig
from echelon.presets.paper import PAPER, steps
from echelon.tasks.allegro_kuka.settings import (
    AllegroKukaConfig,
    AllegroKukaRegraspingConfig,
    AllegroKukaReorientationConfig,
    AllegroKukaThrowConfig,
    AllegroKukaTwoArmsReorientationConfig,
)


def _kuka(env: AllegroKukaConfig, entropy_scale: float, temperature: float) -> TrainConfig:
    """The training of the four tasks differs in these two numbers."""
    return replace(
        PAPER,
        task=type(env).__name__.removesuffix("Config"),
        env=env,
        env_steps=steps(iterations=52_000, horizon=16),
        model=ModelConfig(hidden=(768, 512, 256), lstm=768),
        update=replace(
            PAPER.update,
            horizon=16,
            sequence=16,
            mini_epochs=2,
            learning_rate=1e-4,
            kl_threshold=0.016,
            rate_schedule="mini_epoch",
            clip=0.1,
            entropy_scale=entropy_scale,
            reward_scale=0.01,
            timeout_bootstrap="none",
        ),
        pull=replace(PAPER.pull, beta=1e-3, temperature=temperature),
        adversary=AdversaryConfig(coef=0.0, hidden=(1024, 1024, 512, 512)),
    )


PRESETS: dict[str, TrainConfig] = {
    config.task: config
    for config in (
        _kuka(AllegroKukaRegraspingConfig(), entropy_scale=0.0, temperature=0.2),
        _kuka(AllegroKukaReorientationConfig(), entropy_scale=0.005, temperature=0.2),
        _kuka(AllegroKukaThrowConfig(), entropy_scale=0.0, temperature=0.1),
        _kuka(AllegroKukaTwoArmsReorientationConfig(), entropy_scale=0.005, temperature=0.2),
    )
}
