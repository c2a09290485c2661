"""Work recorded as a CUDA graph does what it did before: on any device for its plain calls, the rest on a GPU."""

from dataclasses import replace

import pytest
import torch
from gpu import needs_gpu
from tiny import build, unfused

from echelon.algorithms import AdversaryConfig
from echelon.device.capture import Captured


def test_on_a_cpu_every_call_is_plain() -> None:
    calls = []
    captured = Captured(lambda: calls.append(1) or len(calls), torch.device("cpu"))
    assert [captured() for _ in range(3)] == [1, 2, 3]


@needs_gpu
def test_the_host_runs_twice_and_the_device_every_time() -> None:
    x, calls = torch.zeros(3, device="cuda"), []

    def run() -> torch.Tensor:
        calls.append(1)
        x.add_(1)
        return 2 * x

    captured = Captured(run, x.device)
    for count in range(1, 6):
        assert captured().tolist() == [2.0 * count] * 3
    assert len(calls) == 2  # as it is, then recording, which runs nothing
    plain = Captured(run, x.device, enabled=False)
    plain(), plain(), plain()
    assert len(calls) == 5


@needs_gpu
def test_random_numbers_go_on_as_they_would_have() -> None:
    device = torch.device("cuda")
    one, other = (torch.Generator(device).manual_seed(3) for _ in range(2))
    captured = Captured(lambda: torch.rand(5, generator=one, device=device), device, (one,))
    for _ in range(4):
        assert captured().equal(torch.rand(5, generator=other, device=device))
    assert one.get_state().equal(other.get_state())


@needs_gpu
@pytest.mark.parametrize("lstm", [0, 16])
@pytest.mark.parametrize("algo", ["ppo", "sapg", "cpo"])
def test_captured_training_equals_eager_training(algo: str, lstm: int) -> None:
    """Five iterations from the same seed, in FP32: the same numbers to rounding."""
    config = unfused("DeceptiveReach", algo, lstm, adversary=AdversaryConfig(coef=0.01, hidden=(32,)))
    eager, captured = (build(replace(config, capture=capture), "cuda") for capture in (False, True))
    for _ in range(5):
        expected, found = eager.iterate().metrics, captured.iterate().metrics
        assert list(found) == list(expected)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5, nan_ok=True)
    torch.testing.assert_close(*(dict(x.model.named_parameters()) for x in (captured, eager)), rtol=1e-3, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize("task", ["Hopper", "AllegroHand"])
def test_a_captured_rollout_equals_an_eager_one(task: str) -> None:
    """From the same saved state, MuJoCo Warp included; contacts amplify rounding, so the first steps are compared."""
    config = unfused(task, "cpo")
    eager, captured = (build(replace(config, capture=capture), "cuda") for capture in (False, True))
    for _ in range(3):
        captured.iterate()
    eager.load_state_dict(captured.state_dict())
    expected, found = eager._collect(), captured._collect()
    torch.testing.assert_close(found.action[:2], expected.action[:2], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.obs["policy"][:3], expected.obs["policy"][:3], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(found.reward[:2], expected.reward[:2], rtol=1e-2, atol=1e-3)
    assert found.terminated[:2].equal(expected.terminated[:2])
    assert found.truncated.float().mean() == expected.truncated.float().mean()
    # The eager one and the captured one drew the same random numbers, and the same number of them.
    assert captured.generator.get_state().equal(eager.generator.get_state())
    assert captured.env.generator.get_state().equal(eager.env.generator.get_state())


@needs_gpu
def test_a_captured_run_goes_on_from_a_saved_state() -> None:
    """Loading is in place, so a graph that was recorded before it sees what was loaded."""
    config = unfused("DeceptiveReach", "cpo", 16)
    first, second = (build(replace(config, seed=seed), "cuda") for seed in (0, 1))
    for _ in range(3):
        first.iterate()
        second.iterate()
    second.load_state_dict(first.state_dict())
    expected, found = first.iterate().metrics, second.iterate().metrics
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)
