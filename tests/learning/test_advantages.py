"""Targets by hand: γ = τ = ½, rewards 1 2 3 4, values 1 1 2 2 and 8 after the last step."""

import pytest
import torch
from torch import Tensor

from echelon.learning.targets import gae, off_policy_gae, one_step, v_trace
from echelon.rollout.buffer import Trajectory

REWARD, VALUE = [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 2.0, 2.0, 8.0]
FINAL = 6.0
"""V(final_obs) where the time limit cut; 99 stands where nothing may read it."""

# δ_t = r + ½V_{t+1} - V without an end: ½, 2, 2, 6. Then A_3 = 6, A_2 = 2 + ¼·6, A_1 = 2 + ¼·3.5, A_0 = ½ + ¼·2.875.
# Cut at t = 1 with value 6: δ_1 = 2 + ½·6 - 1 = 4, and nothing of t = 2 flows back. Ended at t = 1: δ_1 = 2 - 1 = 1.
# Ended at t = 3: δ_3 = 4 - 2 = 2. Cut at t = 3: δ_3 = 4 + ½·6 - 2 = 5, whatever V(s_4) of the next episode says.
CASES = {
    "no end": ((), (), [1.21875, 2.875, 3.5, 6.0], [0.5, 2.0, 2.0, 6.0]),
    "cut in the middle": ((), (1,), [1.5, 4.0, 3.5, 6.0], [0.5, 4.0, 2.0, 6.0]),
    "ended in the middle": ((1,), (), [0.75, 1.0, 3.5, 6.0], [0.5, 1.0, 2.0, 6.0]),
    "both at once is an end": ((1,), (1,), [0.75, 1.0, 3.5, 6.0], [0.5, 1.0, 2.0, 6.0]),
    "ended at the last step": ((3,), (), [1.15625, 2.625, 2.5, 2.0], [0.5, 2.0, 2.0, 2.0]),
    "cut at the last step": ((), (3,), [1.203125, 2.8125, 3.25, 5.0], [0.5, 2.0, 2.0, 5.0]),
    "an end and a cut": ((0,), (2,), [0.0, 3.0, 4.0, 6.0], [0.0, 2.0, 4.0, 6.0]),
}
"""Steps that end, steps that are cut, GAE, one-step TD. In the last case δ_0 = 0, δ_2 = 3 + 3 - 2 and A_1 = 2 + ¼·4."""


def batch(bootstrap: float = FINAL) -> Trajectory:
    """All cases side by side, `[4, 7]`."""
    terminated = torch.zeros(4, len(CASES), dtype=torch.bool)
    truncated = terminated.clone()
    for column, (ends, cuts, *_) in enumerate(CASES.values()):
        terminated[list(ends), column] = True
        truncated[list(cuts), column] = True
    final_value = torch.where(truncated & ~terminated, bootstrap, 99.0).double()
    return Trajectory(columns(REWARD), terminated, truncated, final_value)


def columns(numbers: list[float]) -> Tensor:
    """The same `[T]` numbers for every case."""
    return torch.tensor(numbers, dtype=torch.float64)[:, None].expand(-1, len(CASES))


def expected(which: int) -> Tensor:
    return torch.tensor([case[which] for case in CASES.values()], dtype=torch.float64).T


def test_gae_and_one_step_of_all_ends_in_one_batch() -> None:
    found = gae(batch(), columns(VALUE), discount=0.5, smoothing=0.5)
    torch.testing.assert_close(found, expected(2), rtol=0, atol=1e-15)
    for one in (one_step(batch(), columns(VALUE), discount=0.5), gae(batch(), columns(VALUE), 0.5, smoothing=0.0)):
        torch.testing.assert_close(one, expected(3), rtol=0, atol=1e-15)


def test_off_policy_by_hand_and_for_equal_and_impossible_rows() -> None:
    # Ratios 3, 1, ½, 2 without an end; above 1 they count as 1. Corrections v - V from the back:
    # 6; ½·2 + ½·½·6 = 2.5; 2 + ½·2.5 = 3.25; ½ + ½·3.25 = 2.125. So v = 3.125, 4.25, 4.5, 8.
    # Advantages r + ½ v_{t+1} - V: 1 + 2.125 - 1, 2 + 2.25 - 1, 3 + 4 - 2, 4 + 4 - 2.
    log_ratio = torch.tensor([3.0, 1.0, 0.5, 2.0], dtype=torch.float64).log()[:, None].expand(-1, len(CASES))
    advantage, returns = v_trace(batch(), columns(VALUE), log_ratio, discount=0.5)
    assert returns[:, 0].tolist() == pytest.approx([3.125, 4.25, 4.5, 8.0], abs=1e-14)
    assert advantage[:, 0].tolist() == pytest.approx([2.125, 3.25, 5.0, 6.0], abs=1e-14)
    # GAE with δ = ½, 2, 2, 6 and γτ = ¼: A_3 = 6, A_2 = 2 + ¼·1·6, A_1 = 2 + ¼·½·3.5, A_0 = ½ + ¼·A_1.
    traced = off_policy_gae(batch(), columns(VALUE), log_ratio, 0.5, 0.5)
    assert traced[:, 0].tolist() == pytest.approx([1.109375, 2.4375, 3.5, 6.0], abs=1e-14)
    # Ratios of 1 make it the n-step return; a ratio of 0 leaves v = V, and one beyond float64 counts as 1.
    advantage, returns = v_trace(batch(), columns(VALUE), torch.zeros(4, len(CASES), dtype=torch.float64), discount=0.5)
    torch.testing.assert_close(advantage, gae(batch(), columns(VALUE), 0.5, 1.0))
    torch.testing.assert_close(returns, advantage + columns(VALUE)[:-1], rtol=0, atol=1e-15)
    log_ratio = torch.tensor([-1e4, 1e4, -1e4, 1e4], dtype=torch.float64)[:, None].expand(-1, len(CASES))
    _, returns = v_trace(batch(), columns(VALUE), log_ratio, discount=0.5)
    # v_2 = V_2 = 2, so v_1 = 2 + ½·2 = 3.
    assert returns[:, 0].tolist() == [1.0, 3.0, 2.0, 8.0]
