"""Settings that were asked for become those that are trained with, or one sentence."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import tiny

from echelon.algorithms import BUILT_IN, CpoTrainConfig
from echelon.algorithms.variants import VARIANTS
from echelon.config import ModelConfig, TrainConfig, UpdateConfig
from echelon.errors import UserError
from echelon.tasks import TASKS, preset
from echelon.training.resolve import explain_full_memory, resolve

HERE = "cuda" if torch.cuda.is_available() else "cpu"


def test_what_is_left_open_is_completed_and_the_rest_stays() -> None:
    """Device, number of policies, and the plan; without followers, SAPG and CPO are PPO."""
    for algo, policies in {"ppo": 1, "pbt": 6, "sapg": 6, "cpo": 6}.items():
        config = BUILT_IN[algo](algo=algo, num_envs=252, device="cpu", update=UpdateConfig(minibatches=2))
        resolved = resolve(config)
        assert (resolved.config, resolved.notes) == (replace(config, policies=policies), ())
        assert resolved.device == torch.device("cpu")
        assert resolve(resolved.config).config == resolved.config
    for algo in ("sapg", "cpo"):
        assert resolve(TrainConfig(algo=algo, policies=1, device="cpu")).config.policies == 1
    resolved = resolve(TrainConfig(device="auto"))
    assert (resolved.config.device, resolved.device.type) == (HERE, HERE)
    plan = resolve(CpoTrainConfig(policies=3, num_envs=12, device="cpu", update=UpdateConfig(minibatches=2))).plan
    assert (plan.layout.sizes, plan.minibatches) == ([4, 4, 4], 2)


def test_memory_that_runs_out_is_one_sentence_and_so_is_cuda_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sentence = (
        "256 environments, a horizon of 16 and networks of 64 32 do not fit into the memory of the cpu; "
        "try --num-envs 128"
    )
    config = TrainConfig(num_envs=256, device="cpu", model=ModelConfig(hidden=(64, 32)))
    for error in (MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")):
        with pytest.raises(UserError, match=sentence), explain_full_memory(config):
            raise error
    with pytest.raises(RuntimeError, match="mat1 and mat2"), explain_full_memory(config):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no CUDA GPU; use --device cpu or auto"):
        resolve(TrainConfig(device="cuda"))


def test_environments_are_fitted_to_a_cpu_and_to_a_population() -> None:
    """Only if the caller allows it. 256 = 6 · 42 + 4; 24,576 becomes 384 on a CPU and then 380 = 5 · 76."""
    big = CpoTrainConfig(policies=6, num_envs=24_576, device="cpu")
    resolved = resolve(big, fit_envs=True)
    assert resolved.config == replace(big, num_envs=384)
    # Not that there is no GPU: --device cpu is a choice.
    assert resolved.notes == ("on a CPU: 384 environments instead of 24,576; --num-envs sets another number",)
    assert resolve(big).config == big
    small = replace(big, num_envs=256)
    assert (resolve(small, fit_envs=True).config, resolve(small, fit_envs=True).notes) == (small, ())
    config = TrainConfig(algo="pbt", num_envs=256, device="cpu", update=UpdateConfig(minibatches=2))
    resolved = resolve(config, fit_envs=True)
    assert resolved.config.num_envs == 252
    assert resolved.notes == ("252 environments instead of 256: an equal number for each member",)
    assert resolve(replace(config, policies=4), fit_envs=True).notes == ()
    both = resolve(replace(config, num_envs=24_576, policies=5), fit_envs=True)
    assert (both.config.num_envs, len(both.notes)) == (380, 2)


def test_every_preset_and_variant_can_be_trained_as_the_command_line_does() -> None:
    for task in TASKS:
        variants = [variant for variant in VARIANTS.values() if variant.fits(preset(task))]
        for change in (lambda config: config, *variants):
            resolve(replace(change(preset(task)), device="cpu"), fit_envs=True)


def test_few_environments_for_an_ensemble_are_advised_against(tmp_path: Path) -> None:
    """15 for each of six; 16 are enough, and one policy or a population needs none of it."""
    config = tiny("DeceptiveReach", tmp_path, policies=6, num_envs=90)
    (note,) = resolve(config).notes
    assert note.startswith("15 environments for each of 6 policies are few for an ensemble; --algo ppo trains one")
    assert "or take 96 environments" in note
    for changes in ({"num_envs": 96}, {"algo": "ppo", "policies": 1}, {"algo": "pbt"}):
        assert resolve(replace(config, **changes)).notes == ()
