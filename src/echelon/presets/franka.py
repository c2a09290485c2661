"""A Franka arm that pushes and stacks cubes: the paper's third table.

Sequences are 16 long as the table says. The released configs name them by an obsolete key and train on 4.
"""

from dataclasses import replace

from echelon.config import AdversaryConfig, ModelConfig, TaskConfig, TrainConfig
from echelon.presets.paper import PAPER, steps
from echelon.tasks.settings import FrankaCubePushConfig, FrankaCubeStackConfig


def _franka(task: str, env: TaskConfig) -> TrainConfig:
    """The two tasks share every setting of the training."""
    return replace(
        PAPER,
        task=task,
        env=env,
        env_steps=steps(iterations=13_000, horizon=16),
        model=ModelConfig(hidden=(256, 128, 64), lstm=256),
        update=replace(
            PAPER.update,
            horizon=16,
            sequence=16,
            mini_epochs=8,
            learning_rate=5e-4,
            kl_threshold=0.008,
            rate_schedule="mini_epoch",
            clip=0.2,
            entropy_scale=0.005,
            reward_scale=1.0,
            timeout_bootstrap="final_obs",
        ),
        pull=replace(PAPER.pull, beta=5e-4, temperature=0.1),
        adversary=AdversaryConfig(coef=0.0, hidden=(256, 128, 64)),
    )


PRESETS: dict[str, TrainConfig] = {
    "FrankaCubePush": _franka("FrankaCubePush", FrankaCubePushConfig()),
    "FrankaCubeStack": _franka("FrankaCubeStack", FrankaCubeStackConfig()),
}
