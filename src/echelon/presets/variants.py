"""Ablations by name: the paper's, and the controls it lacks.

A variant changes a config and nothing else, so `VARIANTS["no_pull"](preset("ShadowHand"))` is the whole ablation. Those
that only make sense under one algorithm select it. Variants can follow one another; those that set optimizer steps or
`cpo_sapg_scale` read the horizon and the number of policies they find, so they come last. `apply_variants` does that by
name and keeps the names in the config, for the run's folder and the report.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from echelon.config import ALGORITHMS, TrainConfig, UpdateConfig
from echelon.errors import UserError, nearest
from echelon.presets.paper import POLICIES
from echelon.presets.population import short_run_pbt


@dataclass(frozen=True)
class Variant:
    """A change of settings, to be called on a config."""

    description: str
    change: Callable[[TrainConfig], TrainConfig]

    def __call__(self, config: TrainConfig) -> TrainConfig:
        return self.change(config)


def _no_pull(config: TrainConfig) -> TrainConfig:
    return replace(config, algo="cpo", pull=replace(config.pull, beta=0.0))


def _no_adversary(config: TrainConfig) -> TrainConfig:
    return replace(config, algo="cpo", adversary=replace(config.adversary, coef=0.0))


def _lambda_f(temperature: float) -> Callable[[TrainConfig], TrainConfig]:
    def change(config: TrainConfig) -> TrainConfig:
        config = _no_adversary(config)
        return replace(config, pull=replace(config.pull, temperature=temperature, beta=1e-3))

    return change


def _entropy(scale: float) -> Callable[[TrainConfig], TrainConfig]:
    def change(config: TrainConfig) -> TrainConfig:
        return replace(config, update=replace(config.update, entropy_scale=scale))

    return change


def _policies(number: int) -> Callable[[TrainConfig], TrainConfig]:
    def change(config: TrainConfig) -> TrainConfig:
        algo = "ppo" if number == 1 else "cpo" if config.algo == "ppo" else config.algo
        return replace(config, algo=algo, policies=number)

    return change


def _minibatches(update: UpdateConfig, rows: int) -> int:
    """Minibatches per pass over `rows`·N·H rows, unless their number is given."""
    return update.minibatches or max(1, int(rows * update.horizon / update.minibatch_envs))


def _sapg_cpo_steps(config: TrainConfig) -> TrainConfig:
    """With M even blocks CPO has 2·N·H rows, SAPG (1 + 1/M)·N·H; both then take CPO's number of steps."""
    return replace(config, algo="sapg", update=replace(config.update, minibatches=_minibatches(config.update, 2)))


def _ppo_x4(config: TrainConfig) -> TrainConfig:
    return replace(config, algo="ppo", update=replace(config.update, minibatches=4 * _minibatches(config.update, 1)))


def _cpo_centred(config: TrainConfig) -> TrainConfig:
    """Takes `ppo_x4`'s number of steps: twice CPO's."""
    config = _no_adversary(config)
    return replace(
        config,
        update=replace(config.update, kl_rows="own", minibatches=2 * _minibatches(config.update, 2)),
        ensemble=replace(config.ensemble, advantage_scope="centred"),
        pull=replace(config.pull, normalise=True, beta=0.005, temperature=1.0),
    )


def _sapg_shifted_clip(config: TrainConfig) -> TrainConfig:
    return replace(config, algo="sapg", ensemble=replace(config.ensemble, clip_centre="old_ratio"))


def _cpo_even_pull(config: TrainConfig) -> TrainConfig:
    return replace(config, algo="cpo", pull=replace(config.pull, use_advantage=False))


def _cpo_sapg_scale(config: TrainConfig) -> TrainConfig:
    config = replace(config, algo="cpo")
    blocks = config.policies or POLICIES
    return replace(config, ensemble=replace(config.ensemble, loss_scale=2 * blocks / (blocks + 1)))


def _pbt_short(config: TrainConfig) -> TrainConfig:
    """Members have equally many environments, so what the division leaves over is dropped."""
    config = replace(config, algo="pbt")
    members = config.policies or POLICIES
    return replace(
        config,
        num_envs=config.num_envs // members * members,
        pbt=short_run_pbt(config.num_iterations * config.steps_per_iteration, members),
    )


VARIANTS: dict[str, Variant] = {
    # The paper's ablations.
    "no_pull": Variant("CPO without the KL term (β = 0); its rows stay in the plan, so this is not SAPG", _no_pull),
    "no_adversary": Variant("CPO without the adversarial reward (λ_adv = 0)", _no_adversary),
    **{
        f"lambda_f_{value}": Variant(
            f"CPO at λ_f = {value}, with β = 0.001 and no adversarial reward", _lambda_f(value)
        )
        for value in (0.5, 0.2, 0.1, 0.05)
    },
    "entropy_on": Variant("entropy scale 0.005, whatever the preset says", _entropy(0.005)),
    "entropy_off": Variant("no entropy bonus", _entropy(0.0)),
    # How many policies to split one batch between.
    "policies_1": Variant("one policy, which leaves PPO", _policies(1)),
    **{f"policies_{m}": Variant(f"{m} policies share the environments", _policies(m)) for m in (2, 4, 6, 8, 12)},
    "pbt_short": Variant("PBT with checks and mutations scaled to the length of the run", _pbt_short),
    # Controls.
    "sapg_cpo_steps": Variant("SAPG with as many optimizer steps per iteration as CPO takes", _sapg_cpo_steps),
    "ppo_x4": Variant("PPO with four times the optimizer steps, on minibatches of a quarter of the rows", _ppo_x4),
    "sapg_shifted_clip": Variant(
        "SAPG with the leader's clip around π_leader,old / π_follower,old", _sapg_shifted_clip
    ),
    "cpo_even_pull": Variant("CPO whose pull weighs every action of the leader alike (w = 1)", _cpo_even_pull),
    "cpo_sapg_scale": Variant("CPO at SAPG's loss scale, which gradient clipping sees", _cpo_sapg_scale),
    # Where to start instead of the paper's settings: results/ensemble.
    "cpo_centred": Variant(
        "CPO with centred advantages, normalised pull, the KL rule on own rows, no adversary and twice the steps",
        _cpo_centred,
    ),
}
"""Every variant by name."""


def apply_variants(config: TrainConfig, names: Sequence[str]) -> TrainConfig:
    """`config` changed by variants, in this order, with their names stored in it.

    An algorithm's name is a variant too: it selects the algorithm, and alone it needs no other name.
    """
    for name in names:
        config = replace(config, algo=name) if name in ALGORITHMS else _find(name)(config)
    return replace(config, variant=() if set(names) <= set(ALGORITHMS) else tuple(names))


def _find(name: str) -> Variant:
    """The variant of this name."""
    if name not in VARIANTS:
        known = [*VARIANTS, *ALGORITHMS]
        raise UserError(f"{name} is not a variant{nearest(name, known) or '; echelon variants lists them'}")
    return VARIANTS[name]
