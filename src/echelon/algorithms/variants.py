"""Ablations by name: the paper's, and the controls it lacks.

A variant changes a config and nothing else, so `VARIANTS["no_pull"](preset("ShadowHand"))` is the whole ablation. Those
that only make sense under one algorithm select it. Variants can follow one another; those that set optimizer steps or
`cpo_sapg_scale` read the horizon and the number of policies they find, so they come last. `apply_variants` does that by
name and keeps the names in the config, for the run's folder and the report.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from echelon import algorithms
from echelon.algorithms import POLICIES, short_run_pbt
from echelon.config import TrainConfig
from echelon.config.checks import settings_of, with_settings
from echelon.config.schema import ROBUST
from echelon.errors import UserError, nearest


@dataclass(frozen=True)
class Variant:
    """A change of settings, to be called on a config."""

    description: str
    settings: Mapping[str, Any]
    """New values by dotted name."""
    change: Callable[[TrainConfig], Mapping[str, Any]] | None = None
    """More of them, computed from a config that has the others already."""
    of_task: bool = False
    """Whether it changes the task and not the method, so that it adds to the task's best settings."""

    needs: str = ""
    """The setting of a task that it changes, if it is not for every task."""

    def fits(self, config: TrainConfig) -> bool:
        """Whether the task has what it changes."""
        return not self.needs or hasattr(config.env, self.needs)

    def __call__(self, config: TrainConfig) -> TrainConfig:
        if not self.fits(config):
            flag = self.needs.replace("_", "-")
            raise UserError(f"this variant is not for {config.task}: it changes --env.{flag}, which the task lacks")
        config = _changed(config, self.settings)
        return _changed(config, self.change(config)) if self.change else config

    def left_in(self, config: TrainConfig) -> bool:
        """Whether any of its settings but the algorithm still is in `config`. Of computed ones this is not known."""
        own = {name: value for name, value in self.settings.items() if name != "algo"}
        here, whole = settings_of(config), settings_of(with_settings(config, own))
        names = [leaf for leaf in whole for name in own if f"{leaf}.".startswith(f"{name}.")]
        return not names or any(here[name] == whole[name] for name in names)


def _changed(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """`config` with other values of settings that its algorithm has."""
    for name in settings:
        if not hasattr(config, group := name.split(".")[0]):
            raise UserError(f"{group} is not a setting of {config.algo}, so this variant cannot change it")
    return with_settings(config, settings)


def _policies(number: int) -> Callable[[TrainConfig], Mapping[str, Any]]:
    """One policy is PPO; with more than one, PPO becomes CPO."""
    return lambda config: {"algo": "ppo" if number == 1 else "cpo" if config.algo == "ppo" else config.algo}


def _minibatches(rows: int, factor: int) -> Callable[[TrainConfig], Mapping[str, Any]]:
    """`factor` times the minibatches per pass over `rows`·N·H rows, or times their number where it is given.

    With M even blocks CPO has 2·N·H rows, SAPG (1 + 1/M)·N·H, PPO N·H.
    """

    def change(config: TrainConfig) -> Mapping[str, Any]:
        update = config.update
        before = update.minibatches or max(1, int(rows * update.horizon / update.minibatch_envs))
        return {"update.minibatches": factor * before}

    return change


def _sapg_scale(config: TrainConfig) -> Mapping[str, Any]:
    blocks = config.policies or POLICIES
    return {"ensemble.loss_scale": 2 * blocks / (blocks + 1)}


def _short_pbt(config: TrainConfig) -> Mapping[str, Any]:
    """Members have equally many environments, so what the division leaves over is dropped."""
    members = config.policies or POLICIES
    short = vars(short_run_pbt(config.num_iterations * config.steps_per_iteration, members))
    return {
        "num_envs": config.num_envs // members * members,
        **{f"pbt.{name}": value for name, value in short.items() if name != "mutable"},
    }


def _hands(config: TrainConfig) -> Mapping[str, Any]:
    """Places of the fingers among the actions."""
    return {"noise.actions": ("7:23", "30:46") if "TwoArms" in config.task else ("7:23",)}


NO_ADVERSARY = {"algo": "cpo", "adversary.coef": 0.0}
CENTRED = {"update.kl_rows": "own", "ensemble.advantage_scope": "centred"}
NORMALISED_PULL = {"pull.normalise": True, "pull.beta": 0.005, "pull.temperature": 1.0}

VARIANTS: dict[str, Variant] = {
    # The paper's ablations.
    "no_pull": Variant(
        "CPO without the KL term (β = 0); its rows stay in the plan, so this is not SAPG",
        {"algo": "cpo", "pull.beta": 0.0},
    ),
    "no_adversary": Variant("CPO without the adversarial reward (λ_adv = 0)", NO_ADVERSARY),
    "unpaid_adversary": Variant(
        "the same, with a discriminator that is trained for its loss alone", NO_ADVERSARY | {"adversary.watch": True}
    ),
    **{
        f"lambda_f_{value}": Variant(
            f"CPO at λ_f = {value}, with β = 0.001 and no adversarial reward",
            NO_ADVERSARY | {"pull.temperature": value, "pull.beta": 1e-3},
        )
        for value in (0.5, 0.2, 0.1, 0.05)
    },
    "entropy_on": Variant("entropy scale 0.005, whatever the preset says", {"update.entropy_scale": 0.005}),
    "entropy_off": Variant("no entropy bonus", {"update.entropy_scale": 0.0}),
    # How many policies to split one batch between.
    "policies_1": Variant("one policy, which leaves PPO", {"policies": 1}, _policies(1)),
    **{
        f"policies_{m}": Variant(f"{m} policies share the environments", {"policies": m}, _policies(m))
        for m in (2, 4, 6, 8, 12)
    },
    "pbt_short": Variant("PBT with checks and mutations scaled to the length of the run", {"algo": "pbt"}, _short_pbt),
    "robust": Variant(
        "every episode has other masses, friction, joints, gains, delays, noise and pushes (docs/randomise.md)",
        {"env.randomise": ROBUST},
        of_task=True,
        needs="randomise",
    ),
    "quiet_fingers": Variant(
        "PPO whose fingers act with σ 0.4, and half of whose episodes begin in a grasp (results/noise)",
        {"algo": "ppo", "noise.sigma": 0.4, "env.gripped_starts": 0.5}
        | {"update.minibatches": 16, "update.clip": 0.2, "update.kl_rows": "own", "update.entropy_scale": 0.0},
        _hands,
        needs="gripped_starts",
    ),
    # Controls.
    "sapg_cpo_steps": Variant(
        "SAPG with the number of optimizer steps per iteration that CPO takes", {"algo": "sapg"}, _minibatches(2, 1)
    ),
    "ppo_x4": Variant(
        "PPO with four times the optimizer steps, on minibatches of a quarter of the rows",
        {"algo": "ppo"},
        _minibatches(1, 4),
    ),
    "ppo_mlp": Variant("PPO with a network without memory", {"algo": "ppo", "model.lstm": 0}),
    "sapg_shifted_clip": Variant(
        "SAPG with the leader's clip around π_leader,old / π_follower,old",
        {"algo": "sapg", "ensemble.clip_centre": "old_ratio"},
    ),
    "cpo_even_pull": Variant(
        "CPO whose pull weighs every action of the leader alike (w = 1)", {"algo": "cpo", "pull.use_advantage": False}
    ),
    "cpo_sapg_scale": Variant("CPO at SAPG's loss scale, which gradient clipping sees", {"algo": "cpo"}, _sapg_scale),
    # Where to start instead of the paper's settings: results/ensemble. Takes ppo_x4's number of steps: twice CPO's.
    "cpo_centred": Variant(
        "CPO with centred advantages, normalised pull, the KL rule on own rows, no adversary and twice the steps",
        NO_ADVERSARY | CENTRED | NORMALISED_PULL,
        _minibatches(2, 2),
    ),
    "cpo_all": Variant(
        "the same, and the leader borrows all rows of all followers",
        NO_ADVERSARY | CENTRED | NORMALISED_PULL | {"ensemble.borrow_from": "all"},
        _minibatches(2, 2),
    ),
}
"""Every variant by name."""


def apply_variants(config: TrainConfig, names: str | Sequence[str]) -> TrainConfig:
    """`config` changed by variants, in this order, with their names stored in it.

    An algorithm's name is a variant too: it selects the algorithm, and alone it needs no other name.
    """
    names, known = [names] if isinstance(names, str) else names, algorithms.names()
    for name in names:
        if name in VARIANTS:
            config = VARIANTS[name](config)
        elif name in known:
            config = replace(config, algo=name)
        else:
            hint = nearest(name, [*VARIANTS, *known]) or "; echelon variants lists them"
            raise UserError(f"{name} is not a variant{hint}")
    return replace(config, variant=() if set(names) <= set(known) else tuple(names))
