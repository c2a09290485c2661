"""Running statistics against numpy on everything seen so far."""

import numpy as np
import pytest
import torch

from echelon.models.linear import stack
from echelon.models.normaliser import EPSILON, Normaliser


def reference_statistics(batches: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, variance and count of the whole, decomposed into within and between batches in one go.

    The reference multiplies the unbiased variance of a batch by its count, and starts from one sample of mean 0 and
    variance 1.
    """
    count = 1 + sum(len(batch) for batch in batches)
    mean = sum(batch.sum(0) for batch in batches) / count
    within = 1.0 + sum(len(batch) * batch.var(0, ddof=1) for batch in batches)
    between = mean**2 + sum(len(batch) * (batch.mean(0) - mean) ** 2 for batch in batches)
    return mean, (within + between) / count, count


def test_many_small_merges_of_float32_far_from_zero_stay_accurate() -> None:
    """Positions of 1e6 with a deviation of 2: squares of float32 would have lost all of it."""
    rng = np.random.default_rng(1)
    batches = [(1e6 + 2 * rng.normal(size=(64, 1))).astype(np.float32) for _ in range(50)]
    normaliser = Normaliser(1)
    for batch in batches:
        normaliser.merge(torch.from_numpy(batch))
    mean, var, _ = reference_statistics([batch.astype(np.float64) for batch in batches])
    np.testing.assert_allclose(normaliser.mean[0], mean, rtol=1e-14)
    # Seen from 1e6, the pseudo sample at 0 dominates the variance; without it, the deviation of 2 must still be there.
    np.testing.assert_allclose(normaliser.var[0], var, rtol=1e-12)
    own = Normaliser(1)
    own.mean.fill_(1e6)
    for batch in batches:
        own.merge(torch.from_numpy(batch))
    assert own.var.item() == pytest.approx(np.concatenate(batches).astype(np.float64).var(), rel=0.02)
    # float32 has steps of 1/16 at 1e6, so the mean is off by at most 1/32 when it is rounded to the data's dtype.
    row = torch.from_numpy(batches[0])
    exact = (batches[0].astype(np.float64) - own.mean.item()) / np.sqrt(own.var.item() + EPSILON)
    np.testing.assert_allclose(own(row), exact, atol=1 / 32 / 1.9)


def test_normalising_and_merging_by_hand() -> None:
    """Statistics stay, and so does the data's type."""
    normaliser = Normaliser(1, clip=3.0).double()
    normaliser.mean.fill_(2.0)
    normaliser.var.fill_(4.0 - EPSILON)  # so that √(var + ε) is 2
    data = torch.tensor([[2.0], [5.0], [100.0], [-100.0]], dtype=torch.float64)
    torch.testing.assert_close(normaliser(data), torch.tensor([[0.0], [1.5], [3.0], [-3.0]], dtype=torch.float64))
    # Back: clipped to ±3 first, then 2·y + 2.
    back = normaliser.denormalise(torch.tensor([[1.5], [9.0], [-9.0]], dtype=torch.float64))
    assert back.flatten().tolist() == pytest.approx([5.0, 8.0, -4.0])
    assert [normaliser.mean.item(), normaliser.var.item(), normaliser.count.item()] == [2.0, 4.0 - EPSILON, 1.0]
    assert Normaliser(2)(torch.full((3, 2), 7.0)).dtype == torch.float32
    # Rows 1 and 3: mean 2, unbiased variance 2. With the pseudo sample (0, variance 1): 3 samples, mean 4/3,
    # variance (1 + 2·2 + 1·(4/3)² + 2·(2/3)²)/3 = (5 + 8/3)/3 = 23/9.
    # The unbiased variance of a single row 6 does not exist; it moves the mean to (0 + 6)/2 and counts. Pseudo sample:
    # variance 1 and distance 3; the row: distance 3. (1 + 9 + 9)/2.
    for rows, mean, var in (([[1.0], [3.0]], 4 / 3, 23 / 9), ([[6.0]], 3.0, 9.5)):
        normaliser = Normaliser(1)
        normaliser.merge(torch.tensor(rows))
        assert normaliser.count.item() == 1 + len(rows)
        assert normaliser.mean.item() == pytest.approx(mean, rel=1e-15)
        assert normaliser.var.item() == pytest.approx(var, rel=1e-15)


def test_a_spike_counts_as_a_hundred_deviations_and_a_lasting_change_gets_through() -> None:
    rng = np.random.default_rng(2)
    ordinary, normaliser = rng.normal(3.0, 2.0, (2000, 2)), Normaliser(2)
    normaliser.merge(torch.from_numpy(ordinary))
    batch = rng.normal(3.0, 2.0, (500, 2))
    limited, far = normaliser.limited(torch.from_numpy(batch))
    assert torch.equal(limited, torch.from_numpy(batch))  # to the bit
    assert far.tolist() == [0]
    batch[[7, 9], 1] = 1e5, -1e9
    limited, far = normaliser.limited(torch.from_numpy(batch))
    mean, var, _ = reference_statistics([ordinary])
    edge = 100 * np.sqrt(var[1] + EPSILON)
    np.testing.assert_allclose(limited[[7, 9], 1], [mean[1] + edge, mean[1] - edge], rtol=1e-12)
    assert far.tolist() == [2]
    normaliser.merge(limited)
    mean, var, _ = reference_statistics([ordinary, limited.numpy()])
    np.testing.assert_allclose(normaliser.var[0], var, rtol=1e-13)
    for _ in range(20):
        normaliser.merge(normaliser.limited(torch.full((500, 2), 1e7))[0])
    assert normaliser.mean[0].tolist() == pytest.approx([1e7 * 20 * 500 / 12501] * 2, rel=0.5)


def test_flags_that_are_seldom_set_and_first_rows_are_taken_in_full_and_networks_have_limits_of_their_own() -> None:
    normaliser = Normaliser(1)
    first = torch.full((900, 1), 1e6, dtype=torch.float64)
    assert torch.equal(normaliser.limited(first)[0], first)
    normaliser.merge(torch.zeros(100_000, 1))
    flag = torch.ones(3, 1, dtype=torch.float64)  # 300 deviations of a column that was constant
    assert torch.equal(normaliser.limited(flag)[0], flag)
    stack(both := Normaliser(1), [Normaliser(1)])
    both.merge(torch.cat((torch.zeros(2000, 1), torch.linspace(-1e4, 1e4, 2000)[:, None])))
    limited, far = both.limited(torch.tensor([[1e4], [1e4]]))
    assert far.tolist() == [1, 0]
    assert limited.flatten().tolist() == [pytest.approx(100.0, rel=0.01), 1e4]
