"""What to train a task with unless somebody says otherwise: variants of the paper's settings, and the runs behind them.

None of it is confirmed: one or two seeds each on a GPU, `results/ensemble`. The plan of `results/evidence` is to.
"""

from echelon.config import TrainConfig

BEST: dict[str, tuple[str, ...]] = {
    # Successes at 46 M steps, two seeds: 3.3 and 2.6; CPO centred 2.8 and 2.7, the paper's CPO 0.2 and 0.2.
    "AllegroHand": ("ppo_x4",),
    # Solved, of 32 seeds: 31; CPO centred 27, PPO 5.
    "DeceptiveReach": ("cpo_all",),
    # The adversary at the paper's coefficient costs the Allegro hand most of its successes; here none was tried yet.
    "ShadowHand": ("no_adversary",),
}
"""By task. All others start from the paper's settings, which are CPO's without an adversary."""


def best_variants(config: TrainConfig, *, algo_chosen: bool) -> tuple[str, ...]:
    """Variants that the task's settings start from; `algo_chosen` by the user, it decides."""
    if config.preset == "paper":
        return ()
    if not algo_chosen:
        return BEST.get(config.task, ())
    if config.algo == "flock":
        return ("flock",)
    return ("no_adversary",) if config.algo == "cpo" and config.adversary.coef else ()
