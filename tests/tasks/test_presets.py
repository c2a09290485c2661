"""Every preset: found by name, stored, and split into as many equal minibatches as the paper's batch sizes make."""

from dataclasses import replace

import pytest

from echelon.algorithms import complete
from echelon.algorithms.variants import VARIANTS
from echelon.config import TrainConfig, from_dict, to_dict
from echelon.errors import UserError
from echelon.learning.plans import Plan
from echelon.tasks import TASKS, preset
from echelon.training.trainer import make_layout, make_plan


def plan_of(config: TrainConfig) -> Plan:
    config = complete(config)
    return make_plan(make_layout(config), config)


def test_presets_are_found_and_survive_json() -> None:
    for task in TASKS:
        config = preset(task)
        assert config.task == task
        assert from_dict(config, to_dict(config)) == config
        assert config.policies is None  # a preset that fixed it would make `--algo ppo` fail
    with pytest.raises(UserError, match="zzz is not a task; echelon tasks lists them"):
        preset("zzz")


@pytest.mark.parametrize("task", TASKS)
def test_minibatches_of_each_algorithm(task: str) -> None:
    """PPO has H/4 minibatches of 4·N rows, SAPG as many of 7/6 the size, CPO twice as many; of the controls, SAPG with
    CPO's steps as many as CPO, PPO with four times its own and CPO centred H."""
    config = preset(task)
    plans = {algo: plan_of(replace(config, algo=algo)) for algo in ("ppo", "sapg", "cpo")}
    few = config.update.horizon // 4
    assert {algo: plan.minibatches for algo, plan in plans.items()} == {"ppo": few, "sapg": few, "cpo": 2 * few}
    if config.num_envs % complete(config).num_policies == 0:
        rows = config.steps_per_iteration
        sizes = {algo: plan.size * plan.length for algo, plan in plans.items()}
        assert sizes == {"ppo": rows, "sapg": rows * 7 // 6, "cpo": 2 * rows}
    controls = [plan_of(VARIANTS[name](config)).minibatches for name in ("sapg_cpo_steps", "ppo_x4", "cpo_centred")]
    assert controls == [2 * few, 4 * few, 4 * few]


@pytest.mark.parametrize("task", ["ShadowHand", "AllegroKukaReorientation", "CartpoleSwingup", "Hopper"])
def test_every_variant_splits_evenly(task: str) -> None:
    for variant in VARIANTS.values():
        plan = plan_of(variant(preset(task)))
        assert all(size % plan.minibatches == 0 for size in plan.sizes)
