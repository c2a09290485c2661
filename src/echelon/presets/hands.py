"""In-hand reorientation with the Shadow and the Allegro hand: the paper's first table."""

from dataclasses import replace

from echelon.config import AdversaryConfig, ModelConfig, TrainConfig
from echelon.presets.paper import PAPER, steps
from echelon.tasks.settings import AllegroHandConfig, ShadowHandConfig

HANDS = replace(
    PAPER,
    env_steps=steps(iterations=104_000, horizon=8),
    update=replace(
        PAPER.update,
        horizon=8,
        mini_epochs=5,
        learning_rate=5e-4,
        kl_threshold=0.016,
        rate_schedule="mini_epoch",
        clip=0.2,
        reward_scale=0.01,
        timeout_bootstrap="final_obs",
    ),
)

DISCRIMINATOR = (1024, 1024, 512, 512)

PRESETS: dict[str, TrainConfig] = {
    "ShadowHand": replace(
        HANDS,
        task="ShadowHand",
        env=ShadowHandConfig(),
        model=ModelConfig(hidden=(512, 512, 256, 128)),
        update=replace(HANDS.update, entropy_scale=0.005),
        pull=replace(HANDS.pull, beta=1e-3, temperature=0.2),
        adversary=AdversaryConfig(coef=0.01, hidden=DISCRIMINATOR),
    ),
    "AllegroHand": replace(
        HANDS,
        task="AllegroHand",
        env=AllegroHandConfig(),
        model=ModelConfig(hidden=(512, 256, 128)),
        update=replace(HANDS.update, entropy_scale=0.0),
        pull=replace(HANDS.pull, beta=5e-4, temperature=0.1),
        adversary=AdversaryConfig(coef=0.001, hidden=DISCRIMINATOR),
    ),
}
