"""Default settings of tasks: variants of the paper's settings, and the runs behind them.

None of it is confirmed: one to three seeds each on a GPU, `results/ensemble`. The plan of `results/evidence` is to.
"""

from echelon.config import TrainConfig

BEST: dict[str, tuple[str, ...]] = {
    # Successes at 46 M steps, three seeds: 3.2, 2.6, 1.9; CPO centred 2.8 and 2.7, the paper's
    # CPO 0.2 and 0.2.
    "AllegroHand": ("ppo_x4",),
    # Solved, of 32 seeds: 31; CPO centred 27, PPO 5.
    "DeceptiveReach": ("cpo_all",),
    # Return at 100 M steps, one seed: 285; PPO with the paper's LSTM 21 (20 at 77 M with sequences of 16), its CPO 20.
    "FrankaCubeStack": ("ppo_mlp",),
    # Successes at 275 M steps, one seed: 22.9; with the adversary at the paper's coefficient 4.9.
    "ShadowHand": ("no_adversary",),
}
"""By task. All others start from the paper's settings, which are CPO's without an adversary. Of them only
AllegroKukaRegrasping has another arm trained as far, SAPG
that borrows from all: 0.43 objects an episode at 300 M steps, CPO 2.8."""


def best_variants(config: TrainConfig, *, algo_chosen: bool) -> tuple[str, ...]:
    """Variants that the task's settings start from; `algo_chosen` by the user, it decides."""
    if config.preset == "paper":
        return ()
    if not algo_chosen:
        return BEST.get(config.task, ())
    return ("no_adversary",) if config.algo == "cpo" and config.adversary.coef else ()
