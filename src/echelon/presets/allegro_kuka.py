"""Allegro hands on Kuka arms: the paper's second table.

The released configs bootstrap no time-outs here: an episode that runs out of time ends like a failed one.
"""

from dataclasses import replace

from echelon.config import AdversaryConfig, ModelConfig, TrainConfig
from echelon.presets.paper import PAPER, steps


def _kuka(task: str, entropy_scale: float, temperature: float) -> TrainConfig:
    """The four tasks differ in these two numbers."""
    return replace(
        PAPER,
        task=task,
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
        _kuka("AllegroKukaRegrasping", entropy_scale=0.0, temperature=0.2),
        _kuka("AllegroKukaReorientation", entropy_scale=0.005, temperature=0.2),
        _kuka("AllegroKukaThrow", entropy_scale=0.0, temperature=0.1),
        _kuka("AllegroKukaTwoArmsReorientation", entropy_scale=0.005, temperature=0.2),
    )
}
