"""Every preset: found by name, stored, split into equal minibatches, and the paper's.

`paper_tables.json` has the paper's hyperparameter tables. A preset may differ from them only where it says so, with the
reason.
"""

import json
import typing
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from echelon.algorithms import Mutable, complete
from echelon.algorithms.variants import VARIANTS
from echelon.config import TrainConfig, from_dict, to_dict
from echelon.errors import UserError
from echelon.learning.plans import Plan
from echelon.tasks import TASKS, names, preset
from echelon.training.trainer import make_layout, make_plan

PAPER: dict[str, Any] = json.loads((Path(__file__).parent / "paper_tables.json").read_text())
PAPERS = [task for table in PAPER["tables"] for task in table]


def plan_of(config: TrainConfig) -> Plan:
    config = complete(config)
    return make_plan(make_layout(config), config)


def test_presets_are_found_survive_json_and_say_what_the_paper_prints() -> None:
    assert {*PAPERS, "CartpoleSwingup", "Hopper", "DeceptiveReach"} == set(names())
    for task in TASKS:
        config = preset(task)
        assert config.task == task
        assert from_dict(config, to_dict(config)) == config
        assert config.policies is None  # a preset that fixed it would make `--algo ppo` fail
    with pytest.raises(UserError, match="zzz is not a task; echelon tasks lists them"):
        preset("zzz")
    wrong = []
    for row, tables in PAPER["rows"].items():
        for table, printed in zip(PAPER["tables"], tables, strict=True):
            for task in table:
                paper = printed[task] if isinstance(printed, dict) else printed
                expected = PAPER["differences"].get(f"{task} {row}", paper)
                assert (expected != paper) == (f"{task} {row}" in PAPER["differences"]), f"{task} {row}: no difference"
                value = attrgetter(row)(preset(task))
                if paper is not None and (list(value) if isinstance(value, tuple) else value) != expected:
                    wrong.append(f"{task} {row}: {value}, not {expected}")
    assert wrong == []


@pytest.mark.parametrize("task", TASKS)
def test_minibatches_of_each_algorithm(task: str) -> None:
    """PPO has H/4 minibatches of 4·N rows, SAPG H/4 of 7/6 the size, CPO H/2. Among the controls, SAPG with CPO's
    steps has H/2, PPO with four times its own and CPO centred H."""
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
    for variant in (variant for variant in VARIANTS.values() if not variant.of_task and variant.fits(preset(task))):
        plan = plan_of(variant(preset(task)))
        assert all(size % plan.minibatches == 0 for size in plan.sizes)


def everywhere(*fields: str) -> dict[str, Any]:
    """Settings of every preset of the paper."""
    return {task: attrgetter(*fields)(complete(preset(task))) for task in PAPERS}


def test_what_only_the_released_configs_state() -> None:
    found = everywhere("update.reward_scale", "update.timeout_bootstrap", "update.rate_schedule", "num_iterations")
    assert {task: list(row) for task, row in found.items()} == {task: PAPER["code_only"][task] for task in PAPERS}
    for steps, iterations, horizon in everywhere("env_steps", "num_iterations", "update.horizon").values():
        assert steps == iterations * 24_576 * horizon
    assert everywhere("algo", "num_envs", "num_policies") == dict.fromkeys(PAPERS, ("cpo", 24_576, 6))
    # The released code's normalisers clip at 5 and its conditioning vectors have 32 numbers, on every task.
    fields = ("pull.cap", "update.entropy_coef", "model.obs_clip", "model.phi_dim")
    assert everywhere(*fields) == dict.fromkeys(PAPERS, (100.0, 0.0, 5.0, 32))
    # What PBT mutates: on the hands all but the reward scale, on arms neither rate nor entropy bonus.
    everything = set(typing.get_args(Mutable))
    rate, legs = {"learning_rate", "entropy_coef"}, {"Humanoid", "Anymal"}
    for task in PAPERS:
        left_out = {"kl_threshold"} if task in legs else {"reward_scale"} | (set() if task.endswith("Hand") else rate)
        assert set(preset(task).pbt.mutable) == everything - left_out, task
    # Everything else that SAPG and CPO add is at its default, which is the released code's behaviour.
    defaults = (False, True, TrainConfig().ensemble)
    assert everywhere("pull.normalise", "pull.use_advantage", "ensemble") == dict.fromkeys(PAPERS, defaults)
