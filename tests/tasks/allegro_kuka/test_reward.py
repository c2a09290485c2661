"""Terms of the AllegroKuka reward by hand, and what is remembered after them."""

from dataclasses import replace

import torch
from torch import Tensor

from echelon.tasks.allegro_kuka.reward import TERMS, Progress, Seen
from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig

WEIGHTS = AllegroKukaConfig(success_steps=5)
UNGATED = replace(WEIGHTS, reach_until_lifted=False)
TOLERANCE = torch.tensor(0.04)  # near is 0.06


def seen(height: list[float], reach: list[list[float]], distance: list[float], speeds: float = 0.0) -> Seen:
    count = len(height)
    return Seen(
        torch.tensor(height),
        torch.tensor(reach),
        torch.tensor(distance),
        torch.full((count,), speeds),
        torch.full((count,), 2 * speeds),
    )


def progress(reach: list[list[float]], distance: list[float], lifted: list[bool]) -> Progress:
    made = Progress(len(distance), len(reach[0]), torch.device("cpu"))
    everywhere = torch.ones(len(distance), dtype=torch.bool)
    made.new_object(everywhere, torch.tensor(reach))
    made.new_goal(everywhere, torch.tensor(distance))
    made.lifted.copy_(torch.tensor(lifted))
    return made


def close(found: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-4)


def test_before_the_object_is_lifted() -> None:
    """Heights pay from 0.58 m on; fingertips pay for new best distances only; keypoints not yet."""
    made = progress([[0.3, 0.2], [0.3, 0.2], [0.3, 0.2]], [0.5] * 3, [False] * 3)
    terms, reached = made.pay(
        seen([0.555, 0.63, 0.70], [[0.25, 0.25], [0.1, 0.1], [0.3, 0.2]], [0.4, 0.5, 0.6]), TOLERANCE, WEIGHTS
    )
    assert tuple(terms) == TERMS
    close(terms["reach"], [50 * 0.05, 50 * (0.2 + 0.1), 0.0])
    # 0.05 + 0.555 - 0.63 is negative; 0.05; 0.12
    close(terms["lift"], [0.0, 20 * 0.05, 20 * 0.12])
    for name in ("lift_bonus", "keypoint", "goal", "arm_speed", "hand_speed"):
        close(terms[name], [0.0] * 3)
    assert not reached.any()
    torch.testing.assert_close(made.best_reach, torch.tensor([[0.25, 0.2], [0.1, 0.1], [0.3, 0.2]]))
    torch.testing.assert_close(made.best_distance, torch.tensor([0.4, 0.5, 0.5]))  # though it did not pay
    assert not made.lifted.any()


def test_lifting_pays_once_and_opens_the_keypoints_in_the_same_step() -> None:
    """Lifted is above 0.73: 0.05 + z - 0.63 > 0.15."""
    made = progress([[0.3]] * 3, [0.5] * 3, [False, False, True])
    terms, _ = made.pay(seen([0.7301, 0.7299, 0.60], [[0.1]] * 3, [0.4] * 3), TOLERANCE, WEIGHTS)
    close(terms["lift_bonus"], [300.0, 0.0, 0.0])
    close(terms["lift"], [0.0, 20 * 0.1499, 0.0])
    close(terms["reach"], [0.0, 50 * 0.2, 0.0])  # with the flag just raised
    close(terms["keypoint"], [200 * 0.1, 0.0, 200 * 0.1])
    assert made.lifted.tolist() == [True, False, True]  # a lifted object stays one, however low
    torch.testing.assert_close(made.best_reach, torch.full((3, 1), 0.1))  # also while lifted
    again, _ = made.pay(seen([0.80, 0.80, 0.80], [[0.1]] * 3, [0.45, 0.3, 0.4]), TOLERANCE, WEIGHTS)
    close(again["lift_bonus"], [0.0, 300.0, 0.0])
    close(again["keypoint"], [0.0, 200 * 0.1, 0.0])


def test_lift_and_progress_are_cut() -> None:
    """Nothing pays for more than half a metre of height, ten of reach, a hundred of approach in a step."""
    made = progress([[30.0]], [500.0], [True])
    terms, _ = made.pay(seen([0.6], [[0.0]], [1.0]), TOLERANCE, WEIGHTS)
    close(terms["keypoint"], [200 * 100.0])
    made = progress([[30.0]], [500.0], [True])
    close(made.pay(seen([0.6], [[0.0]], [1.0]), TOLERANCE, UNGATED)[0]["reach"], [50 * 10.0])


def test_reach_of_two_arms_pays_while_lifted() -> None:
    made = progress([[0.3] * 8], [0.5], [True])
    terms, _ = made.pay(seen([0.6], [[0.2] * 8], [0.5]), TOLERANCE, UNGATED)
    close(terms["reach"], [50 * 8 * 0.1])


def test_near_steps_need_not_be_in_a_row_and_need_no_lift() -> None:
    made, paid = progress([[0.3]], [0.5], [False]), []
    for distance in (0.06, 0.0601, 0.05, 0.02, 0.3, 0.06, 0.01, 0.01):
        terms, reached = made.pay(seen([0.6], [[0.3]], [distance]), TOLERANCE, WEIGHTS)
        paid.append((round(terms["goal"].item()), int(made.near_steps), bool(reached)))
    assert paid == [
        (200, 1, False),  # on the line is near
        (0, 1, False),
        (200, 2, False),
        (200, 3, False),
        (0, 3, False),
        (200, 4, False),
        (200, 5, True),
        (200, 6, True),
    ]
    mask = torch.tensor([True])
    made.new_goal(mask, torch.tensor([0.7]))
    assert (int(made.near_steps), made.best_distance.item()) == (0, torch.tensor(0.7).item())
    assert made.best_reach.item() == torch.tensor(0.3).item()  # another goal is no other object


def test_a_new_object_is_not_lifted_and_a_mask_keeps_the_others() -> None:
    made = progress([[0.1], [0.1]], [0.2, 0.2], [True, True])
    made.new_object(torch.tensor([False, True]), torch.tensor([[0.9], [0.9]]))
    assert made.lifted.tolist() == [True, False]
    close(made.best_reach.flatten(), [0.1, 0.9])
    made.near_steps[:] = 3
    made.new_goal(torch.tensor([True, False]), torch.tensor([0.8, 0.8]))
    close(made.best_distance, [0.8, 0.2])
    assert made.near_steps.tolist() == [0, 3]


def test_speeds_cost() -> None:
    made = progress([[0.3]], [0.5], [False])
    terms, _ = made.pay(seen([0.6], [[0.3]], [0.5], speeds=4.0), TOLERANCE, WEIGHTS)
    close(terms["arm_speed"], [-0.003 * 4.0])
    close(terms["hand_speed"], [-0.0003 * 8.0])
