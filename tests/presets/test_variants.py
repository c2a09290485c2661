"""Each ablation changes what its description says, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from echelon.config import TrainConfig
from echelon.config.checks import settings_of, validate
from echelon.errors import UserError
from echelon.presets import FAMILIES, preset
from echelon.presets.variants import VARIANTS, apply_variants

CHANGES: dict[str, dict[str, Any]] = {
    "no_pull": {"pull.beta": 0.0},
    "no_adversary": {"adversary.coef": 0.0},
    "lambda_f_0.5": {"pull.temperature": 0.5, "pull.beta": 0.001, "adversary.coef": 0.0},
    "lambda_f_0.2": {"pull.temperature": 0.2, "pull.beta": 0.001, "adversary.coef": 0.0},
    "lambda_f_0.1": {"pull.temperature": 0.1, "pull.beta": 0.001, "adversary.coef": 0.0},
    "lambda_f_0.05": {"pull.temperature": 0.05, "pull.beta": 0.001, "adversary.coef": 0.0},
    "entropy_on": {"update.entropy_scale": 0.005},
    "entropy_off": {"update.entropy_scale": 0.0},
    "policies_1": {"policies": 1, "algo": "ppo"},
    "policies_2": {"policies": 2},
    "policies_4": {"policies": 4},
    "policies_6": {"policies": 6},
    "policies_8": {"policies": 8},
    "policies_12": {"policies": 12},
    # 20,447,232,000 steps: 3,407,872,000 of each member, a check after each sixtieth.
    "pbt_short": {
        "algo": "pbt",
        "pbt.interval": 56_797_866,
        "pbt.initial_delay": 227_191_466,
        "pbt.wait": 227_191_466,
        "pbt.mutation_probability": 0.5,
        "pbt.mutation_low": 1.2,
        "pbt.mutation_high": 3.0,
    },
    # 2·N·8 rows of CPO in minibatches of 4·N.
    "sapg_cpo_steps": {"algo": "sapg", "update.minibatches": 4},
    # 4 times PPO's N·8 rows in minibatches of 4·N.
    "ppo_x4": {"algo": "ppo", "update.minibatches": 8},
    "sapg_shifted_clip": {"algo": "sapg", "ensemble.clip_centre": "old_ratio"},
    "cpo_even_pull": {"pull.use_advantage": False},
    # 2·6 blocks of rows against SAPG's 6 + 1.
    "cpo_sapg_scale": {"ensemble.loss_scale": 12 / 7},
    # Twice CPO's 4 minibatches.
    "cpo_centred": {
        "adversary.coef": 0.0,
        "update.kl_rows": "own",
        "update.minibatches": 8,
        "ensemble.advantage_scope": "centred",
        "pull.normalise": True,
        "pull.beta": 0.005,
        "pull.temperature": 1.0,
    },
}
"""Every variant's effect on AllegroHand, typed from the ablations it stands for."""


def test_every_variant_is_listed() -> None:
    assert set(CHANGES) == set(VARIANTS)


@pytest.mark.parametrize("name", CHANGES)
def test_variant_does_what_it_says_and_nothing_else(name: str) -> None:
    config = preset("AllegroHand")
    expected = settings_of(config) | CHANGES[name]
    assert settings_of(VARIANTS[name](config)) == expected
    if name != "entropy_off":  # this preset has no entropy bonus anyway
        assert expected != settings_of(config)


@pytest.mark.parametrize("task", FAMILIES)
@pytest.mark.parametrize("name", VARIANTS)
def test_variant_of_every_preset_is_valid(name: str, task: str) -> None:
    validate(VARIANTS[name](preset(task)))


@pytest.mark.parametrize("name", VARIANTS)
def test_description_is_one_line(name: str) -> None:
    assert VARIANTS[name].description
    assert "\n" not in VARIANTS[name].description


@pytest.mark.parametrize(
    "name", ["no_pull", "no_adversary", "lambda_f_0.2", "cpo_even_pull", "cpo_sapg_scale", "cpo_centred"]
)
def test_ablations_of_cpo_select_cpo(name: str) -> None:
    assert VARIANTS[name](replace(preset("ShadowHand"), algo="sapg")).algo == "cpo"


def test_more_policies_than_one_leave_ppo() -> None:
    ppo = replace(preset("ShadowHand"), algo="ppo")
    assert VARIANTS["policies_4"](ppo).algo == "cpo"
    assert VARIANTS["policies_4"](replace(ppo, algo="sapg")).algo == "sapg"


@pytest.mark.parametrize(
    ("horizon", "minibatch_envs", "given", "expected"),
    [(8, 4.0, None, 4), (16, 4.0, None, 8), (1, 4.0, None, 1), (16, 4.0, 5, 5)],
)
def test_cpo_steps(horizon: int, minibatch_envs: float, given: int | None, expected: int) -> None:
    update = replace(TrainConfig().update, horizon=horizon, minibatch_envs=minibatch_envs, minibatches=given)
    assert VARIANTS["sapg_cpo_steps"](TrainConfig(update=update)).update.minibatches == expected


@pytest.mark.parametrize(
    ("horizon", "minibatch_envs", "given", "ppo", "cpo"),
    [
        (8, 4.0, None, 8, 8),  # 4·(8/4) and 2·(2·8/4)
        (16, 4.0, None, 16, 16),
        (1, 4.0, None, 4, 2),  # either has one minibatch, however few its rows
        (16, 4.0, 3, 12, 6),
    ],
)
def test_more_steps_multiply_what_the_algorithm_takes(
    horizon: int, minibatch_envs: float, given: int | None, ppo: int, cpo: int
) -> None:
    update = replace(TrainConfig().update, horizon=horizon, minibatch_envs=minibatch_envs, minibatches=given)
    config = TrainConfig(update=update)
    assert VARIANTS["ppo_x4"](config).update.minibatches == ppo
    assert VARIANTS["cpo_centred"](config).update.minibatches == cpo


@pytest.mark.parametrize(("policies", "scale"), [(2, 4 / 3), (6, 12 / 7), (12, 24 / 13)])
def test_loss_scale_follows_the_number_of_policies(policies: int, scale: float) -> None:
    config = VARIANTS["cpo_sapg_scale"](TrainConfig(policies=policies))
    assert config.ensemble.loss_scale == pytest.approx(scale)


def test_variants_by_name_follow_one_another_and_are_remembered() -> None:
    config = preset("AllegroHand")
    changed = apply_variants(config, ["no_pull", "policies_4"])
    assert changed == replace(VARIANTS["policies_4"](VARIANTS["no_pull"](config)), variant=("no_pull", "policies_4"))


def test_an_algorithm_is_a_variant_too() -> None:
    """Alone it needs no other name than its own."""
    config = preset("AllegroHand")
    assert apply_variants(config, ["sapg"]) == replace(config, algo="sapg")
    changed = apply_variants(config, ["sapg", "entropy_on"])
    assert (changed.algo, changed.update.entropy_scale, changed.method) == ("sapg", 0.005, "sapg+entropy_on")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_pul", "no_pul is not a variant; did you mean no_pull?"),
        ("lambda_f_0.3", "lambda_f_0.3 is not a variant; did you mean lambda_f_0"),
        ("sagp", "sagp is not a variant; did you mean sapg?"),
        ("xyz", "xyz is not a variant; echelon variants lists them"),
    ],
)
def test_a_wrong_name_gets_the_nearest(name: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        apply_variants(TrainConfig(), [name])
    assert str(caught.value).startswith(sentence)
