"""A task whose step is compiled equals the plain one; on a CPU everything is traced, and then run as it is."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpu import needs_gpu

from echelon.config.schema import ROBUST
from echelon.tasks import maker, preset
from echelon.tasks.hopper.task import Hopper

STEPS = 12


def distance(task: str, device: str, num_envs: int, **env: object) -> float:
    """The largest difference between steps of a plain and of a compiled task, in what a policy gets and what is logged,
    relative to numbers above 1.

    Episodes are short, so that every step starts some.
    """
    config = preset(task)
    config = replace(config, env=replace(config.env, episode_length=5, **env))
    plain, compiled = (maker(config, spread_clocks=True)(num_envs, torch.device(device), 3) for _ in range(2))
    plain.fixed_shapes = True
    compiled.fuse()
    generator = torch.Generator(device).manual_seed(0)
    worst = 0.0
    with torch.inference_mode():
        first, second = plain.reset(), compiled.reset()
        # Nothing is left of the steps that compiled it; what is drawn of physics is rounded differently on CUDA.
        torch.testing.assert_close(first, second, rtol=0, atol=1e-4 if device == "cuda" else 0)
        torch._dynamo.utils.counters.clear()  # a reset on CUDA compiles for tensors that are made outside of rollouts
        for _ in range(STEPS):
            action = torch.randn(num_envs, plain.action_dim, generator=generator, device=device)
            steps = [vars(env.step(action.clone())) for env in (plain, compiled)]
            for name, ours in steps[0].items():
                theirs = steps[1][name]
                pairs = zip(ours.values(), theirs.values(), strict=True) if isinstance(ours, dict) else [(ours, theirs)]
                apart = [
                    ((a.double() - b.double()).abs() / a.double().abs().clamp(min=1)).max().item() for a, b in pairs
                ]
                worst = max(worst, *apart)
            if device == "cuda":  # rounding must not add up
                compiled.load_state_dict(plain.state_dict())
    assert not torch._dynamo.utils.counters["stats"], "it was compiled again"
    return worst


def test_a_compiled_step_is_the_plain_one(traced: None) -> None:
    assert distance("AllegroHand", "cpu", 8, randomise=ROBUST) == 0


def test_a_step_that_cannot_be_compiled_stays_plain_and_says_so(
    traced: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As tasks of one's own may: this one draws by its generator and looks at what it drew."""

    def draws(task: Hopper) -> None:
        if torch.rand(1, generator=task.generator).item() < 2:
            task.clock += 0

    monkeypatch.setattr(Hopper, "proceed", draws)
    config = preset("Hopper")
    plain, tried = (maker(config, spread_clocks=True)(4, torch.device("cpu"), 3) for _ in range(2))
    tried.fuse()
    said = capsys.readouterr().err
    assert "Hopper's step is not compiled, so it is slower: " in said
    assert f"({Path(__file__).name}, line {draws.__code__.co_firstlineno + 1})" in said
    for env in (plain, tried):
        env.reset()
    steps = [env.step(torch.zeros(4, env.action_dim)) for env in (plain, tried)]
    assert steps[0].obs["policy"].equal(steps[1].obs["policy"])


@needs_gpu
@pytest.mark.parametrize("task", ["AllegroHand", "AllegroKukaReorientation", "Anymal", "FrankaCubeStack", "Humanoid"])
@pytest.mark.parametrize("env", [{}, {"randomise": ROBUST}])
def test_a_compiled_step_rounds_like_the_plain_one_on_cuda(task: str, env: dict) -> None:
    # A reward of progress is a difference of numbers that are nearly equal, times 60 (Humanoid) or 200 (AllegroKuka).
    assert distance(task, "cuda", 512, **env) < 2e-2
