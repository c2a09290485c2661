"""Scores by hand: an environment counts once, by its last finished episode."""

import math

import pytest
import torch

from echelon.envs.contract import Step
from echelon.rollout.episodes import Episodes
from echelon.rollout.layout import Layout


def step(reward: list[float], ended: str = "", cut: str = "", **log: list[float]) -> Step:
    """One step; `ended` and `cut` have a `1` for each environment whose episode is over."""
    n = len(reward)
    ends, cuts = (torch.tensor([c == "1" for c in text.ljust(n, "0")]) for text in (ended, cut))
    figures = {name.replace("__", "/"): torch.tensor(x) for name, x in log.items()}
    return Step({}, torch.tensor(reward), ends, cuts, {}, figures)


def numbers(episodes: Episodes) -> dict[str, float]:
    return {name: x.item() for name, x in episodes.metrics().items()}


def test_returns_and_lengths_by_hand() -> None:
    """Four environments, two each for the leader and a follower."""
    episodes = Episodes(Layout(4, 2))
    episodes.begin()
    episodes.record(step([1.0, 2.0, 3.0, 4.0]))
    assert all(math.isnan(x) for x in numbers(episodes).values())
    assert set(numbers(episodes)) == {
        f"{name}/{who}" for name in ("return", "length") for who in ("leader", "policy_0", "policy_1")
    }

    episodes.record(step([1.0, 2.0, 3.0, 4.0], ended="1"))
    # Environment 0 finished with 2 in 2 steps; the leader's other one and the follower's have finished none.
    found = numbers(episodes)
    assert (found["return/leader"], found["length/leader"]) == pytest.approx((2.0, 2.0))
    assert math.isnan(found["return/policy_1"])

    # Environment 0 ends again at once with 10; 1 is cut with 2 + 2 + 2; 3 with 4 + 4 + 4.
    episodes.record(step([10.0, 2.0, 3.0, 4.0], ended="1", cut="0101"))
    found = numbers(episodes)
    # Environment 0 counts once, by its last episode: (10 + 6)/2, lengths (1 + 3)/2.
    assert found["return/leader"] == found["return/policy_0"] == pytest.approx(8.0)
    assert found["length/leader"] == pytest.approx(2.0)
    assert (found["return/policy_1"], found["length/policy_1"]) == pytest.approx((12.0, 3.0))

    # No episode ends: the last results stand, in the next rollout too.
    episodes.begin()
    episodes.record(step([50.0] * 4))
    assert numbers(episodes)["return/leader"] == pytest.approx(8.0)
    # Environment 2 ends for the first time: 3 + 3 + 3 + 50 beside the 12 of environment 3.
    episodes.record(step([0.0] * 4, ended="001"))
    assert numbers(episodes)["return/policy_1"] == pytest.approx((59 + 12) / 2)


def test_an_episodes_own_figures_count_when_it_ends_others_are_averaged_and_troubles_are_totals() -> None:
    episodes = Episodes(Layout(2, 1))
    episodes.begin()
    episodes.record(step([0.0, 0.0], episode__successes=[5.0, 6.0]))
    assert math.isnan(numbers(episodes)["successes/leader"])
    episodes.record(step([0.0, 0.0], ended="1", episode__successes=[7.0, 8.0]))
    assert numbers(episodes)["successes/leader"] == pytest.approx(7.0)
    episodes.record(step([0.0, 0.0], cut="01", episode__successes=[1.0, 9.0]))
    assert numbers(episodes)["successes/leader"] == pytest.approx((7 + 9) / 2)
    episodes, none = Episodes(Layout(4, 2)), {name: [0.0] * 4 for name in ("quarantined", "overflow")}
    first, second = [1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 2.0]
    episodes.begin()
    episodes.record(step([0.0] * 4, height=[1.0, 3.0, 100.0, 100.0], quarantined=first, overflow=second))
    episodes.record(step([0.0] * 4, height=[2.0, 6.0, 100.0, 100.0], quarantined=second, overflow=second))
    found = [numbers(episodes)[f"env/{name}"] for name in ("height", "quarantined", "overflow")]
    assert found == pytest.approx([(2 + 4) / 2, 5.0, 6.0])
    episodes.begin()
    episodes.record(step([0.0] * 4, height=[7.0, 9.0, 0.0, 0.0], **none))
    assert numbers(episodes)["env/height"] == pytest.approx(8.0)  # the rollout before is forgotten


def test_a_copy_has_its_donors_scores_until_episodes_of_its_own_end_and_only_finished_objectives_are_known() -> None:
    """Two policies of two environments. Policy 1 becomes a copy of policy 0 in the middle of its second episode: that
    one ends unnoticed, the next one counts."""
    episodes = Episodes(Layout(4, 2))
    episodes.record(step([1.0, 2.0, 30.0, 40.0], ended="1111"))
    episodes.record(step([5.0, 5.0, 500.0, 500.0]))
    episodes.inherit(0, 1)
    assert episodes.last[0].tolist() == [1.0, 2.0, 1.0, 2.0]
    assert episodes.objective("return").tolist() == [1.5, 1.5]
    episodes.record(step([1.0, 1.0, 1.0, 1.0], cut="1010"))
    assert episodes.last[0].tolist() == [6.0, 2.0, 1.0, 2.0]  # 501 does not count
    assert episodes.mixed.tolist() == [False, False, False, True]
    episodes.record(step([7.0, 0.0, 8.0, 0.0], ended="001"))
    assert episodes.last[0].tolist() == [6.0, 2.0, 8.0, 2.0]
    # Known is what every environment has finished an episode of; one policy is reported as the leader only.
    episodes = Episodes(Layout(4, 2))
    episodes.record(step([1.0, 2.0, 3.0, 4.0], ended="111"))
    objective = episodes.objective("return")
    assert objective[0].item() == 1.5
    assert objective[1].isnan()
    assert episodes.metrics()["return/policy_1"].item() == 3.0
    assert episodes.metrics()["return/leader"].item() == 1.5
    assert episodes.metrics(torch.tensor([1]))["return/leader"].item() == 3.0
    one = Episodes(Layout(2, 1))
    one.begin()
    one.record(step([1.0, 2.0], ended="11"))
    assert numbers(one) == {"return/leader": 1.5, "length/leader": 1.0}
